//! The terminal: taken when the view begins, and given back as it was, whichever way the view ends.

use std::io::{self, Write};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use tokio::sync::mpsc;

use super::draw::Size;
use super::grid::{Line, Tone};
use crate::out::colours_wanted;

/// Keys that may wait to be read.
const KEYS_WAITING_MAX: usize = 16;

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Leave,
    Again,
    Resized,
}

/// The terminal, taken. It is given back on drop.
pub(super) struct Screen {
    coloured: bool,
}

impl Screen {
    /// Takes the terminal: its other screen, no echo, no cursor.
    pub(super) fn take() -> io::Result<Self> {
        enable_raw_mode()?;
        // From here on it must be given back, also if the next line fails.
        let screen = Self { coloured: colours_wanted() };
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// How much room there is.
    pub(super) fn size(&self) -> io::Result<Size> {
        let (columns, rows) = size()?;
        Ok(Size { columns: usize::from(columns), rows: usize::from(rows) })
    }

    /// Draws the lines from the top; takes away what was below.
    pub(super) fn show(&mut self, lines: &[Line]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        queue!(out, BeginSynchronizedUpdate)?;
        for (row, line) in lines.iter().enumerate() {
            queue!(out, MoveTo(0, u16::try_from(row).unwrap_or(u16::MAX)))?;
            for (text, tone) in &line.0 {
                self.paint(&mut out, text, *tone)?;
            }
            queue!(out, Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        out.flush()
    }

    fn paint(&self, out: &mut impl Write, text: &str, tone: Tone) -> io::Result<()> {
        let color = match tone {
            Tone::Good => Some(Color::Green),
            Tone::Warn => Some(Color::Yellow),
            Tone::Bad => Some(Color::Red),
            Tone::Plain | Tone::Title | Tone::Quiet => None,
        };
        match (tone, color.filter(|_| self.coloured)) {
            (_, Some(color)) => queue!(out, SetForegroundColor(color), Print(text), ResetColor),
            (Tone::Title, None) => {
                queue!(out, SetAttribute(Attribute::Bold), Print(text), SetAttribute(Attribute::Reset))
            }
            (Tone::Quiet, None) => {
                queue!(out, SetAttribute(Attribute::Dim), Print(text), SetAttribute(Attribute::Reset))
            }
            (Tone::Plain | Tone::Good | Tone::Warn | Tone::Bad, None) => queue!(out, Print(text)),
        }
    }

    /// What is typed, as it is. A thread reads it, as a terminal can be read only by waiting.
    pub(super) fn keys(&self) -> mpsc::Receiver<Key> {
        let (sender, keys) = mpsc::channel(KEYS_WAITING_MAX);
        std::thread::spawn(move || {
            while let Ok(event) = event::read() {
                if let Some(key) = meant(&event)
                    && sender.blocking_send(key).is_err()
                {
                    return;
                }
            }
        });
        keys
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone cannot be given back.
        execute!(io::stdout(), LeaveAlternateScreen, Show).ok();
        disable_raw_mode().ok();
    }
}

fn meant(event: &Event) -> Option<Key> {
    match event {
        Event::Resize(..) => Some(Key::Resized),
        Event::Key(key) if key.kind == KeyEventKind::Release => None,
        Event::Key(key) => match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
            (KeyCode::Char('c' | 'd'), true) | (KeyCode::Char('q' | 'Q') | KeyCode::Esc, false) => {
                Some(Key::Leave)
            }
            (KeyCode::Char('r' | 'R' | ' '), false) => Some(Key::Again),
            _ => None,
        },
        Event::FocusGained | Event::FocusLost | Event::Mouse(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossterm::event::KeyEvent;

    #[test]
    fn q_and_control_c_leave() {
        let key = |code, modifiers| meant(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Key::Leave));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Leave));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Char('r'), KeyModifiers::NONE), Some(Key::Again));
        assert_eq!(meant(&Event::Resize(80, 24)), Some(Key::Resized));
    }
}

//! `--watch`: shows a list or a document again and again. On a terminal it is drawn in place; elsewhere, and as JSON, it is
//! printed whenever it has changed.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use tidewheel_api::client::Call;
use tidewheel_server::clock::{Clock, SystemClock};

use crate::connect::Link;
use crate::failure::Failure;
use crate::json;
use crate::out::Out;
use crate::top::interval;

/// Whether to look again, and how often.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Again")]
pub(crate) struct WatchArgs {
    /// Looks again every so often, until Ctrl-C [default: 2s]
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, require_equals = true, default_missing_value = "2s",
        value_parser = interval)]
    watch: Option<Duration>,
}

// The terminal's own codes: back by so many lines; the rest of a line and of the screen away; and long lines cut off
// rather than broken, as a broken one would take two lines and be counted as one.
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";
const WRAP_OFF: &str = "\u{1b}[?7l";
const WRAP_ON: &str = "\u{1b}[?7h";

/// Does it once or, if it is to be watched, until nobody wants to see it any more.
pub(crate) async fn repeat<F>(args: WatchArgs, out: Out, show: impl Fn(Out) -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let Some(interval) = args.watch else { return show(out).await };
    let clock = SystemClock::new();
    let (framed, frame) = out.framed();
    let mut last: Option<String> = None;
    let mut drawn_lines = 0;
    loop {
        show(framed).await?;
        let text = frame.take();
        if io::stdout().is_terminal() && !out.is_json() {
            drawn_lines = redraw(&text, drawn_lines)?;
        } else if last.as_ref() != Some(&text) {
            append(&text, last.is_some(), out)?;
            last = Some(text);
        }
        clock.sleep(interval).await;
    }
}

/// Shows a document of the server's.
pub(crate) async fn document(args: WatchArgs, link: &Link, call: impl Fn() -> Call) -> Result<(), Failure> {
    let client = link.client()?;
    let show = |out: Out| {
        let (client, call) = (&client, call());
        async move { Ok(out.document(&client.send(&call).await?.body)?) }
    };
    repeat(args, link.out, show).await
}

/// Prints what has changed: a document is a line, a table follows the one before after a blank line.
fn append(text: &str, is_again: bool, out: Out) -> io::Result<()> {
    if out.is_json() {
        return out.line(&json::compact(text));
    }
    if is_again {
        out.line("")?;
    }
    out.line(text.trim_end())
}

/// Draws over what was drawn before, as far as the screen reaches; gives the number of lines.
fn redraw(text: &str, drawn_lines: usize) -> io::Result<usize> {
    let (_, rows) = crossterm::terminal::size()?;
    let room = usize::from(rows).saturating_sub(1).max(1);
    let (picture, lines) = picture(text, drawn_lines, room);
    let mut stdout = io::stdout().lock();
    stdout.write_all(picture.as_bytes())?;
    stdout.flush()?;
    Ok(lines)
}

fn picture(text: &str, drawn_lines: usize, room: usize) -> (String, usize) {
    let mut picture = String::from(WRAP_OFF);
    if drawn_lines > 0 {
        picture.push_str(&format!("\u{1b}[{drawn_lines}A\r"));
    }
    let mut lines = 0;
    for line in text.trim_end().lines().take(room) {
        picture.push_str(&format!("{line}{CLEAR_LINE}\r\n"));
        lines += 1;
    }
    picture.push_str(CLEAR_BELOW);
    picture.push_str(WRAP_ON);
    (picture, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_drawn_over_the_one_before_and_fits_the_screen() {
        assert_eq!(
            picture("a\nb\n", 0, 9),
            ("\u{1b}[?7la\u{1b}[K\r\nb\u{1b}[K\r\n\u{1b}[J\u{1b}[?7h".to_owned(), 2)
        );
        let (again, lines) = picture("a\nb\nc\n", 2, 2);
        assert!(again.starts_with("\u{1b}[?7l\u{1b}[2A\ra"), "{again:?}");
        assert_eq!((lines, again.contains('c')), (2, false));
    }
}

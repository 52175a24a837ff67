//! `tidewheel top`: how a server is, live.
//!
//! | file | what it holds |
//! |---|---|
//! | `gather` | asking the server |
//! | `answers`, `exposition` | what it says: JSON of the API, and its metrics |
//! | `frame` | one look, put together |
//! | `draw`, `grid` | a look as lines of text, as wide and high as the terminal |
//! | `screen` | the terminal: taking it, drawing on it, giving it back |

mod answers;
mod draw;
mod exposition;
mod frame;
mod gather;
mod grid;
mod screen;

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;
use tidewheel_api::client::Error;
use tidewheel_core::limits::{HOUR_MS, SECOND_MS};
use tidewheel_core::time::parse_duration;
use tidewheel_server::clock::{Clock, SystemClock};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::draw::Size;
use self::frame::Frame;
use self::gather::Gatherer;
use self::screen::{Key, Screen};
use crate::connect::Link;
use crate::failure::Failure;
use crate::out::terminal_columns;

const EXAMPLES: &str = "\
Shows how late jobs start, how many come and go, what waits by tenant and by queue, workers and nodes.
What a key may not see is named at the bottom. Keys: q or Ctrl-C leaves, r asks again at once.
Without a terminal, or with --once, one look is printed as text; -o json prints it as JSON.

Examples:
  tidewheel top
  tidewheel top --interval 10s --tenant acme
  tidewheel top --once
  tidewheel top -o json";

/// Columns of one look printed where there is no terminal.
const PLAIN_COLUMNS: usize = 80;
/// More often than this nobody can read.
const INTERVAL_MS_MIN: i64 = SECOND_MS / 5;
const INTERVAL_MS_MAX: i64 = HOUR_MS;

/// The flags of `top`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// Between two looks, 200ms at least
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// Prints one look and ends
    #[arg(long)]
    once: bool,
}

/// Reads how often to look.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let ms = parse_duration(text).map_err(|fault| fault.to_string())?;
    if !(INTERVAL_MS_MIN..=INTERVAL_MS_MAX).contains(&ms) {
        return Err("200ms to 1h".to_owned());
    }
    Ok(Duration::from_millis(ms.unsigned_abs()))
}

/// Shows how a server is until the user has seen enough.
pub(crate) async fn run(args: TopArgs, link: Link) -> Result<(), Failure> {
    let gatherer = Gatherer::new(link.config()?)?;
    if link.out.is_json() || args.once || !io::stdout().is_terminal() {
        return once(gatherer, &link).await;
    }
    watch(gatherer, args.interval).await
}

async fn once(mut gatherer: Gatherer, link: &Link) -> Result<(), Failure> {
    let frame = gatherer.look().await?;
    if link.out.is_json() {
        let document = serde_json::to_string(&frame).map_err(io::Error::other)?;
        return Ok(link.out.json(document.as_bytes())?);
    }
    let columns = terminal_columns().unwrap_or(PLAIN_COLUMNS);
    for line in draw::look(&frame, Size { columns, rows: usize::MAX }) {
        link.out.line(line.plain().trim_end())?;
    }
    Ok(())
}

/// What is on the screen.
#[derive(Default)]
struct View {
    frame: Frame,
    /// Why there is nothing newer.
    trouble: Option<String>,
    interval: Duration,
}

impl View {
    fn draw(&self, screen: &mut Screen) -> io::Result<()> {
        let size = screen.size()?;
        let mut lines = draw::look(&self.frame, Size { rows: size.rows.saturating_sub(1), ..size });
        lines.truncate(size.rows.saturating_sub(1));
        lines.push(draw::foot(self.trouble.as_deref(), self.interval, size.columns));
        screen.show(&lines)
    }
}

async fn watch(mut gatherer: Gatherer, interval: Duration) -> Result<(), Failure> {
    // Before the terminal is taken: who cannot be served is told so on a terminal as it was.
    let mut view = View { frame: gatherer.look().await?, trouble: None, interval };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let (asked, asks) = mpsc::channel(1);
    let mut looks = looks(gatherer, interval, asks);
    let mut screen = Screen::take()?;
    let mut keys = screen.keys();
    loop {
        view.draw(&mut screen)?;
        tokio::select! {
            Some(key) = keys.recv() => match key {
                Key::Leave => return Ok(()),
                // One that is waiting already will do.
                Key::Again => drop(asked.try_send(())),
                Key::Resized => {}
            },
            Some(look) = looks.recv() => match look {
                Ok(frame) => (view.frame, view.trouble) = (frame, None),
                Err(error) => view.trouble = Some(error.to_string()),
            },
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
        }
    }
}

/// Looks again and again, apart from the keys: a server that is slow to answer must not hold up who wants to leave.
fn looks(
    mut gatherer: Gatherer,
    interval: Duration,
    mut asks: mpsc::Receiver<()>,
) -> mpsc::Receiver<Result<Frame, Error>> {
    let (sender, looks) = mpsc::channel(1);
    tokio::spawn(async move {
        let clock = SystemClock::new();
        loop {
            tokio::select! {
                () = clock.sleep(interval) => {}
                asked = asks.recv() => if asked.is_none() { return },
            }
            if sender.send(gatherer.look().await).await.is_err() {
                return;
            }
        }
    });
    looks
}

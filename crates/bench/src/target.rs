//! An HTTP target that answers every push with an empty 200 as cheaply as it can, and notes when each arrived.

use std::net::SocketAddr;

use anyhow::Context;
use tidewheel_core::time::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::connection::find;
use super::stopwatch::wall_us;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const READ_BYTES: usize = 16 << 10;
/// A request larger than this did not come from the benchmark.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// A push that arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// When, on the wall clock.
    pub(super) at_us: i64,
    /// When it was due.
    pub(super) run_at: Timestamp,
}

/// The target; gone when dropped.
pub(super) struct Target {
    address: SocketAddr,
    accepting: AbortHandle,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
}

impl Target {
    /// Listens on a free port of the loopback.
    pub(super) async fn listen() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listening as a target")?;
        let address = listener.local_addr()?;
        let (noted, arrivals) = mpsc::unbounded_channel();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A connection that breaks is the server's to report.
                tokio::spawn(serve(stream, noted.clone()));
            }
        })
        .abort_handle();
        Ok(Self { address, accepting, arrivals })
    }

    /// Where pushes go.
    pub(super) fn url(&self) -> String {
        format!("http://{}/bench", self.address)
    }

    /// The next push.
    pub(super) async fn next(&mut self) -> Option<Arrival> {
        self.arrivals.recv().await
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut stream: TcpStream, noted: mpsc::UnboundedSender<Arrival>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(READ_BYTES);
    loop {
        if let Some(request) = Request::parse(&buffer) {
            let arrival = Arrival { at_us: wall_us(), run_at: request.run_at };
            if noted.send(arrival).is_err() {
                return Ok(());
            }
            buffer.drain(..request.length);
            stream.write_all(ANSWER).await?;
            continue;
        }
        if buffer.len() > REQUEST_BYTES_MAX {
            return Ok(());
        }
        buffer.reserve(READ_BYTES);
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

/// What matters of a push.
struct Request {
    run_at: Timestamp,
    /// Head and body together.
    length: usize,
}

impl Request {
    /// `None` while it is not all there.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = find(bytes, b"\r\n\r\n")?;
        let head = std::str::from_utf8(bytes.get(..end)?).unwrap_or_default();
        let (mut body, mut run_at) = (0, Timestamp::MIN);
        for (name, value) in head.split("\r\n").skip(1).filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                body = value.trim().parse().unwrap_or(0);
            } else if name.eq_ignore_ascii_case("tidewheel-run-at") {
                run_at = value.trim().parse().unwrap_or(Timestamp::MIN);
            }
        }
        let length = end + 4 + body;
        (bytes.len() >= length).then_some(Self { run_at, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_counts_once_it_is_whole() {
        let push = b"POST /bench HTTP/1.1\r\nTidewheel-Run-At: 2026-12-01T09:00:00.123Z\r\nContent-Length: 4\r\n\r\nnullPOST";
        for cut in 0..push.len() - 4 {
            assert!(Request::parse(&push[..cut]).is_none(), "{cut}");
        }
        let request = Request::parse(push).unwrap();
        assert_eq!(request.length, push.len() - 4);
        assert_eq!(request.run_at, "2026-12-01T09:00:00.123Z".parse().unwrap());
    }
}

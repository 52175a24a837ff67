//! An HTTP target that answers every push with an empty 200, and counts them.

use std::net::SocketAddr;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const READ_BYTES: usize = 16 << 10;

/// The target; gone when dropped.
pub(crate) struct Target {
    address: SocketAddr,
    accepting: AbortHandle,
    seen: watch::Receiver<u64>,
}

impl Target {
    /// Listens on a free port of the loopback.
    pub(crate) async fn listen() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listening as a target")?;
        let address = listener.local_addr()?;
        let (count, seen) = watch::channel(0);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A connection that breaks is the server's to report.
                tokio::spawn(serve(stream, count.clone()));
            }
        })
        .abort_handle();
        Ok(Self { address, accepting, seen })
    }

    /// Where pushes go.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/cost", self.address)
    }

    /// How many pushes came.
    pub(crate) fn seen(&self) -> watch::Receiver<u64> {
        self.seen.clone()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut stream: TcpStream, count: watch::Sender<u64>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(READ_BYTES);
    loop {
        if let Some(length) = whole(&buffer) {
            buffer.drain(..length);
            count.send_modify(|seen| *seen += 1);
            stream.write_all(ANSWER).await?;
        } else if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

/// How long the first request is, head and body, once it is all there.
fn whole(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(bytes.get(..end)?).unwrap_or_default();
    let length = head.lines().filter_map(|line| line.split_once(':'));
    let length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let body: usize = length.map(|(_, value)| value.trim().parse().unwrap_or(0)).sum();
    (bytes.len() >= end + body).then_some(end + body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_counts_once_it_is_whole() {
        let push = b"POST /cost HTTP/1.1\r\nContent-Length: 4\r\n\r\nnullPOST";
        for cut in 0..push.len() - 4 {
            assert_eq!(whole(&push[..cut]), None, "{cut}");
        }
        assert_eq!(whole(push), Some(push.len() - 4));
    }
}

//! The load generator's HTTP/1.1: requests rendered beforehand, answers read no further than needed. A full client
//! would cost as much as the server it measures.

use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use tidewheel_core::names::Tenant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer larger than this is a mistake.
const ANSWER_BYTES_MAX: usize = 16 << 20;
const READ_BYTES: usize = 64 << 10;
/// How much of a refusal is shown.
const SHOWN_CHARS: usize = 400;

/// A request, ready to be sent any number of times.
pub(super) fn request(method: &str, path: &str, host: &str, body: &str) -> Vec<u8> {
    rendered(&format!("{method} {path} HTTP/1.1\r\nhost: {host}"), body)
}

/// A POST for a tenant.
pub(super) fn post_for(tenant: &Tenant, path: &str, host: &str, body: &str) -> Vec<u8> {
    rendered(&format!("POST {path} HTTP/1.1\r\nhost: {host}\r\ntidewheel-tenant: {tenant}"), body)
}

fn rendered(head: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("{head}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// A connection that is kept open.
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(READ_BYTES) })
    }

    /// Sends a request and reads its answer's status.
    pub(super) async fn call(&mut self, request: &[u8]) -> anyhow::Result<u16> {
        self.stream.write_all(request).await.context("sending a request")?;
        self.buffer.clear();
        let head = loop {
            match Head::parse(&self.buffer)? {
                Some(head) => break head,
                None => self.fill().await?,
            }
        };
        match head.body {
            Body::Length(length) => {
                while self.buffer.len() < head.end + length {
                    self.fill().await?;
                }
            }
            Body::Chunked => {
                let mut at = head.end;
                while !skip_chunks(&self.buffer, &mut at)? {
                    self.fill().await?;
                }
            }
        }
        Ok(head.status)
    }

    /// As [`Self::call`], when only success is of use.
    pub(super) async fn must(&mut self, request: &[u8]) -> anyhow::Result<()> {
        let status = self.call(request).await?;
        if (200..300).contains(&status) {
            return Ok(());
        }
        let answer = String::from_utf8_lossy(&self.buffer);
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        bail!("the server answered {status}: {}", body.chars().take(SHOWN_CHARS).collect::<String>())
    }

    async fn fill(&mut self) -> anyhow::Result<()> {
        ensure!(self.buffer.len() < ANSWER_BYTES_MAX, "an answer of over {ANSWER_BYTES_MAX} bytes");
        self.buffer.reserve(READ_BYTES);
        let read = self.stream.read_buf(&mut self.buffer).await.context("reading an answer")?;
        ensure!(read > 0, "the server closed the connection before it answered");
        Ok(())
    }
}

enum Body {
    Length(usize),
    Chunked,
}

/// What matters of an answer's head.
struct Head {
    status: u16,
    body: Body,
    /// Where it ends.
    end: usize,
}

impl Head {
    /// `None` when there is more to come.
    fn parse(bytes: &[u8]) -> anyhow::Result<Option<Self>> {
        let Some(end) = find(bytes, b"\r\n\r\n") else { return Ok(None) };
        let text = std::str::from_utf8(bytes.get(..end).unwrap_or_default()).context("reading a head")?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let status = status.context("an answer without a status")?;
        let mut body = Body::Length(0);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                body = Body::Length(value.parse().context("an answer's length")?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked")
            {
                body = Body::Chunked;
            }
        }
        Ok(Some(Self { status, body, end: end + 4 }))
    }
}

/// Moves `at` over the chunks that are there; whether the last one was among them.
fn skip_chunks(bytes: &[u8], at: &mut usize) -> anyhow::Result<bool> {
    loop {
        let rest = bytes.get(*at..).unwrap_or_default();
        let Some(line_end) = find(rest, b"\r\n") else { return Ok(false) };
        let line =
            std::str::from_utf8(rest.get(..line_end).unwrap_or_default()).context("reading a chunk")?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size =
            usize::from_str_radix(digits, 16).with_context(|| format!("a chunk's size of {digits:?}"))?;
        let next = line_end + 2 + size + 2;
        if rest.len() < next {
            return Ok(false);
        }
        *at += next;
        if size == 0 {
            return Ok(true);
        }
    }
}

/// Where `wanted` first stands.
pub(super) fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_in_pieces_is_read_once_it_is_whole() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello";
        for cut in 0..41 {
            assert!(Head::parse(&answer[..cut]).unwrap().is_none(), "{cut}");
        }
        let head = Head::parse(answer).unwrap().unwrap();
        assert_eq!((head.status, head.end), (201, 43));
        assert!(matches!(head.body, Body::Length(5)));
    }

    #[test]
    fn chunks_end_with_the_empty_one_wherever_they_are_cut() {
        let body = b"5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n";
        let mut at = 0;
        for cut in 0..body.len() {
            assert!(!skip_chunks(&body[..cut], &mut at).unwrap(), "{cut}");
        }
        assert!(skip_chunks(body, &mut at).unwrap());
        assert_eq!(at, body.len());
        assert!(skip_chunks(b"zz\r\n", &mut 0).is_err());
    }
}

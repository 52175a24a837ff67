//! One request at a time, on a connection of its own, within a bounded time.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(2);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// A request.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// For whom.
    pub tenant: &'a str,
    /// With which key; none is without.
    pub key: Option<&'a str>,
    /// Under which key it is made once, however often it is sent; none is without.
    pub idempotency_key: Option<&'a str>,
    /// The body.
    pub body: Option<&'a Value>,
    /// How long the answer may take.
    pub patience: Duration,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body, if it is JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// Sends a request; none is no answer, for whatever reason, so that nobody knows whether it took effect.
#[must_use]
pub fn send(address: SocketAddr, request: &Request<'_>) -> Option<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, CONNECT).ok()?;
    stream.set_read_timeout(Some(request.patience)).ok()?;
    stream.set_write_timeout(Some(request.patience)).ok()?;
    let body = request.body.map(ToString::to_string).unwrap_or_default();
    let Request { method, path, tenant, .. } = request;
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    text.push_str(&format!("tidewheel-tenant: {tenant}\r\ncontent-length: {}\r\n", body.len()));
    if let Some(key) = request.key {
        text.push_str(&format!("authorization: Bearer {key}\r\n"));
    }
    if let Some(key) = request.idempotency_key {
        text.push_str(&format!("idempotency-key: {key}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(&body);
    stream.write_all(text.as_bytes()).ok()?;
    let mut raw = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut raw).ok()?;
    parse(&raw)
}

fn parse(raw: &[u8]) -> Option<Answer> {
    let end = raw.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(raw.get(..end)?).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let body = raw.get(end + 4..)?;
    let body = match header("content-length").and_then(|length| length.parse::<usize>().ok()) {
        // An answer that was cut short is none.
        Some(length) => body.get(..length)?.to_vec(),
        None => unchunk(body)?,
    };
    Some(Answer { status, head, body })
}

fn unchunk(mut raw: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = raw.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(raw.get(..line)?).ok()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(raw.get(line + 2..line + 2 + size)?);
        raw = raw.get(line + 4 + size..)?;
    }
}

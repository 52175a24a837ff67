//! What a connection gets for which there is no seat: an answer that says so, at once, and an end. Left in the
//! system's queue it would look like a server that hangs.

use std::io;
use std::time::Duration;

use axum::body::to_bytes;
use axum::response::IntoResponse;
use tidewheel_api::wire::fault::Code;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::handshake::Handshakes;
use super::problem::Problem;

/// Refusals being written at once; further connections wait in the system's queue until one is done.
pub(super) const REFUSALS_COUNT_MAX: usize = 64;
/// How long one refusal may take.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(1);
/// A refusal is a few hundred bytes.
const REFUSAL_BYTES_MAX: usize = 4_096;

/// Answers without having read the request, then lets go.
pub(super) async fn refuse(stream: TcpStream, handshakes: Option<&Handshakes>) {
    let refusal = async {
        let Some(handshakes) = handshakes else { return say(stream).await };
        match handshakes.shake(stream).await {
            Some(stream) => say(stream).await,
            None => Ok(()),
        }
    };
    if let Ok(Err(fault)) = tokio::time::timeout(REFUSAL_TIME_MAX, refusal).await {
        tracing::debug!(error = %fault, "a connection was gone before it was refused");
    }
}

async fn say(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    stream.write_all(&answer().await).await?;
    stream.shutdown().await?;
    // Closing on a request that was not read would throw away the answer on its way.
    let mut unread = [0; 1_024];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

async fn answer() -> Vec<u8> {
    let detail = "the server has as many connections as it takes; close idle ones, or try again";
    let (head, body) = Problem::new(Code::Overloaded, detail).into_response().into_parts();
    let body = to_bytes(body, REFUSAL_BYTES_MAX).await.unwrap_or_default();
    let mut bytes = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
    for (name, value) in &head.headers {
        bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    bytes.extend(format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len()).into_bytes());
    bytes.extend(body);
    bytes
}

//! What jobs are pushed to: notes every attempt that reaches it, and refuses some.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidewheel_core::time::Timestamp;

use crate::dice::fate;
use crate::history::{Event, History};

/// Of a hundred first attempts, so many are refused while it is not gentle.
const REFUSED_PERCENT: u64 = 8;
/// Bytes of a body.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The target. It listens as long as the process lives.
pub(crate) struct Target {
    pub(crate) port: u16,
}

impl Target {
    pub(crate) fn start(
        host: &str,
        history: &Arc<History>,
        is_gentle: &Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((host, 0))?;
        let port = listener.local_addr()?.port();
        let (history, is_gentle) = (Arc::clone(history), Arc::clone(is_gentle));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (history, is_gentle) = (Arc::clone(&history), Arc::clone(&is_gentle));
                std::thread::spawn(move || serve(stream, &history, &is_gentle));
            }
        });
        Ok(Self { port })
    }
}

fn serve(stream: TcpStream, history: &History, is_gentle: &AtomicBool) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let headers = read(&mut reader)?;
        let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
        let attempt = header("tidewheel-attempt").parse().ok()?;
        let id = header("tidewheel-job-id");
        let is_refused =
            attempt == 1 && !is_gentle.load(Ordering::SeqCst) && fate(&id) % 100 < REFUSED_PERCENT;
        history.note(Event::Started {
            tenant: String::new(),
            id,
            run_key: header("idempotency-key"),
            attempt,
            token: header("tidewheel-fencing-token").parse().ok()?,
            fire_at_ms: header("tidewheel-fire-at").parse::<Timestamp>().ok().map(Timestamp::as_ms),
            at: "target".to_owned(),
        });
        let status = if is_refused { "503 no" } else { "200 yes" };
        write!(writer, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

/// The headers of one request.
fn read(reader: &mut BufReader<TcpStream>) -> Option<BTreeMap<String, String>> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length: usize = headers.get("content-length").map_or(Some(0), |value| value.parse().ok())?;
    let mut body = vec![0; length.min(BODY_BYTES_MAX)];
    reader.read_exact(&mut body).ok()?;
    Some(headers)
}

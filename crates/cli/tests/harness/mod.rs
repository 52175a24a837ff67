//! A real server in its own process, a real HTTP target, and a plain HTTP client, for tests from outside.
#![allow(dead_code, reason = "each program uses its own part")]
#![allow(
    clippy::disallowed_methods,
    reason = "a process of its own can only be asked again and again, in real time"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod issuer;
pub(crate) mod postgres;
pub(crate) mod pulse;
pub(crate) mod target;
pub(crate) mod wire;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::Value;

/// The binary under test.
pub(crate) const TIDEWHEEL: &str = env!("CARGO_BIN_EXE_tidewheel");
/// How long anything may take before the test gives up. Generous: the machine may be busy, and stand still now and then.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// What a server says that ended because its database was too slow for it. A supervisor would start it again.
const DATABASE_WAS_SLOW: [&str; 4] =
    ["did not answer within", "does not answer", "to the database are busy", "the database took too long"];

/// A server process on a free port.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    log: Receiver<String>,
}

impl Server {
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    pub(crate) fn start_with(data: &Path, flags: &[&str]) -> Self {
        Self::start_by(data, flags, None)
    }

    /// With `clock`, a file, its wall clock is ahead by what the file says (`-3600`), by this library.
    pub(crate) fn start_by(data: &Path, flags: &[&str], clock: Option<(&Path, &Path)>) -> Self {
        let started = std::time::Instant::now();
        loop {
            let said = match Self::try_start(data, flags, clock) {
                Ok(server) => return server,
                Err(said) => said,
            };
            let is_passing =
                said.last().is_some_and(|line| DATABASE_WAS_SLOW.iter().any(|part| line.contains(*part)));
            assert!(is_passing && started.elapsed() < PATIENCE, "the server did not start: {said:#?}");
        }
    }

    /// What it said, if it does not come up.
    fn try_start(data: &Path, flags: &[&str], clock: Option<(&Path, &Path)>) -> Result<Self, Vec<String>> {
        let mut command = Command::new(TIDEWHEEL);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some((library, file)) = clock {
            tidewheel_nemesis::faketime::go_by(&mut command, library, file);
        }
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (lines, log) = mpsc::channel();
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        let mut said = Vec::new();
        let address = loop {
            let Ok(line) = log.recv_timeout(PATIENCE) else {
                // Only this test's own child; an error means it is gone already.
                child.kill().ok();
                child.wait().ok();
                return Err(said);
            };
            if let Some((_, rest)) = line.split_once("listening on http") {
                let rest = rest.trim_start_matches("s://").trim_start_matches("://");
                break rest.split([' ', ',']).next().unwrap().parse().unwrap();
            }
            said.push(line);
        };
        Ok(Self { child, address, log })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, then the exit code and what was logged.
    pub(crate) fn terminate(mut self) -> (Option<i32>, Vec<String>) {
        signal(self.child.id(), "TERM");
        let status = self.child.wait().unwrap();
        (status.code(), self.log.iter().collect())
    }

    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> Answer {
        request(self.address, method, path, &[], body.as_bytes()).unwrap()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, &body.to_string())
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = until_served(path, || self.request("GET", path, ""));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    /// Submits a job and returns its id.
    pub(crate) fn submit(&self, body: &Value) -> String {
        let answer = self.post("/v1/jobs", body);
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// Asks for a job until it is in `state`.
    pub(crate) fn until_state(&self, id: &str, state: &str) -> Value {
        until(&format!("{id} to be {state}"), || {
            let job = self.get(&format!("/v1/jobs/{id}"));
            (job["state"] == state).then_some(job)
        })
    }

    /// Runs the command line against this server.
    pub(crate) fn cli(&self, args: &[&str]) -> std::process::Output {
        Command::new(TIDEWHEEL)
            .args(args)
            .env("TIDEWHEEL_URL", self.url())
            .env_remove("TIDEWHEEL_KEY")
            .output()
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only this test's own child; an error means it is gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

/// Asks again until there is an answer. Polling from outside is all a user could do, too.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = std::time::Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "gave up waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asks again while the database is too slow for the server, as a careful client does. What is answered with 503 may
/// have taken effect.
pub(crate) fn until_served(what: &str, mut ask: impl FnMut() -> Answer) -> Answer {
    until(what, || Some(ask()).filter(|answer| answer.status != 503))
}

/// An HTTP answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// One request on a connection of its own.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    // In one go: a server that answers without having read a body that comes late resets the connection when it closes it, and what
    // was under way of the answer is lost. One that refuses early may close before it has read everything: its answer still counts.
    let sent = stream.write_all(&[head.as_bytes(), body].concat());
    let mut raw = Vec::new();
    let read = stream.read_to_end(&mut raw);
    if raw.is_empty() {
        sent?;
        read?;
    }
    parse(&raw).ok_or_else(|| std::io::Error::other("no answer"))
}

pub(crate) fn parse(raw: &[u8]) -> Option<Answer> {
    let end = raw.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&raw[..end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let mut body = raw[end + 4..].to_vec();
    if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        body = unchunk(&body);
    }
    Some(Answer { status, head, body })
}

fn unchunk(mut raw: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(line) = raw.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&raw[..line]).unwrap().trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        body.extend_from_slice(&raw[line + 2..line + 2 + size]);
        raw = &raw[line + 4 + size..];
    }
    body
}

/// The instant now, as the API writes it, moved by `ms`.
pub(crate) fn instant(ms: i64) -> String {
    tidewheel_core::time::Timestamp::from_ms(now_ms() + ms).to_string()
}

pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

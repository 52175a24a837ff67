//! Tidewheel under the single submissions that `bench/peers/run` gives its peers: `tidewheel serve`
//! on a database of its own, and callers that submit one job after another over HTTP, each on a plain
//! socket that stays open. Prints one line of JSON. Batches and the drain are those of Tidewheel's
//! own benchmark.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::json;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

const USAGE: &str =
    "--program PATH --url postgres://… [--payload 200] [--callers 1,20,50] [--single-seconds 5]";
const PATIENCE: Duration = Duration::from_secs(120);
/// An answer to a submission is far shorter.
const ANSWER_BYTES_MAX: usize = 64 << 10;

struct Flags {
    program: PathBuf,
    url: String,
    payload: usize,
    callers: Vec<u64>,
    single_time: Duration,
}

impl Flags {
    fn read() -> anyhow::Result<Self> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let mut given = BTreeMap::new();
        for pair in words.chunks(2) {
            match pair {
                [name, value] if name.starts_with("--") => given.insert(name.as_str(), value.as_str()),
                _ => bail!("usage: {USAGE}"),
            };
        }
        let callers = given.remove("--callers").unwrap_or("1,20,50").split(',');
        let flags = Self {
            callers: callers.map(str::parse).collect::<Result<_, _>>().context("--callers")?,
            payload: given.remove("--payload").unwrap_or("200").parse().context("--payload")?,
            single_time: Duration::from_secs(
                given.remove("--single-seconds").unwrap_or("5").parse().context("--single-seconds")?,
            ),
            program: given.remove("--program").context("--program is missing")?.into(),
            url: given.remove("--url").context("--url is missing")?.to_owned(),
        };
        match given.keys().next() {
            Some(unknown) => bail!("{unknown} is unknown; usage: {USAGE}"),
            None => Ok(flags),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let flags = Arc::new(Flags::read()?);
    let server = PgPoolOptions::new().max_connections(1).connect(&flags.url).await;
    let server = server.context("connecting to PostgreSQL")?;
    let name = format!("peer_tidewheel_{}", std::process::id());
    let mut result = BTreeMap::from([("peer".to_owned(), json!("tidewheel"))]);
    for &callers in &flags.callers {
        run(&server, format!("CREATE DATABASE {name}")).await?;
        let measured = unless_stopped(measure(&flags, &name, callers)).await;
        run(&server, format!("DROP DATABASE {name} WITH (FORCE)")).await?;
        let (version, rate) = measured?;
        result.insert("version".to_owned(), json!(version));
        result.insert(format!("single_{callers}_per_s"), json!(rate.round()));
    }
    println!("{}", serde_json::to_string(&result)?);
    Ok(())
}

/// Ends work early when the program is asked to end, so that its database is still dropped.
async fn unless_stopped<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut stop = signal(SignalKind::terminate())?;
    tokio::select! {
        done = work => done,
        _ = stop.recv() => bail!("interrupted"),
    }
}

async fn run(server: &PgPool, statement: String) -> anyhow::Result<()> {
    sqlx::query(AssertSqlSafe(statement)).execute(server).await?;
    Ok(())
}

/// The server's version, and how many jobs a second it stores.
async fn measure(flags: &Arc<Flags>, database: &str, callers: u64) -> anyhow::Result<(String, f64)> {
    let mut server = Server::start(flags, database).await?;
    let rate = single(flags, &server.address, callers).await;
    server.process.kill().await?;
    Ok((server.version, rate?))
}

/// `tidewheel serve`, which ends with this.
struct Server {
    version: String,
    address: String,
    process: Child,
}

impl Server {
    async fn start(flags: &Flags, database: &str) -> anyhow::Result<Self> {
        let (base, _) = flags.url.rsplit_once('/').context("a URL without a database")?;
        let mut process = Command::new(&flags.program)
            .args(["serve", "--listen", "127.0.0.1:0", "--store", &format!("{base}/{database}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", flags.program.display()))?;
        let mut lines = BufReader::new(process.stderr.take().context("its output")?).lines();
        let mut said = String::new();
        let (version, address) = loop {
            let line = tokio::time::timeout(PATIENCE, lines.next_line());
            let Some(line) = line.await.context("tidewheel does not start")?? else {
                bail!("tidewheel ended before it listened: {said}");
            };
            if let Some((name, address)) = line.split_once(" listening on http://") {
                let version = name.trim_start_matches("tidewheel ").to_owned();
                break (version, address.trim().to_owned());
            }
            said.push_str(&line);
        };
        // What it has to say later is passed on, so that it never waits for a reader.
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if line.contains("ERROR") {
                    eprintln!("{line}");
                }
            }
        });
        let server = Self { version, address, process };
        let start = Instant::now();
        let mut connection = Connection::open(&server.address).await?;
        while connection.call(&get("/readyz", &server.address)).await?.0 != 200 {
            ensure!(start.elapsed() < PATIENCE, "tidewheel does not get ready");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(server)
    }
}

/// How many jobs a second are stored that many callers submit one by one. They are due at once, and
/// nobody takes them.
async fn single(flags: &Arc<Flags>, address: &str, callers: u64) -> anyhow::Result<f64> {
    let mut connections = Vec::new();
    for _ in 0..callers {
        connections.push(Connection::open(address).await?);
    }
    let seeds = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut under_way: JoinSet<anyhow::Result<u64>> = JoinSet::new();
    for mut connection in connections {
        let (flags, seeds, address) = (Arc::clone(flags), Arc::clone(&seeds), address.to_owned());
        under_way.spawn(async move {
            let mut stored = 0;
            while start.elapsed() < flags.single_time {
                let number = seeds.fetch_add(1, Ordering::Relaxed);
                let (status, body) = connection.call(&submission(number, flags.payload, &address)).await?;
                ensure!(status == 201, "a submission is answered with {status}: {body}");
                stored += 1;
            }
            Ok(stored)
        });
    }
    let mut stored = 0;
    while let Some(caller) = under_way.join_next().await {
        stored += caller??;
    }
    let took = start.elapsed();
    let (_, counted) = Connection::open(address).await?.call(&get("/v1/jobs/count", address)).await?;
    let counted: serde_json::Value = serde_json::from_str(&counted)?;
    let counted = counted["count"].as_u64().with_context(|| format!("no count: {counted}"))?;
    ensure!(counted == stored, "{stored} jobs were submitted, the database has {counted}");
    Ok(stored as f64 / took.as_secs_f64())
}

fn get(path: &str, host: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").into_bytes()
}

fn submission(number: u64, payload: usize, host: &str) -> Vec<u8> {
    let data = data(number, payload);
    let body = format!(r#"{{"type":"nothing","queue":"nothing","payload":{{"data":"{data}"}}}}"#);
    let length = body.len();
    let head = format!("POST /v1/jobs HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json");
    format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// Digits that do not compress, so many that the whole payload has the size.
fn data(number: u64, payload: usize) -> String {
    let wanted = payload.saturating_sub(r#"{"data":""}"#.len());
    let mut text = String::with_capacity(wanted + 16);
    let mut seed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while text.len() < wanted {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        text.push_str(&format!("{seed:016x}"));
    }
    text.truncate(wanted);
    text
}

/// HTTP/1.1 on a socket that stays open, no more than is needed: a client library would cost as much
/// as the server.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Sends a request; gives the status and the body of its answer.
    async fn call(&mut self, request: &[u8]) -> anyhow::Result<(u16, String)> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await?;
            ensure!(read > 0, "the server closed the connection before it answered");
            ensure!(self.buffer.len() < ANSWER_BYTES_MAX, "an answer of over {ANSWER_BYTES_MAX} bytes");
            let text = std::str::from_utf8(&self.buffer)?;
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            if body.len() >= content_length(head)? {
                let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
                return Ok((status.context("an answer without a status")?, body.to_owned()));
            }
        }
    }
}

fn content_length(head: &str) -> anyhow::Result<usize> {
    for (name, value) in head.lines().filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            return value.trim().parse().context("the length of an answer");
        }
    }
    bail!("an answer without a length: {head}")
}

//! A real HTTP target that notes what it received.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::{now_ms, until};

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Hit {
    pub(crate) at_ms: i64,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Hit {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// What to answer: a whole response, head and body.
pub(crate) type Script = dyn Fn(&Hit) -> String + Send + Sync;

/// A target on a free port.
pub(crate) struct Target {
    port: u16,
    hits: Arc<Mutex<Vec<Hit>>>,
}

impl Target {
    /// Answers 200 to everything.
    pub(crate) fn ok() -> Self {
        Self::answering(|_| answer(200, "", "fine"))
    }

    pub(crate) fn answering(script: impl Fn(&Hit) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let hits: Arc<Mutex<Vec<Hit>>> = Arc::default();
        let script: Arc<Script> = Arc::new(script);
        let noted = Arc::clone(&hits);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (noted, script) = (Arc::clone(&noted), Arc::clone(&script));
                std::thread::spawn(move || serve(stream, &noted, &*script));
            }
        });
        Self { port, hits }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn hits(&self) -> Vec<Hit> {
        self.hits.lock().unwrap().clone()
    }

    /// The jobs that came.
    pub(crate) fn jobs(&self) -> BTreeSet<String> {
        self.hits().iter().map(|hit| hit.header("tidewheel-job-id").to_owned()).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.hits.lock().unwrap().len()
    }

    /// Waits for `count` requests.
    pub(crate) fn until_hits(&self, count: usize) -> Vec<Hit> {
        until(&format!("{count} requests at the target"), || (self.count() >= count).then(|| self.hits()))
    }
}

/// A whole response.
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

fn serve(stream: TcpStream, noted: &Mutex<Vec<Hit>>, script: &Script) {
    stream.set_nodelay(true).ok();
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(hit) = read(&mut reader) {
        noted.lock().unwrap().push(hit.clone());
        if writer.write_all(script(&hit).as_bytes()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Hit> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let at_ms = now_ms();
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(0, |value| value.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Hit { at_ms, method, path, headers, body })
}

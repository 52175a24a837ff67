//! A server of a few lines: answers each request as a function says, one per connection, and remembers it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Method and path.
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    /// The whole body.
    pub(crate) body: String,
}

impl Request {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What is answered.
pub(crate) struct Answer(String);

impl Answer {
    /// A status and a body.
    pub(crate) fn new(status: u16, body: &str) -> Self {
        let length = body.len();
        Self(format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"))
    }

    /// The same with one more header.
    pub(crate) fn header(self, header: &str) -> Self {
        Self(self.0.replacen("\r\n", &format!("\r\n{header}\r\n"), 1))
    }

    /// Nothing: the connection ends.
    pub(crate) fn hang_up() -> Self {
        Self(String::new())
    }
}

/// The server.
pub(crate) struct Stub {
    /// Where it listens.
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Stub {
    /// Starts one that lives as long as the test's process.
    pub(crate) fn start(answer: impl Fn(&Request) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                let Some(request) = read(&mut socket) else { continue };
                let answer = answer(&request);
                log.lock().unwrap().push(request);
                socket.write_all(answer.0.as_bytes()).unwrap();
            }
        });
        Self { url, requests }
    }

    /// What came so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn read(socket: &mut TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(socket);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let mut request = Request { line, headers, body: String::new() };
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    request.body = String::from_utf8(body).unwrap();
    Some(request)
}

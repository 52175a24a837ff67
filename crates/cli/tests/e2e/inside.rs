//! No way inside: a server in a network of its own, where every address that must not be reached has somebody listening,
//! a resolver lies, and a target redirects. Nobody inside may hear a thing.
//!
//! The test runs itself again inside a network namespace, without a route out. Where the system makes none, it says so and
//! proves nothing.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Answer, Server, request, until};

const INSIDE: &[&str] = &[
    "127.0.0.1",
    "127.9.9.9",
    "10.1.2.3",
    "172.16.1.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "198.18.0.1",
    "::1",
    "fd00::1",
    "fec0::1",
];
/// Stands for the public internet; it is nobody's but this namespace's.
const OUTSIDE: &str = "93.184.215.14";
const PORT: u16 = 8_080;
const ADMIN_KEY: &str = "twk_an-admins-key-for-a-namespace-of-its-own";
const IN_NAMESPACE: &str = "TIDEWHEEL_TEST_IN_NAMESPACE";

#[test]
fn nobody_inside_is_reached_by_literal_name_redirect_or_rebinding() {
    if std::env::var_os(IN_NAMESPACE).is_some() {
        return in_the_namespace();
    }
    let unshare = ["--map-root-user", "--net", "--mount"];
    let possible = Command::new("unshare").args(unshare).args(["ip", "link", "set", "lo", "up"]).output();
    if !possible.as_ref().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED, NOTHING IS PROVED: no network namespace can be made here: {possible:?}");
        return;
    }
    let own_name = "inside::nobody_inside_is_reached_by_literal_name_redirect_or_rebinding";
    let output = Command::new("unshare")
        .args(unshare)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", own_name, "--nocapture", "--test-threads", "1"])
        .env(IN_NAMESPACE, "1")
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn in_the_namespace() {
    let data = TempDir::new().unwrap();
    furnish(&data);
    let decoys = Decoys::listen();
    resolve();
    redirect();
    let key_file = data.path().join("admin.key");
    std::fs::write(&key_file, ADMIN_KEY).unwrap();
    let store = data.path().join("store");
    // Taken while the server was open to its own machine, and so to loopback.
    let open = Server::start(&store);
    let before = open.submit(&json!({"type": "t", "delay": "1h", "target_url": "http://127.0.0.1:8080/"}));
    open.kill();
    let server = Server::start_with(&store, &["--admin-key-file", key_file.to_str().unwrap()]);
    let run = call(&server, "POST", &format!("/v1/jobs/{before}/run"), &json!({}));
    assert_eq!(run.status, 200, "{}", run.text());
    literals_are_refused_when_they_are_submitted(&server);
    let names = [
        "inside.test",
        "mixed.test",
        "rebind.test",
        "late.test",
        "mapped.test",
        "redirect.test",
        "inside.test.",
    ];
    let mut jobs = vec![before];
    for _ in 0..5 {
        for name in names {
            let body = json!({"type": "t", "target_url": format!("http://{name}:{PORT}/"), "max_attempts": 2,
                "retry": {"policy": "fixed", "base": "10ms"}});
            let answer = call(&server, "POST", "/v1/jobs", &body);
            assert_eq!(answer.status, 201, "{name}: {}", answer.text());
            jobs.push(answer.json()["id"].as_str().unwrap().to_owned());
        }
    }
    for id in &jobs {
        until(&format!("{id} to end"), || {
            let job = call(&server, "GET", &format!("/v1/jobs/{id}"), &Value::Null).json();
            matches!(job["state"].as_str(), Some("dead" | "succeeded")).then_some(())
        });
    }
    assert_eq!(decoys.visits(), 0, "somebody inside was reached");
    let first = call(&server, "GET", &format!("/v1/jobs/{}", jobs[0]), &Value::Null).json();
    assert_eq!(first["state"], "dead", "what was taken before is judged again: {first}");
    let reached = call(&server, "GET", "/v1/jobs/count?state=succeeded", &Value::Null).json();
    assert!(reached["count"].as_u64().unwrap() > 0, "the public one is reached, so deliveries do happen");
    drop(server);
    decoys.are_awake();
    // Had the range been opened, the same target would have been reached.
    let flags = ["--admin-key-file", key_file.to_str().unwrap(), "--allow-target", "10.0.0.0/8"];
    let server = Server::start_with(&store, &flags);
    let visits = decoys.visits();
    // More than one attempt: on a busy machine the resolver may be late.
    let body = json!({"type": "t", "target_url": format!("http://inside.test:{PORT}/"), "max_attempts": 20,
        "retry": {"policy": "fixed", "base": "100ms"}});
    assert_eq!(call(&server, "POST", "/v1/jobs", &body).status, 201);
    until("the opened range to be reached", || (decoys.visits() > visits).then_some(()));
}

fn call(server: &Server, method: &str, path: &str, body: &Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let key = format!("Bearer {ADMIN_KEY}");
    request(server.address, method, path, &[("authorization", &key)], body.as_bytes()).unwrap()
}

fn literals_are_refused_when_they_are_submitted(server: &Server) {
    let mut hosts: Vec<String> = INSIDE
        .iter()
        .map(|address| if address.contains(':') { format!("[{address}]") } else { (*address).to_owned() })
        .collect();
    let spellings = [
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "0.0.0.0",
        "0",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0177.1",
        "017700000001",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::1]",
        "[2002:7f00:1::]",
        "[2001::1]",
        "[fe80::1]",
        "[ff02::1]",
        "224.0.0.1",
        "255.255.255.255",
        "user@10.1.2.3",
        "127。0。0。1",
        "①②⑦.0.0.1",
    ];
    hosts.extend(spellings.map(str::to_owned));
    for host in hosts {
        for field in ["job", "schedule"] {
            let url = format!("http://{host}:{PORT}/");
            let (path, body) = match field {
                "job" => ("/v1/jobs", json!({"type": "t", "target_url": url})),
                _ => ("/v1/schedules", json!({"type": "t", "every": "1h", "target_url": url})),
            };
            let answer = call(server, "POST", path, &body);
            let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
            assert!(answer.status == 422 && code == "invalid_target", "{url}: {}", answer.text());
        }
    }
}

/// Gives the namespace its addresses and its resolver.
fn furnish(data: &TempDir) {
    let ip = |args: &[&str]| {
        let output = Command::new("ip").args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    ip(&["link", "set", "lo", "up"]);
    for address in INSIDE.iter().chain([&OUTSIDE]) {
        if !address.starts_with("127.") && *address != "::1" {
            let length = if address.contains(':') { 128 } else { 32 };
            ip(&["addr", "add", &format!("{address}/{length}"), "dev", "lo"]);
        }
    }
    let settings = data.path().join("resolv.conf");
    std::fs::write(&settings, "nameserver 127.0.0.1\noptions timeout:1 attempts:2\n").unwrap();
    let mounted =
        Command::new("mount").arg("--bind").arg(&settings).arg("/etc/resolv.conf").status().unwrap();
    assert!(mounted.success());
}

/// Somebody at every address inside.
struct Decoys(Arc<AtomicUsize>);

impl Decoys {
    fn listen() -> Self {
        let visits = Arc::new(AtomicUsize::new(0));
        for address in INSIDE {
            // An address may take a moment to be the machine's own.
            let listener = until("a decoy to listen", || TcpListener::bind(decoy(address)).ok());
            let visits = Arc::clone(&visits);
            std::thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    visits.fetch_add(1, Ordering::SeqCst);
                    drop(stream);
                }
            });
        }
        Self(visits)
    }

    fn visits(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// A decoy that nobody could have reached proves nothing.
    fn are_awake(&self) {
        for address in INSIDE {
            TcpStream::connect(decoy(address)).unwrap();
        }
        until("the decoys to be visited", || (self.visits() == INSIDE.len()).then_some(()));
    }
}

fn decoy(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), PORT)
}

/// The public target: leads whoever asks for it by the name `redirect.test` inside, and is fine otherwise.
fn redirect() {
    let listener = TcpListener::bind(decoy(OUTSIDE)).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut seen = [0; 8_192];
            let count = stream.read(&mut seen).unwrap_or(0);
            let leads_inside = String::from_utf8_lossy(&seen[..count]).contains("redirect.test");
            let answer: &[u8] = if leads_inside {
                b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254:8080/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            } else {
                b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            };
            stream.write_all(answer).ok();
        }
    });
}

/// A resolver that lies: what it says of a name depends on how often it was asked.
fn resolve() {
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    std::thread::spawn(move || {
        let mut asked = std::collections::BTreeMap::<String, usize>::new();
        let mut query = [0; 512];
        while let Ok((count, from)) = socket.recv_from(&mut query) {
            let query = &query[..count];
            let Some((name, kind, end)) = question(query) else { continue };
            let turn = asked.entry(format!("{name} {kind}")).or_default();
            *turn += 1;
            let addresses: &[&str] = match (name.as_str(), kind) {
                ("inside.test", 1) => &["10.1.2.3"],
                ("mixed.test", 1) => &["10.1.2.3", OUTSIDE, "169.254.169.254"],
                ("rebind.test", 1) if *turn % 2 == 1 => &[OUTSIDE],
                ("rebind.test", 1) => &["127.0.0.1"],
                ("late.test", 1) if *turn > 1 => &["192.168.1.1"],
                ("redirect.test", 1) => &[OUTSIDE],
                ("inside.test", 28) => &["fd00::1"],
                ("mapped.test", 28) => &["::ffff:127.0.0.1", "::1"],
                _ => &[],
            };
            let nothing = addresses.is_empty() && name == "late.test";
            socket.send_to(&answer(&query[..end], addresses, nothing), from).ok();
        }
    });
}

/// Name and type of a question, and where it ends.
fn question(query: &[u8]) -> Option<(String, u16, usize)> {
    let (mut name, mut at) = (String::new(), 12);
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(std::str::from_utf8(query.get(at..at + length)?).ok()?);
        at += length;
    }
    Some((name.to_ascii_lowercase(), u16::from_be_bytes([*query.get(at)?, *query.get(at + 1)?]), at + 4))
}

fn answer(question: &[u8], addresses: &[&str], no_such_name: bool) -> Vec<u8> {
    let mut bytes = question.to_vec();
    bytes[2] = 0x81;
    bytes[3] = if no_such_name { 0x83 } else { 0x80 };
    bytes[6..12].copy_from_slice(&[0, u8::try_from(addresses.len()).unwrap(), 0, 0, 0, 0]);
    for address in addresses {
        let data = match address.parse::<IpAddr>().unwrap() {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let kind = if data.len() == 4 { 1 } else { 28 };
        // The name of the question, the type, the internet, no time to live.
        bytes.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 0, 0, u8::try_from(data.len()).unwrap()]);
        bytes.extend(data);
    }
    bytes
}

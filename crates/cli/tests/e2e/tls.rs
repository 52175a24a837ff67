//! TLS from outside: a real server, real certificates, and clients of all kinds.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness;
use crate::harness::certificates::{Authority, write};
use crate::harness::{Answer, PATIENCE, Server, TIDEWHEEL, parse, signal, until};

const YEAR: i32 = 2090;
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The kind of an HTTP/2 frame that holds settings, which begin every connection.
const H2_SETTINGS: u8 = 4;

/// What a machine that stands still may spoil is tried so often.
const ROUNDS: usize = 5;
const LOOKS: usize = 50;

struct Secret {
    folder: TempDir,
    authority: Authority,
    files: [PathBuf; 2],
    server: Server,
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Secret {
    fn start(flags: impl FnOnce(&Path, &Authority) -> Vec<String>) -> Self {
        let folder = TempDir::new().unwrap();
        let authority = Authority::new(folder.path(), "authority");
        let files = authority.files("server", YEAR);
        let more = flags(folder.path(), &authority);
        let mut all =
            vec!["--tls-cert", text(&files[0]), "--tls-key", text(&files[1]), "--log-level", "debug"];
        all.extend(more.iter().map(String::as_str));
        let server = Server::start_with(&folder.path().join("store"), &all);
        Self { folder, authority, files, server }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.server.address.port())
    }

    fn connect(&self, trusted: &Path, shown: Option<&[PathBuf; 2]>, protocol: &[u8]) -> Stream {
        connect(&self.server, trusted, shown, protocol)
    }

    fn get(&self, path: &str) -> Answer {
        ask(&mut self.connect(&self.authority.file, None, b"http/1.1"), path).unwrap()
    }

    fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").text();
        let line =
            page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn cli(&self, args: &[&str]) -> Output {
        cli(&self.url(), args)
    }
}

fn cli(url: &str, args: &[&str]) -> Output {
    let mut command = Command::new(TIDEWHEEL);
    command.args(args).env("TIDEWHEEL_URL", url).env_remove("TIDEWHEEL_KEY");
    command.output().unwrap()
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn connect(server: &Server, trusted: &Path, shown: Option<&[PathBuf; 2]>, protocol: &[u8]) -> Stream {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(trusted).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some([certificate, key]) => {
            let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap).collect();
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let tcp = TcpStream::connect(server.address).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), tcp)
}

fn ask(stream: &mut Stream, path: &str) -> std::io::Result<Answer> {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut raw = Vec::new();
    let read = stream.read_to_end(&mut raw);
    parse(&raw).ok_or_else(|| read.err().unwrap_or_else(|| std::io::Error::other("no answer")))
}

/// One request that leaves the connection open, for the answer `/healthz` gives.
fn ask_and_stay(stream: &mut Stream) {
    write!(stream, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut seen = Vec::new();
    while !seen.windows(4).any(|window| window == b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "closed after {}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
    let answer = parse(&seen).unwrap();
    assert_eq!(answer.status, 200);
    let length: usize = answer.header("content-length").unwrap().parse().unwrap();
    stream.read_exact(&mut vec![0; length]).unwrap();
}

fn serial(stream: &Stream) -> Vec<u8> {
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn both_protocols_the_command_line_and_a_worker_work_over_tls_and_nothing_works_without() {
    let secret = Secret::start(|_, _| Vec::new());
    let mut stream = secret.connect(&secret.authority.file, None, b"http/1.1");
    assert_eq!(ask(&mut stream, "/healthz").unwrap().status, 200);
    assert_eq!(stream.conn.alpn_protocol(), Some(b"http/1.1".as_slice()));

    let mut stream = secret.connect(&secret.authority.file, None, b"h2");
    stream.write_all(H2_PREFACE).unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!((frame[3], stream.conn.alpn_protocol()), (H2_SETTINGS, Some(b"h2".as_slice())));

    let plain = harness::request(secret.server.address, "GET", "/healthz", &[], b"");
    assert!(plain.is_err(), "plain HTTP is not answered");

    let ca = ["--ca-file", text(&secret.authority.file)];
    let submitted = secret.cli(&[&["job", "submit", "ping", "--queue", "q", "-o", "json"], &ca[..]].concat());
    assert!(submitted.status.success(), "{submitted:?}");
    let id = serde_json::from_slice::<Value>(&submitted.stdout).unwrap()["id"].as_str().unwrap().to_owned();
    let mut worker = Command::new(TIDEWHEEL)
        .args(["worker", "run", "--queue", "q"])
        .args(ca)
        .args(["--", "true"])
        .env("TIDEWHEEL_URL", secret.url())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the job to be done by a worker on a stream", || {
        let job: Value = secret.get(&format!("/v1/jobs/{id}")).json();
        (job["state"] == "succeeded").then_some(())
    });
    signal(worker.id(), "TERM");
    assert!(worker.wait().unwrap().success());

    let untrusted = secret.cli(&["job", "list"]);
    assert_eq!(untrusted.status.code(), Some(3), "an unknown authority is not trusted: {untrusted:?}");
    let other = Authority::new(secret.folder.path(), "other");
    let wrong = secret.cli(&["job", "list", "--ca-file", text(&other.file)]);
    assert_eq!(wrong.status.code(), Some(3), "{wrong:?}");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("UnknownIssuer"), "{wrong:?}");
    let refused = ask(&mut secret.connect(&other.file, None, b"http/1.1"), "/healthz");
    assert!(refused.is_err());
}

#[test]
fn a_new_certificate_is_taken_while_connections_live_and_a_bad_one_is_not() {
    let secret = Secret::start(|_, _| Vec::new());
    let expiry = "tidewheel_tls_certificate_expiry_timestamp_seconds ";
    let stale = "tidewheel_tls_certificate_stale ";
    let first_end = secret.metric(expiry);
    let mut old = secret.connect(&secret.authority.file, None, b"http/1.1");
    ask_and_stay(&mut old);
    let first = serial(&old);

    write(&secret.files, &secret.authority.pair(YEAR + 1));
    signal(secret.server.pid(), "HUP");
    let second = until("the new certificate", || {
        let mut stream = secret.connect(&secret.authority.file, None, b"http/1.1");
        ask_and_stay(&mut stream);
        Some(serial(&stream)).filter(|serial| *serial != first)
    });
    ask_and_stay(&mut old);
    assert!(secret.metric(expiry) > first_end);
    assert_eq!(secret.metric("tidewheel_tls_reloads_total{outcome=\"taken\"}"), 1.0);

    // A key that is another certificate's, text that is none, and a certificate that is over.
    std::fs::write(&secret.files[1], secret.authority.pair(YEAR).key).unwrap();
    signal(secret.server.pid(), "HUP");
    until("the wrong key to be noticed", || (secret.metric(stale) == 1.0).then_some(()));
    std::fs::write(&secret.files[0], "no certificate").unwrap();
    signal(secret.server.pid(), "HUP");
    let refused = "tidewheel_tls_reloads_total{outcome=\"refused\"}";
    until("the text to be noticed", || (secret.metric(refused) >= 2.0).then_some(()));
    write(&secret.files, &secret.authority.pair(2020));
    signal(secret.server.pid(), "HUP");
    until("the end to be noticed", || (secret.metric(refused) >= 3.0).then_some(()));
    let mut stream = secret.connect(&secret.authority.file, None, b"http/1.1");
    ask_and_stay(&mut stream);
    assert_eq!(serial(&stream), second, "the last good one is in use");

    // Without a signal, the files are looked at now and then.
    write(&secret.files, &secret.authority.pair(YEAR + 2));
    until("the files to be looked at", || (secret.metric(stale) == 0.0).then_some(()));
    ask_and_stay(&mut old);
}

#[test]
fn clients_without_a_certificate_of_the_right_authority_are_refused() {
    let secret = Secret::start(|folder, _| {
        let clients = Authority::new(folder, "clients");
        clients.files("client", YEAR);
        vec!["--tls-client-ca".to_owned(), text(&clients.file).to_owned()]
    });
    let folder = secret.folder.path();
    let own = [folder.join("client.pem"), folder.join("client.key")];
    let strange = Authority::new(folder, "strangers").files("stranger", YEAR);
    let ask_with = |shown: Option<&[PathBuf; 2]>| {
        ask(&mut secret.connect(&secret.authority.file, shown, b"http/1.1"), "/healthz")
    };
    assert_eq!(ask_with(Some(&own)).unwrap().status, 200);
    assert!(ask_with(None).is_err(), "without a certificate");
    assert!(ask_with(Some(&strange)).is_err(), "with one of another authority");
    let ca = ["--ca-file", text(&secret.authority.file)];
    let listed = |more: &[&str]| secret.cli(&[&["job", "list"], &ca[..], more].concat()).status.code();
    assert_eq!(listed(&["--client-cert", text(&own[0]), "--client-key", text(&own[1])]), Some(0));
    assert_eq!(listed(&[]), Some(3));
    assert_eq!(listed(&["--client-cert", text(&strange[0]), "--client-key", text(&strange[1])]), Some(3));
}

#[test]
fn a_client_certificate_may_be_left_to_the_client() {
    let secret = Secret::start(|folder, _| {
        let clients = Authority::new(folder, "clients");
        let ca = text(&clients.file).to_owned();
        vec!["--tls-client-ca".to_owned(), ca, "--tls-client-optional".to_owned()]
    });
    assert_eq!(secret.get("/healthz").status, 200);
    let strange = Authority::new(secret.folder.path(), "strangers").files("stranger", YEAR);
    let mut stream = secret.connect(&secret.authority.file, Some(&strange), b"http/1.1");
    assert!(ask(&mut stream, "/healthz").is_err(), "a wrong one is refused all the same");
}

#[test]
fn handshakes_that_do_not_get_on_leave_room_for_others() {
    let secret = Secret::start(|_, _| Vec::new());
    // On a machine that stands still they may be over, as any that take too long are, before they are too many.
    let is_seen = (0..ROUNDS).any(|_| {
        // More than there is room for; the longest under way give way.
        let silent: Vec<_> = (0..1_100).map(|_| TcpStream::connect(secret.server.address).unwrap()).collect();
        let answered = ask(&mut secret.connect(&secret.authority.file, None, b"http/1.1"), "/healthz");
        let is_answered = answered.is_ok_and(|answer| answer.status == 200);
        // It is counted a moment later.
        let crowded_out = "tidewheel_tls_handshakes_total{outcome=\"crowded_out\"}";
        let is_counted = (0..LOOKS).any(|_| secret.metric(crowded_out) >= 76.0);
        drop(silent);
        is_answered && is_counted
    });
    assert!(is_seen, "the oldest did not give way, or others found no room");
}

#[test]
fn what_cannot_be_served_is_told_at_the_start() {
    let folder = TempDir::new().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let [certificate, _] = authority.files("server", YEAR);
    let [_, other_key] = authority.files("other", YEAR);
    let fails = |flags: &[&str], says: &str| {
        let data = folder.path().join("store");
        let output = Command::new(TIDEWHEEL)
            .args(["serve", "--listen", "127.0.0.1:0", "--data", text(&data)])
            .args(flags)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{flags:?}: {said}");
    };
    fails(&["--tls-cert", text(&certificate)], "it needs --tls-key");
    fails(&["--tls-client-ca", text(&certificate)], "it needs --tls-cert");
    fails(&["--tls-cert", text(&certificate), "--tls-key", text(&other_key)], "cannot be used with the key");
    fails(&["--tls-cert", "/nonexistent", "--tls-key", text(&other_key)], "cannot read /nonexistent");
}

/// The beginning of a handshake as a client of TLS 1.0 or 1.1 makes it: without extensions, which it did not need.
fn old_hello(minor: u8) -> Vec<u8> {
    let mut hello = vec![3, minor];
    hello.extend([7; 32]);
    hello.extend([0, 0, 10, 0xc0, 0x13, 0xc0, 0x14, 0, 0x2f, 0, 0x35, 0, 0x0a, 1, 0]);
    let length = u8::try_from(hello.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    record
}

#[test]
fn versions_of_tls_that_are_broken_are_refused() {
    let secret = Secret::start(|_, _| Vec::new());
    for minor in [0, 1, 2] {
        let mut tcp = TcpStream::connect(secret.server.address).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.write_all(&old_hello(minor)).unwrap();
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).ok();
        assert_ne!(answer.first(), Some(&22), "it went on with a handshake of version 3.{minor}: {answer:?}");
        assert_eq!(answer.first(), Some(&21), "an alert says so: {answer:?}");
    }
}

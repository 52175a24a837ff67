//! Pushes over TLS.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tidewheel_server::push::{PushConfig, PushReport, Pusher, TrustedRoots, Verdict};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::push::harness::{
    DEADLINE, PATIENCE, RETRY, Target, config, pusher, read_request, request, until_closed,
};

/// What a certificate is for, and when.
struct Identity {
    names: Vec<String>,
    expired: bool,
}

/// A TLS target with a certificate by an authority of its own, and the roots that trust this authority.
async fn tls_target(identity: Identity) -> (Target, TrustedRoots) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);

    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(identity.names).unwrap();
    if identity.expired {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    }
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));

    let server =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let target = Target::start(move |stream, seen| {
        let acceptor = acceptor.clone();
        async move {
            match acceptor.accept(stream).await {
                Ok(stream) => answer_over_tls(stream, &seen).await,
                Err(fault) => drop(seen.send(format!("no handshake: {fault}"))),
            }
        }
    })
    .await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority_certificate.der().clone()).unwrap();
    (target, TrustedRoots::Only(roots))
}

async fn answer_over_tls<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    seen: &mpsc::UnboundedSender<String>,
) {
    while let Some(request) = read_request(&mut stream).await {
        seen.send(request).ok();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        stream.flush().await.unwrap();
    }
}

async fn push_tls(target: &Target, host: &str, trusted_roots: TrustedRoots) -> PushReport {
    let pusher = Pusher::new(PushConfig { trusted_roots, ..config() }).unwrap();
    pusher.push(request(&format!("https://{host}:{}/hook", target.address.port()), PATIENCE)).await
}

#[tokio::test]
async fn https_works_for_a_certificate_that_holds_and_for_no_other() {
    let valid = || Identity { names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()], expired: false };
    let (mut target, roots) = tls_target(valid()).await;
    for host in ["localhost", "127.0.0.1"] {
        let report = push_tls(&target, host, roots.clone()).await;
        assert_eq!((report.verdict, report.excerpt.as_str()), (Verdict::Done, "ok"));
        assert!(target.event().await.starts_with("POST /hook HTTP/1.1\r\n"));
    }

    let expired = Identity { expired: true, ..valid() };
    let other_host = Identity { names: vec!["example.com".to_owned()], expired: false };
    let (unknown, _) = tls_target(valid()).await;
    let (expired, expired_roots) = tls_target(expired).await;
    let (other_host, other_host_roots) = tls_target(other_host).await;
    for (mut target, roots, reason) in [
        (unknown, TrustedRoots::Public, "UnknownIssuer"),
        (expired, expired_roots, "expired"),
        (other_host, other_host_roots, "not valid for"),
    ] {
        let report = push_tls(&target, "127.0.0.1", roots).await;
        assert_eq!((report.verdict, report.status), (RETRY, None));
        assert!(report.excerpt.contains(reason), "{reason}: {}", report.excerpt);
        let seen = target.event().await;
        assert!(seen.starts_with("no handshake"), "the request must not be sent: {seen}");
    }
}

#[tokio::test]
async fn tls_to_a_plain_port_never_falls_back_to_plain_text() {
    let mut plain = Target::start(|mut stream, seen| async move {
        let mut first = vec![0; 4_096];
        let count = stream.read(&mut first).await.unwrap();
        first.truncate(count);
        seen.send(format!("{first:?} {}", String::from_utf8_lossy(&first))).ok();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        until_closed(&mut stream).await;
    })
    .await;
    let report = push_tls(&plain, "127.0.0.1", TrustedRoots::Public).await;
    assert_eq!((report.verdict, report.status), (RETRY, None), "{}", report.excerpt);
    let seen = plain.event().await;
    assert!(seen.starts_with("[22, 3,"), "a TLS handshake begins with these: {seen}");
    assert!(!seen.contains("secret"), "{seen}");
    assert_eq!(plain.connections(), 1);
}

/// Pushes in vain, until the target was connected to: the deadline may pass before that.
async fn push_until_connected(pusher: &Pusher, target: &Target, timeout: Duration) -> PushReport {
    let url = format!("https://127.0.0.1:{}/", target.address.port());
    let before = target.connections();
    let pushing = async {
        loop {
            let report = pusher.push(request(&url, timeout)).await;
            assert_eq!((report.verdict, report.status), (RETRY, None));
            if target.connections() > before {
                return report;
            }
        }
    };
    tokio::time::timeout(2 * PATIENCE, pushing).await.expect("the target was never connected to")
}

#[tokio::test]
async fn a_tls_handshake_that_hangs_is_given_up() {
    let mut silent = Target::start(|mut stream, seen| async move {
        until_closed(&mut stream).await;
        seen.send("gone".to_owned()).ok();
    })
    .await;
    push_until_connected(&pusher(), &silent, DEADLINE).await;
    assert_eq!(silent.event().await, "gone");

    let hasty = Pusher::new(PushConfig { connect_timeout: DEADLINE, ..config() }).unwrap();
    let report = push_until_connected(&hasty, &silent, PATIENCE).await;
    assert!(report.excerpt.contains("no connection within"), "{}", report.excerpt);
    assert_eq!(silent.event().await, "gone");
}

#[tokio::test]
async fn a_target_that_only_speaks_tls_1_0_is_told_nothing() {
    // The answer to a handshake: version 3.1, a cipher of its time, nothing else.
    let mut answer = vec![3, 1];
    answer.extend([9; 32]);
    answer.extend([0, 0xc0, 0x13, 0]);
    let length = u8::try_from(answer.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, length + 4, 2, 0, 0, length];
    record.extend(answer);
    let mut old = Target::start(move |mut stream, seen| {
        let record = record.clone();
        async move {
            let mut first = vec![0; 4_096];
            let count = stream.read(&mut first).await.unwrap();
            assert!(count > 0);
            stream.write_all(&record).await.unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.ok();
            seen.send(format!("{rest:?}")).ok();
        }
    })
    .await;
    let report = push_tls(&old, "127.0.0.1", TrustedRoots::Public).await;
    assert_eq!((report.verdict, report.status), (RETRY, None), "{}", report.excerpt);
    let rest = old.event().await;
    assert!(rest.starts_with("[21,") || rest == "[]", "an alert or nothing, and not the request: {rest}");
}

//! Opening connections, only ever to an address the policy has seen.
//!
//! A name is resolved once; the addresses that come back are judged, and exactly those that passed are connected to. There
//! is no second lookup for a changed DNS answer to slip into. TLS goes on top of a connection made this way.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tower_service::Service;

use super::address::{AddressPolicy, RefusedAddress};
use super::target::literal_address;

/// Lookups under way at once. The system's resolver holds a thread for as long as a name server keeps it waiting, and the
/// runtime has a few hundred for everything: without a bound, dead name servers would stop file access too.
const LOOKUPS_AT_ONCE_MAX: usize = 128;

/// Addresses of one name that are tried. The time to connect is shared among them.
const ADDRESSES_TRIED_MAX: usize = 4;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Connecting<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectFault {
    #[error("the target has no host")]
    NoHost,
    #[error("the target is not allowed: {0}")]
    Refused(RefusedAddress),
    /// The addresses stay untold: whoever submits jobs must not be able to read the operator's internal DNS.
    #[error(
        "the target is not allowed: `{host}` resolves only to addresses inside closed networks; \
         the operator can open them with `--allow-target`"
    )]
    AllRefused { host: String },
    #[error("`{host}` could not be resolved")]
    Resolve { host: String, source: io::Error },
    #[error("`{host}` has no address")]
    NoAddress { host: String },
    #[error("could not connect to {address}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
}

impl ConnectFault {
    /// Whether the policy said no, now and the next time.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Refused(_) | Self::AllRefused { .. } => true,
            Self::NoHost
            | Self::Resolve { .. }
            | Self::NoAddress { .. }
            | Self::Connect { .. }
            | Self::TimedOut(_) => false,
        }
    }
}

/// Connects to a URL's host, with TLS if its scheme says so. Resolving, connecting and the handshake share one time bound:
/// the pool may finish a connection nobody waits for any more, outside any request's deadline.
#[derive(Clone)]
pub(super) struct Connector {
    https: HttpsConnector<CheckedTcp>,
    timeout: Duration,
}

impl Connector {
    pub(super) fn new(policy: AddressPolicy, tls: ClientConfig, timeout: Duration) -> Self {
        let tcp = CheckedTcp {
            policy: Arc::new(policy),
            lookups: Arc::new(Semaphore::new(LOOKUPS_AT_ONCE_MAX)),
            timeout,
        };
        // HTTP/1.1 alone: one request per connection at a time means that giving up on a request ends its connection, and
        // that the bound on reading is the whole of what a hostile answer can cost.
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Self { https, timeout }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Connecting<Self::Response, BoxError>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(context)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let timeout = self.timeout;
        let connecting = self.https.call(target);
        Box::pin(async move {
            tokio::time::timeout(timeout, connecting).await.map_err(|_| ConnectFault::TimedOut(timeout))?
        })
    }
}

/// Plain TCP to an address the policy allows.
#[derive(Clone)]
struct CheckedTcp {
    policy: Arc<AddressPolicy>,
    lookups: Arc<Semaphore>,
    timeout: Duration,
}

impl Service<Uri> for CheckedTcp {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectFault;
    type Future = Connecting<Self::Response, ConnectFault>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectFault>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let tcp = self.clone();
        Box::pin(async move {
            let addresses = tcp.allowed_addresses(&target).await?;
            tcp.connect_first(&addresses).await.map(TokioIo::new)
        })
    }
}

impl CheckedTcp {
    async fn allowed_addresses(&self, target: &Uri) -> Result<Vec<SocketAddr>, ConnectFault> {
        let host = target.host().ok_or(ConnectFault::NoHost)?;
        let default_port = if target.scheme() == Some(&http::uri::Scheme::HTTPS) { 443 } else { 80 };
        let port = target.port_u16().unwrap_or(default_port);
        if let Some(literal) = literal_address(host) {
            self.policy.check(literal).map_err(ConnectFault::Refused)?;
            return Ok(vec![SocketAddr::new(literal, port)]);
        }
        let found = self
            .resolve(host.to_owned(), port)
            .await
            .map_err(|source| ConnectFault::Resolve { host: host.to_owned(), source })?;
        keep_allowed(&self.policy, host, found)
    }

    /// Like tokio's own lookup, but the permit stays with the thread that waits, not with the caller that may give up.
    async fn resolve(&self, host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
        let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
        let lookup = tokio::task::spawn_blocking(move || {
            let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            drop(permit);
            found
        });
        lookup.await.map_err(io::Error::other)?
    }

    async fn connect_first(&self, addresses: &[SocketAddr]) -> Result<TcpStream, ConnectFault> {
        let share = u32::try_from(addresses.len()).ok().and_then(|count| self.timeout.checked_div(count));
        let timeout = share.unwrap_or(self.timeout);
        let mut last_fault = ConnectFault::TimedOut(timeout);
        for &address in addresses {
            match tokio::time::timeout(timeout, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // A request is one small write; waiting to fill a segment would only delay it.
                    stream.set_nodelay(true).map_err(|source| ConnectFault::Connect { address, source })?;
                    return Ok(stream);
                }
                Ok(Err(source)) => last_fault = ConnectFault::Connect { address, source },
                Err(_) => last_fault = ConnectFault::TimedOut(timeout),
            }
        }
        Err(last_fault)
    }
}

/// Drops the addresses the policy refuses. A name with public and private addresses stays usable through the public ones:
/// refusing it whole would protect nothing more, as the private ones are never connected to.
fn keep_allowed(
    policy: &AddressPolicy,
    host: &str,
    mut found: Vec<SocketAddr>,
) -> Result<Vec<SocketAddr>, ConnectFault> {
    if found.is_empty() {
        return Err(ConnectFault::NoAddress { host: host.to_owned() });
    }
    found.retain(|address| match policy.check(address.ip()) {
        Ok(()) => true,
        Err(refused) => {
            tracing::debug!(host, address = %refused.address, reason = refused.reason, "push address refused");
            false
        }
    });
    if found.is_empty() {
        return Err(ConnectFault::AllRefused { host: host.to_owned() });
    }
    found.truncate(ADDRESSES_TRIED_MAX);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(policy: AddressPolicy) -> CheckedTcp {
        CheckedTcp {
            policy: Arc::new(policy),
            lookups: Arc::new(Semaphore::new(LOOKUPS_AT_ONCE_MAX)),
            timeout: Duration::from_secs(5),
        }
    }

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_checked_addresses_of_a_name_are_connected_to() {
        let policy = AddressPolicy::public_only();
        let mixed =
            addresses(&["127.0.0.1:80", "8.8.8.8:80", "[::1]:80", "10.0.0.1:80", "[2606:4700::1]:80"]);
        let kept = keep_allowed(&policy, "rebind.example", mixed).unwrap();
        assert_eq!(kept, addresses(&["8.8.8.8:80", "[2606:4700::1]:80"]));

        let closed = addresses(&["169.254.169.254:80", "[::ffff:10.0.0.1]:80"]);
        let fault = keep_allowed(&policy, "rebind.example", closed).expect_err("all are closed");
        assert!(fault.is_refusal());
        assert!(!fault.to_string().contains("10.0.0.1"), "internal DNS must stay untold: {fault}");

        let none = keep_allowed(&policy, "empty.example", Vec::new()).expect_err("there are none");
        assert!(!none.is_refusal(), "an empty answer may be a passing fault: {none}");

        let many = (1..50).map(|n| SocketAddr::from(([8, 8, 8, n], 80))).collect();
        assert_eq!(keep_allowed(&policy, "many.example", many).unwrap().len(), ADDRESSES_TRIED_MAX);
    }

    #[tokio::test]
    async fn a_closed_address_is_never_connected_to_whatever_its_spelling() {
        let decoy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = decoy.local_addr().unwrap().port();
        // The short and numeric spellings pass through the system's resolver, which understands them.
        for host in
            ["127.0.0.1", "[::ffff:127.0.0.1]", "127.1", "2130706433", "0x7f.1", "0177.1", "localhost"]
        {
            let target: Uri = format!("http://{host}:{port}/").parse().unwrap();
            let fault = tcp(AddressPolicy::public_only()).call(target).await.expect_err(host);
            assert!(fault.is_refusal(), "{host}: {fault}");
        }
        // Had any of them connected, it would be waiting in front of this one.
        let own = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (_, first) = decoy.accept().await.unwrap();
        assert_eq!(first, own.local_addr().unwrap());
    }

    #[tokio::test]
    async fn an_open_address_is_connected_to_by_literal_and_by_name() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost"] {
            let target: Uri = format!("http://{host}:{port}/").parse().unwrap();
            let stream =
                tcp(AddressPolicy::public_only().allow_loopback()).call(target).await.unwrap().into_inner();
            assert!(stream.nodelay().unwrap());
        }
    }
}

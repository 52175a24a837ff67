//! A whole server in this process: store, engine, HTTP. `serve` runs one until it is told to stop; `bench` starts
//! its own.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tidewheel_core::zones::Zones;
use tidewheel_server::access::Access;
use tidewheel_server::access::oidc::{Oidc, OidcConfig};
use tidewheel_server::clock::{Clock, SystemClock};
use tidewheel_server::directory::Directory;
use tidewheel_server::engine::{Config, Deliver, Engine, Parts};
use tidewheel_server::http::{HttpLimits, HttpParts, ServeLimits, router, serve, serve_tls};
use tidewheel_server::metrics::{Metrics, TlsMetrics};
use tidewheel_server::notify;
use tidewheel_server::push::{AddressPolicy, PushConfig, PushDeliverer, Pusher};
use tidewheel_server::random::{Random, SystemRandom};
use tidewheel_server::tls::{Tls, TlsFiles};
use tidewheel_server::traces::{ExportConfig, Exporter, Traces};
use tidewheel_store::{NodeCard, Store};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::descriptors::connections_max;
use super::{disk, store, zoneinfo};
use crate::config::AuditScope;

/// How a node is set up.
pub struct NodeConfig {
    /// The folder of the embedded store.
    pub data: PathBuf,
    /// The databases that take its place, in their order.
    pub store: Vec<String>,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Acknowledge without waiting for the disk; only to measure what waiting costs.
    pub danger_no_sync: bool,
    /// The engine's knobs.
    pub engine: Config,
    /// What requests may cost.
    pub http: HttpLimits,
    /// Where pushes may go; this machine too, while no keys are asked for.
    pub targets: AddressPolicy,
    /// The folder of the time zone database; none is the one that comes with the program.
    pub tz_dir: Option<PathBuf>,
    /// The first admin's key; without it, keys are asked for only if the store has some.
    pub admin_key: Option<String>,
    /// What the audit trail has.
    pub audit: AuditScope,
    /// What TLS is spoken with; none is plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Whose tokens are taken as well as keys.
    pub oidc: Option<OidcConfig>,
    /// Who delivers, instead of HTTP.
    pub deliverer: Option<Arc<dyn Deliver>>,
    /// Where traces are sent, if they are.
    pub traces: Option<ExportConfig>,
}

/// A running node.
pub struct Node {
    engine: Engine,
    address: SocketAddr,
    access: Arc<Access>,
    tls: Option<Arc<Tls>>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    exporter: Option<Exporter>,
}

/// Connections that may wait to be accepted. A client beyond it waits a second before it tries again, so a burst of
/// them should fit.
const ACCEPT_QUEUE_COUNT: u32 = 4_096;
/// How long open connections may take to end once no more requests are taken.
const CONNECTIONS_END: Duration = Duration::from_secs(5);

impl Node {
    /// Opens the store, starts the engine, listens.
    pub async fn start(config: NodeConfig) -> anyhow::Result<Self> {
        let listener = listen(config.listen)
            .with_context(|| format!("cannot listen on {}: choose another with --listen", config.listen))?;
        let address = listener.local_addr().context("cannot tell where the server listens")?;
        let (metrics, tls_metrics) = metrics(&config);
        let metrics = Arc::new(metrics);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let tls = match config.tls.clone() {
            Some(files) => Some(Tls::open(files, Arc::clone(&clock), tls_metrics).await?),
            None => None,
        };
        let zones = zones(config.tz_dir.clone()).await?;
        let store = store::open(&config, &zones, &metrics).await?;
        let access = access(&config, &store, &clock).await?;
        let targets = if access.is_closed() { config.targets } else { config.targets.allow_loopback() };
        let random: Arc<dyn Random> = Arc::new(SystemRandom);
        let (traces, exporter) = match config.traces {
            Some(to) => {
                let (traces, exporter) = Traces::start(to, &metrics, Arc::clone(&clock))
                    .map_err(|fault| anyhow::anyhow!("traces cannot be sent: {fault}"))?;
                (traces, Some(exporter))
            }
            None => (Traces::default(), None),
        };
        let deliverer = match config.deliverer {
            Some(deliverer) => deliverer,
            None => {
                let pusher = Pusher::new(PushConfig { allow: targets.clone(), ..PushConfig::default() })?;
                let directory = Arc::clone(access.directory());
                let deliverer =
                    PushDeliverer::new(pusher, Arc::clone(&clock), Arc::clone(&random), directory);
                Arc::new(deliverer.timed_by(Arc::clone(&metrics)).traced_by(traces.clone()))
            }
        };
        let parts = Parts { store, clock, random, metrics, deliverer, zones };
        let push_max = config.engine.push_max;
        let engine_config = Config { traces, ..config.engine };
        let engine = match parts.store.leases() {
            None => Engine::start(parts, engine_config).await,
            Some(_) => {
                let card = card(&*parts.random, &url(address, tls.is_some()));
                Engine::join(parts, engine_config, card).await
            }
        }
        .context("cannot start on this store")?;
        access.directory().steer(&engine);
        notify::start(&engine, access.directory());
        let http =
            HttpParts { engine: engine.clone(), targets, limits: config.http, access: Arc::clone(&access) };
        let app = router(http);
        let (stop, stopped) = oneshot::channel::<()>();
        let mut limits = ServeLimits::default();
        limits.connections_max = connections_max(limits.connections_max, push_max);
        // A dropped node stops as one that was told to.
        let stopped = async move { drop(stopped.await) };
        let serving = match tls.clone() {
            None => tokio::spawn(serve(listener, app, limits, stopped)),
            Some(tls) => tokio::spawn(serve_tls(listener, app, limits, tls, stopped)),
        };
        Ok(Self { engine, address, access, tls, stop, serving, exporter })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        url(self.address, self.tls.is_some())
    }

    /// What it speaks TLS with.
    pub fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    /// Whether it asks for keys.
    pub fn is_closed(&self) -> bool {
        self.access.is_closed()
    }

    /// Its engine.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Stops promoting, lets attempts under way end within `drain`, stops serving, closes the store. Returns how
    /// many attempts were still under way; the next start takes them up.
    pub async fn stop(self, drain: Duration) -> anyhow::Result<usize> {
        let left = self.engine.drain(drain).await;
        self.stop.send(()).ok();
        if tokio::time::timeout(CONNECTIONS_END, self.serving).await.is_err() {
            tracing::warn!("some connections did not end in time; closing them");
        }
        // A collector that does not answer must not hold up the stop.
        if let Some(exporter) = self.exporter
            && tokio::time::timeout(CONNECTIONS_END, exporter.finish()).await.is_err()
        {
            tracing::warn!("the last spans could not be sent in time; they are dropped");
        }
        match tokio::time::timeout(CONNECTIONS_END, self.access.record_counts()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "calls of the last second could not be recorded"),
            Err(_) => tracing::warn!("calls of the last second could not be recorded in time"),
        }
        self.engine.store().close().await.context("the store did not close cleanly")?;
        Ok(left)
    }
}

/// What this node says of itself to the others that share its store.
fn card(random: &dyn Random, url: &str) -> NodeCard {
    NodeCard {
        id: format!("node_{:016x}", u64::try_from(random.tail() >> 64).unwrap_or(0)).into(),
        address: url.into(),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

fn url(address: SocketAddr, is_secret: bool) -> String {
    let scheme = if is_secret { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// Keys are asked for as soon as there is one, or an issuer of tokens, whoever starts the server.
async fn access(
    config: &NodeConfig,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Arc<Access>> {
    let directory = Directory::open(Arc::clone(store), Arc::clone(clock)).await;
    let directory = directory.context("cannot read tenants and keys from the store")?;
    let is_closed = config.admin_key.is_some() || config.oidc.is_some() || directory.has_keys();
    let access = if is_closed {
        Access::with_keys(directory, Arc::clone(clock), config.admin_key.as_deref())
    } else {
        // It listens on this machine only; a page of another site must not get here by a name of its own.
        Access::without_keys(directory, Arc::clone(clock)).only_here()
    };
    let access = access.auditing_calls(config.audit == AuditScope::All);
    Ok(Arc::new(match config.oidc.clone() {
        None => access,
        Some(oidc) => access.with_issuer(Oidc::open(oidc, Arc::clone(clock)).await?),
    }))
}

/// The disk matters where the data is on it, and TLS where it is spoken.
fn metrics(config: &NodeConfig) -> (Metrics, TlsMetrics) {
    let (mut metrics, tls) = (Metrics::new(), TlsMetrics::default());
    if config.tls.is_some() {
        metrics = metrics.serving_tls(&tls);
    }
    if config.store.is_empty() {
        let data = config.data.clone();
        metrics = metrics.measuring_disk(move || disk::space(&data));
    }
    (metrics, tls)
}

async fn zones(folder: Option<PathBuf>) -> anyhow::Result<Zones> {
    let Some(folder) = folder else { return Ok(Zones::bundled()) };
    let read = tokio::task::spawn_blocking(move || zoneinfo::read(&folder)).await;
    read.context("reading the tz database was cut short")?
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that was just stopped leaves connections behind that would keep its port taken.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_QUEUE_COUNT)
}

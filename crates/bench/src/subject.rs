//! The server under test: one of our own in the scratch folder, or the one that was named.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tidewheel_core::job::State;
use tidewheel_core::names::Tenant;
use tidewheel_core::zones::Zones;
use tidewheel_server::clock::SystemClock;
use tidewheel_server::engine::{Config, Deliver, Engine, Parts};
use tidewheel_server::http::HttpLimits;
use tidewheel_server::metrics::Metrics;
use tidewheel_server::push::AddressPolicy;
use tidewheel_server::random::SystemRandom;
use tidewheel_store::Store;
use tidewheel_store_embedded::{EmbeddedStore, Options};

use super::Bench;
use super::connection::{Connection, post_for, request};
use super::database::Database;
use super::plan::PATIENCE;
use super::stopwatch::{Stopwatch, pause};
use tidewheel_cli::config::AuditScope;
use tidewheel_cli::failure::Failure;
use tidewheel_cli::serve::node::{Node, NodeConfig};

/// Attempts under way when a measurement ends are not waited for longer than this.
const DRAIN: Duration = Duration::from_secs(10);
/// How long a server that was named may take to answer at first.
const CONNECT: Duration = Duration::from_secs(10);
/// How often a condition that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// A server that was named on the command line.
#[derive(Debug, Clone)]
pub(super) struct Remote {
    address: SocketAddr,
    host: String,
}

impl Remote {
    /// Finds the server of a URL such as `http://127.0.0.1:7400`.
    pub(super) async fn find(url: &str) -> Result<Self, Failure> {
        let wrong = |text: &str| Failure::Usage(text.to_owned());
        let host = url
            .strip_prefix("http://")
            .ok_or_else(|| wrong("the benchmark speaks plain HTTP: --url http://HOST:PORT"))?;
        let host = host.trim_end_matches('/');
        if host.contains('/') {
            return Err(wrong("--url takes no path here: http://HOST:PORT"));
        }
        let named = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let mut found = tokio::net::lookup_host(&named)
            .await
            .map_err(|fault| unreachable(host, &format!("looking it up: {fault}")))?;
        let address = found.next().ok_or_else(|| unreachable(host, "it has no address"))?;
        Ok(Self { address, host: host.to_owned() })
    }

    /// Connects once: that nobody is there is to be told before anything is measured.
    pub(super) async fn must_be_there(&self) -> Result<(), Failure> {
        let why = match tokio::time::timeout(CONNECT, Connection::open(self.address)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(fault)) => format!("{fault:#}"),
            Err(_) => format!("it does not answer within {} s", CONNECT.as_secs()),
        };
        Err(unreachable(&self.host, &why))
    }

    /// Whether it runs on this machine, so that it can reach a target here.
    pub(super) fn is_here(&self) -> bool {
        self.address.ip().is_loopback()
    }
}

fn unreachable(host: &str, why: &str) -> Failure {
    Failure::Unreachable(format!("the server {host} cannot be reached: {why}"))
}

/// The server under test.
pub(super) struct Subject {
    address: SocketAddr,
    host: String,
    own: Option<Node>,
    /// The database that was made for it, and goes with it.
    database: Option<Database>,
}

/// Whether the server waits for the disk before it acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    On,
    Off,
}

impl Subject {
    /// The server that was named, or a new one of our own on the data in that folder.
    pub(super) async fn start(bench: &Bench, folder: &str, sync: Sync) -> anyhow::Result<Self> {
        if let Some(remote) = &bench.remote {
            return Ok(Self {
                address: remote.address,
                host: remote.host.clone(),
                own: None,
                database: None,
            });
        }
        if let Some(server) = &bench.postgres {
            let database = server.make(sync).await?;
            let subject = Self::start_on(bench, &database, Config::default()).await?;
            return Ok(Self { database: Some(database), ..subject });
        }
        Self::start_own(bench, folder, sync, Config::default()).await
    }

    /// A new server on the data in that folder, once it says it is ready.
    pub(super) async fn start_own(
        bench: &Bench,
        folder: &str,
        sync: Sync,
        engine: Config,
    ) -> anyhow::Result<Self> {
        Self::start_node(bench, folder, None, sync, engine).await
    }

    /// A new server on a database, once it says it is ready.
    pub(super) async fn start_on(bench: &Bench, database: &Database, engine: Config) -> anyhow::Result<Self> {
        Self::start_node(bench, "node", Some(database.url().to_owned()), Sync::On, engine).await
    }

    async fn start_node(
        bench: &Bench,
        folder: &str,
        store: Option<String>,
        sync: Sync,
        engine: Config,
    ) -> anyhow::Result<Self> {
        let node = Node::start(NodeConfig {
            data: bench.scratch.folder(folder),
            store: store.into_iter().collect(),
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            danger_no_sync: sync == Sync::Off,
            engine,
            http: HttpLimits::default(),
            targets: AddressPolicy::public_only().allow_loopback(),
            tz_dir: None,
            admin_key: None,
            audit: AuditScope::All,
            tls: None,
            oidc: None,
            deliverer: None,
            traces: None,
        })
        .await?;
        let address = node.address();
        let subject = Self { address, host: address.to_string(), own: Some(node), database: None };
        subject.ready().await?;
        Ok(subject)
    }

    async fn ready(&self) -> anyhow::Result<()> {
        let watch = Stopwatch::start();
        let question = request("GET", "/readyz", &self.host, "");
        let mut connection = self.connect().await?;
        while connection.call(&question).await? != 200 {
            if watch.elapsed() > PATIENCE {
                bail!("the server does not get ready");
            }
            pause(LOOK).await;
        }
        Ok(())
    }

    /// Where it listens.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.host)
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(self.address).await
    }

    /// A submission of one or many, ready to be sent.
    pub(super) fn submit_one(&self, body: &str) -> Vec<u8> {
        request("POST", "/v1/jobs", &self.host, body)
    }

    pub(super) fn submit_batch(&self, body: &str) -> Vec<u8> {
        request("POST", "/v1/jobs/batch", &self.host, body)
    }

    /// The same for a tenant.
    pub(super) fn submit_one_for(&self, tenant: &Tenant, body: &str) -> Vec<u8> {
        post_for(tenant, "/v1/jobs", &self.host, body)
    }

    pub(super) fn submit_batch_for(&self, tenant: &Tenant, body: &str) -> Vec<u8> {
        post_for(tenant, "/v1/jobs/batch", &self.host, body)
    }

    /// A creation of many schedules, ready to be sent.
    pub(super) fn create_schedules(&self, body: &str) -> Vec<u8> {
        request("POST", "/v1/schedules/batch", &self.host, body)
    }

    /// The engine of our own server.
    pub(super) fn engine(&self) -> anyhow::Result<&Engine> {
        self.own.as_ref().map(Node::engine).context("only a server of our own can be looked into")
    }

    /// Stops our own server.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        if let Some(node) = self.own {
            node.stop(DRAIN).await?;
        }
        if let Some(database) = self.database {
            database.remove().await?;
        }
        Ok(())
    }
}

/// An engine on a store, without HTTP.
pub(super) async fn open_store(bench: &Bench, folder: &str) -> anyhow::Result<Arc<dyn Store>> {
    let options = Options::new(bench.scratch.folder(folder));
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(options)).await;
    Ok(Arc::new(opened.context("opening the store was cut short")??))
}

/// Starts an engine that hands everything to `deliverer`, with no bound on how much at once.
pub(super) async fn start_engine(
    store: &Arc<dyn Store>,
    deliverer: Arc<dyn Deliver>,
) -> anyhow::Result<Engine> {
    let parts = Parts {
        store: Arc::clone(store),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
        metrics: Arc::new(Metrics::new()),
        deliverer,
        zones: Zones::bundled(),
    };
    Ok(Engine::start(parts, unpaced()).await?)
}

/// The usual engine, with no bound on attempts under way and no pace for what was due before it started: what is
/// measured is how fast it can be.
pub(super) fn unpaced() -> Config {
    const UNBOUNDED: usize = 1_000_000;
    Config {
        push_max: UNBOUNDED,
        push_per_host_max: UNBOUNDED,
        catch_up_per_second: 1_000_000,
        tenant_catch_up_per_second: 1_000_000,
        ..Config::default()
    }
}

/// Waits until that many jobs have succeeded.
pub(super) async fn until_succeeded(bench: &Bench, store: &Arc<dyn Store>, count: u64) -> anyhow::Result<()> {
    let watch = Stopwatch::start();
    loop {
        let done = store.counts(None).await?.of(State::Succeeded);
        if done >= count {
            return Ok(());
        }
        if watch.elapsed() > PATIENCE {
            bail!("only {done} of {count} jobs were done after {} s", PATIENCE.as_secs());
        }
        bench.progress.count("draining", done, count);
        pause(LOOK).await;
    }
}

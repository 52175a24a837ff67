//! What an entry works on: a store, a server on it under valgrind, and the windows that are counted.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tidewheel_api::client::{Call, Client, ClientConfig, Patience};

use crate::costs::{Column, Costs, Window};
use crate::database::{Database, Postgres};
use crate::stopwatch::{Stopwatch, pause, until};
use crate::watched::{Program, Watched};

/// What is left to do behind an answer is done by then; what is not is missing from one job of all that are counted.
const SETTLE: Duration = Duration::from_millis(500);

/// Long enough that what goes on by the clock has gone on a few times.
const CALM: Duration = Duration::from_secs(5);

/// What is measured, and on what.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// The program users run.
    pub(crate) server: PathBuf,
    /// PostgreSQL; none is the embedded store.
    pub(crate) postgres: Option<Postgres>,
}

/// An empty store.
pub(crate) struct Ground {
    pub(crate) folder: TempDir,
    pub(crate) database: Option<Database>,
}

impl Ground {
    pub(crate) async fn make(subject: &Subject) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidewheel-cost.").tempdir()?;
        let database = match &subject.postgres {
            Some(postgres) => Some(Database::make(postgres).await?),
            None => None,
        };
        Ok(Self { folder, database })
    }

    /// The flags that name it.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        match &self.database {
            Some(database) => vec!["--store".into(), database.url().into()],
            None => vec!["--data".into(), self.data().into()],
        }
    }

    /// Where the embedded store is.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

/// A store with a process on it that is counted.
pub(crate) struct Site {
    pub(crate) ground: Ground,
    pub(crate) process: Watched,
    pub(crate) address: SocketAddr,
    begun: Stopwatch,
}

impl Site {
    /// Starts `tidewheel serve` on a new store, and waits until it is ready.
    pub(crate) async fn serve(subject: &Subject) -> anyhow::Result<Self> {
        let ground = Ground::make(subject).await?;
        let address = free_address()?;
        let mut arguments: Vec<OsString> =
            vec!["serve".into(), "--listen".into(), address.to_string().into()];
        arguments.extend(ground.flags());
        let program = Program { path: subject.server.clone(), arguments, talks: false };
        let process = Watched::start(&program, ground.folder.path())?;
        let mut site = Self::new(ground, process, address);
        site.until_ready().await?;
        Ok(site)
    }

    pub(crate) fn new(ground: Ground, process: Watched, address: SocketAddr) -> Self {
        Self { ground, process, address, begun: Stopwatch::start() }
    }

    async fn until_ready(&mut self) -> anyhow::Result<()> {
        let client = self.client(None)?;
        let folder = self.ground.folder.path().to_owned();
        let process = std::cell::RefCell::new(&mut self.process);
        until("a server that is ready", async || {
            process.borrow_mut().must_run(&folder)?;
            Ok(client.send(&Call::get_outside(&["readyz"])).await.is_ok().then_some(()))
        })
        .await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client that says everything once: a call that is repeated would count twice.
    pub(crate) fn client(&self, tenant: Option<&str>) -> anyhow::Result<Client> {
        let tenant = tenant.map(str::to_owned);
        Ok(Client::new(ClientConfig { patience: Patience::NONE, tenant, ..ClientConfig::new(self.url()) })?)
    }

    /// Starts a window, once nothing is left to do of what was before.
    pub(crate) async fn begin(&mut self) -> anyhow::Result<()> {
        pause(SETTLE).await;
        if let Some(database) = &mut self.ground.database {
            database.begin().await?;
        }
        self.process.begin().await?;
        self.begun = Stopwatch::start();
        Ok(())
    }

    /// Ends it; that many jobs were done in it.
    pub(crate) async fn end(&mut self, jobs: u64) -> anyhow::Result<Window> {
        pause(SETTLE).await;
        let seconds = self.begun.elapsed().as_secs_f64();
        let (profile, calls) = self.process.end().await?;
        let mut counts = Costs::default();
        counts.set_count(Column::Instructions, profile.instructions);
        counts.set_count(Column::Allocations, profile.allocations);
        counts.set_count(Column::SystemCalls, calls.all);
        let Some(database) = &mut self.ground.database else {
            counts.set_count(Column::FileBytes, calls.file_bytes);
            counts.set_count(Column::Syncs, calls.syncs);
            return Ok(Window { counts, seconds, jobs });
        };
        let outside = database.end().await?;
        counts.set_count(Column::RoundTrips, outside.round_trips);
        counts.set_count(Column::WalBytes, outside.wal_bytes);
        if let Some((profile, calls)) = outside.backends {
            counts.set_count(Column::DatabaseInstructions, profile.instructions);
            counts.set_count(Column::DatabaseSystemCalls, calls.all);
            counts.set_count(Column::FileBytes, calls.file_bytes);
            counts.set_count(Column::Syncs, calls.syncs);
        }
        Ok(Window { counts, seconds, jobs })
    }

    /// A window in which nothing is asked for.
    pub(crate) async fn calm(&mut self) -> anyhow::Result<Window> {
        self.begin().await?;
        pause(CALM).await;
        self.end(0).await
    }

    /// Ends the process.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.process.kill().await
    }
}

/// A port that nobody listens on just now.
fn free_address() -> anyhow::Result<SocketAddr> {
    let listener =
        std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
    Ok(listener.local_addr()?)
}

/// Sends a call and reads its answer.
pub(crate) async fn ask(client: &Client, call: &Call) -> anyhow::Result<Value> {
    Ok(client.send(call).await?.json()?)
}

/// Waits until that many jobs of the client's tenant have succeeded. Each look costs about as much as a read of a job.
pub(crate) async fn until_succeeded(client: &Client, count: u64) -> anyhow::Result<()> {
    let call = Call::get(&["jobs", "count"]).query("state", "succeeded");
    until("jobs that have succeeded", async || {
        let answer = ask(client, &call).await?;
        let done = answer.get("count").and_then(Value::as_u64).context("a count without a number")?;
        ensure!(done <= count, "{done} jobs succeeded of {count}");
        Ok((done == count).then_some(()))
    })
    .await
}

//! Connections to the database: a few for callers, a few that only the scheduler gets, so that a flood of calls keeps
//! neither due jobs nor outcomes waiting. Notes whether the database takes writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tidewheel_store::{Error, Health};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::batch::{self, Batch, Flown, Written};
use crate::fault::{Trouble, pool_error, store_error};
use crate::hosts::{ByHosts, Hosts};
use crate::options::Options;
use crate::store::plain;
use crate::tls::connector;

/// Who a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Whoever calls.
    Caller,
    /// The scheduler: what keeps due jobs moving.
    Scheduler,
    /// What became of attempts: of the scheduler's, all but a few, so that neither callers keep outcomes waiting nor these the
    /// leases and claims.
    Reports,
}

/// Connections of the scheduler that reports leave to others.
const UNREPORTED_COUNT: usize = 2;

/// How a transaction begins: with a lock that all who may write to this schema hold together. Upkeep looks who does
/// ([`crate::settle`]), and names it by the same number.
const BEGIN: &str = "BEGIN; SELECT pg_advisory_xact_lock_shared(1953064037, hashtext(current_schema()))";

pub(crate) struct Connections {
    callers: Pool,
    scheduler: Pool,
    /// The servers both connect to.
    pub(crate) hosts: Arc<Hosts>,
    scheduler_count: usize,
    /// One for each report that may be under way.
    reports: Semaphore,
    call: Duration,
    lease_call: Duration,
    /// How long whoever makes, changes or drops a table waits for a lock.
    pub(crate) table_lock: Duration,
    is_closed: AtomicBool,
    /// Why it takes no writes.
    trouble: Mutex<Option<Error>>,
    /// Rung when trouble begins.
    pub(crate) troubled: Notify,
}

/// Plans that hold whatever the statistics say: every statement goes by whole keys, and a plan for an empty table must
/// not read a full one from end to end. Preparing them anew for every call would cost more than they take.
const PLANNING: &str = "-c plan_cache_mode=force_generic_plan -c jit=off -c enable_hashjoin=off \
    -c enable_mergejoin=off -c enable_seqscan=off -c enable_bitmapscan=off -c enable_material=off \
    -c enable_memoize=off -c max_parallel_workers_per_gather=0";

/// Other plans for a statement that compares two tables over a long stretch: they are read side by side instead of asking the one
/// for each row of the other. Within a transaction only, so that a plan that is kept is always made with them.
pub(crate) const SIDE_BY_SIDE: &str =
    "SET LOCAL enable_mergejoin = on; SET LOCAL enable_nestloop = off; SET LOCAL enable_sort = off";

/// Between two signs of life that are asked of a silent server; the system's own interval is over a minute.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);

/// The configuration of all connections, and their TLS where the URL asks for it.
pub(crate) fn config_of(options: &Options) -> Result<(Config, MakeRustlsConnect), Error> {
    let (mut config, tls) = connector(&options.url)?;
    let given = config.get_options().unwrap_or_default().to_owned();
    let statement_ms = options.statement.as_millis();
    config
        .options(format!(
            "-c search_path={} -c statement_timeout={statement_ms} -c lock_timeout={statement_ms} \
             -c idle_in_transaction_session_timeout={statement_ms} {PLANNING} {given}",
            options.schema
        ))
        .connect_timeout(options.connect)
        .tcp_user_timeout(options.call)
        .keepalives_idle(options.call)
        .keepalives_interval(KEEPALIVE_EVERY);
    if config.get_application_name().is_none() {
        config.application_name("tidewheel");
    }
    Ok((config, tls))
}

impl Connections {
    pub(crate) fn new(options: &Options) -> Result<Self, Error> {
        let (config, tls) = config_of(options)?;
        let hosts = Arc::new(Hosts::new(&config, tls, options.connect));
        let pool = |count: usize| {
            let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let manager = Manager::from_connect(config.clone(), ByHosts(Arc::clone(&hosts)), recycling);
            Pool::builder(manager)
                .max_size(count.max(1))
                .wait_timeout(Some(options.connect))
                .create_timeout(Some(options.connect))
                .recycle_timeout(Some(options.connect))
                .runtime(Runtime::Tokio1)
                .build()
                .map_err(|error| Error::Unavailable(error.to_string()))
        };
        Ok(Self {
            callers: pool(options.caller_connections)?,
            scheduler: pool(options.scheduler_connections)?,
            scheduler_count: options.scheduler_connections,
            reports: Semaphore::new(options.scheduler_connections.saturating_sub(UNREPORTED_COUNT).max(1)),
            hosts,
            call: options.call,
            lease_call: options.lease_call.min(options.call),
            table_lock: options.table_lock,
            is_closed: AtomicBool::new(false),
            trouble: Mutex::new(None),
            troubled: Notify::new(),
        })
    }

    /// A connection for one call.
    pub(crate) async fn get(&self, lane: Lane) -> Result<Object, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let pool = match lane {
            Lane::Caller => &self.callers,
            Lane::Scheduler | Lane::Reports => &self.scheduler,
        };
        pool.get().await.map_err(pool_error)
    }

    /// A transaction.
    pub(crate) async fn begin(&self, lane: Lane) -> Result<Transaction<'_>, Error> {
        let transaction = self.lend(lane).await?;
        transaction.client()?.batch_execute(BEGIN).await.map_err(|error| store_error(&error))?;
        Ok(transaction)
    }

    /// One that has not begun yet.
    async fn lend(&self, lane: Lane) -> Result<Transaction<'_>, Error> {
        let permit = match lane {
            Lane::Caller | Lane::Scheduler => None,
            Lane::Reports => Some(self.reports.acquire().await.map_err(|_| Error::Closed)?),
        };
        let client = self.get(lane).await?;
        Ok(Transaction { connections: self, client: Some(client), _permit: permit })
    }

    /// A transaction that only writes, and knows before it begins what: in one round trip.
    pub(crate) async fn write_at_once(&self, lane: Lane, batches: &[Batch]) -> Result<Written, Trouble> {
        let mut transaction = self.lend(lane).await?;
        let Flown { outcome, is_known } = batch::fly(transaction.client()?, BEGIN, batches).await;
        if is_known {
            drop(transaction.client.take());
        }
        if matches!(outcome, Ok(Written::Done)) {
            self.note_written();
        }
        outcome
    }

    /// A transaction that only reads, with these settings for its statements.
    pub(crate) async fn begin_read(&self, lane: Lane, settings: &str) -> Result<Transaction<'_>, Error> {
        let client = self.get(lane).await?;
        let transaction = Transaction { connections: self, client: Some(client), _permit: None };
        let begin = format!("BEGIN READ ONLY; {settings}");
        transaction.client()?.batch_execute(&begin).await.map_err(|error| store_error(&error))?;
        Ok(transaction)
    }

    /// Bounds a call, and notes when the database does not take it.
    pub(crate) async fn bounded<T>(
        &self,
        work: impl Future<Output = Result<T, Trouble>> + Send,
    ) -> Result<T, Error> {
        self.bounded_by(self.call, work).await
    }

    /// The same, for what keeps leases.
    pub(crate) async fn bounded_lease<T>(
        &self,
        work: impl Future<Output = Result<T, Trouble>> + Send,
    ) -> Result<T, Error> {
        self.bounded_by(self.lease_call, work).await
    }

    /// Bounds what is done by itself; that it failed says nothing about others.
    pub(crate) async fn bounded_upkeep<T>(
        &self,
        work: impl Future<Output = Result<T, Trouble>> + Send,
    ) -> Result<T, Trouble> {
        let outcome = tokio::time::timeout(self.call, work).await;
        outcome.unwrap_or_else(|_| Err(self.too_late(self.call).into()))
    }

    async fn bounded_by<T>(
        &self,
        most: Duration,
        work: impl Future<Output = Result<T, Trouble>> + Send,
    ) -> Result<T, Error> {
        let outcome = tokio::time::timeout(most, work).await;
        let outcome = outcome.unwrap_or_else(|_| Err(self.too_late(most).into()));
        match &outcome {
            Err(Trouble::Failed(error @ (Error::Unavailable(_) | Error::Full(_)))) => {
                self.note_trouble(error)
            }
            // Neither that another was faster nor what one statement met with says anything about others.
            Err(
                Trouble::Failed(Error::Poisoned(_) | Error::Fenced | Error::Corrupt(_) | Error::Closed)
                | Trouble::Raced
                | Trouble::Own(_),
            )
            | Ok(_) => {}
        }
        outcome.map_err(plain)
    }

    /// A server that answers nothing may hang, and then all connections to it do: those that nobody uses are thrown away,
    /// and the next are made to whichever server answers.
    fn too_late(&self, most: Duration) -> Error {
        for pool in [&self.callers, &self.scheduler] {
            drop(pool.retain(|_, _| false));
        }
        Error::Unavailable(format!("the database did not answer within {most:?}"))
    }

    /// Makes all connections of the scheduler, before callers may have taken the last that the database gives.
    pub(crate) async fn reserve(&self) {
        let mut reserved = Vec::new();
        for _ in 0..self.scheduler_count {
            match self.get(Lane::Scheduler).await {
                Ok(connection) => reserved.push(connection),
                Err(error) => {
                    let (got, wanted) = (reserved.len(), self.scheduler_count);
                    tracing::warn!(%error, got, wanted, "not all connections could be reserved for the scheduler");
                    return;
                }
            }
        }
    }

    pub(crate) fn health(&self) -> Health {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match trouble {
            None => Health::Ready,
            Some(Error::Full(reason)) => Health::Full(reason),
            Some(Error::Unavailable(reason)) => Health::Away(reason),
            Some(error) => Health::ReadOnly(error.to_string()),
        }
    }

    fn note_trouble(&self, error: &Error) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if trouble.is_none() {
            tracing::warn!(%error, "the database is in trouble; trying on");
        }
        *trouble = Some(error.clone());
        self.troubled.notify_one();
    }

    fn note_written(&self) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if trouble.take().is_some() {
            tracing::info!("the database takes writes again");
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Lets go of connections that nobody uses: after the database was away, they may lead nowhere.
    pub(crate) fn forget_idle(&self) {
        self.callers.retain(|_, _| false);
        self.scheduler.retain(|_, _| false);
    }

    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.reports.close();
        self.callers.close();
        self.scheduler.close();
    }
}

/// A transaction under way. Left without an end, its connection is thrown away, and the database undoes it.
pub(crate) struct Transaction<'c> {
    connections: &'c Connections,
    client: Option<Object>,
    /// Given back with its connection.
    _permit: Option<SemaphorePermit<'c>>,
}

impl Transaction<'_> {
    pub(crate) fn client(&self) -> Result<&Object, Error> {
        self.client.as_ref().ok_or(Error::Closed)
    }

    /// Commits what went well, and undoes what did not.
    pub(crate) async fn end<T>(mut self, outcome: Result<T, Trouble>) -> Result<T, Trouble> {
        let statement = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.client()?.batch_execute(statement).await;
        // Where the database said nothing at all, the connection is of no more use: it is dropped with the rest.
        let is_known = ended.as_ref().map_or_else(|error| error.code().is_some(), |()| true);
        if is_known {
            drop(self.client.take());
        }
        match (outcome, ended) {
            (Ok(answer), Ok(())) => {
                self.connections.note_written();
                Ok(answer)
            }
            (Ok(_), Err(error)) => Err(error.into()),
            (Err(trouble), Ok(()) | Err(_)) => Err(trouble),
        }
    }

    /// Ends one that only read.
    pub(crate) async fn end_read<T>(mut self, outcome: Result<T, Trouble>) -> Result<T, Trouble> {
        self.client()?.batch_execute("ROLLBACK").await?;
        drop(self.client.take());
        outcome
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

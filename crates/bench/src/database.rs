//! The PostgreSQL server that was named: databases of the benchmark's own in it, gone at the end, and what the server says
//! of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio_postgres::Client;

use super::plan::PATIENCE;
use super::stopwatch::{Stopwatch, pause};
use super::subject::Sync;
use tidewheel_cli::failure::Failure;

/// How long the server may take to answer at first.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a condition that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The connections of the benchmark itself, told from those of the servers it measures.
const APPLICATION: &str = "tidewheel-bench";
/// The first that drops a database others are connected to.
const VERSION_MIN: i64 = 13;

const ABOUT: &str = "SELECT current_setting('server_version'), current_setting('server_version_num')::int8 / 10000, \
     current_setting('synchronous_commit'), current_setting('fsync'), current_setting('shared_buffers')";
const WAL: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8";
/// Of all tables together: which there are is the store's business.
const DEAD: &str = "SELECT coalesce(sum(n_dead_tup), 0)::int8, coalesce(sum(n_tup_upd + n_tup_del), 0)::int8 \
     FROM pg_stat_user_tables";
const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
     AND backend_type = 'client backend' AND application_name <> $1";

/// The server.
pub(super) struct PostgresServer {
    url: String,
    client: Client,
    about: String,
    /// Settings that are off, and make it faster than a durable one.
    unsafe_settings: Vec<&'static str>,
    /// The databases it has of this benchmark.
    made: Mutex<Vec<String>>,
    next: AtomicU64,
}

impl PostgresServer {
    /// Connects, and asks what it is.
    pub(super) async fn find(url: &str) -> Result<Arc<Self>, Failure> {
        let client = connect(url).await.map_err(|fault| not_connected(url, fault))?;
        Self::ask(url, client).await.map_err(Failure::Server)
    }

    async fn ask(url: &str, client: Client) -> anyhow::Result<Arc<Self>> {
        let row =
            client.query_one(ABOUT, &[]).await.context("asking the PostgreSQL server for its settings")?;
        let version: i64 = row.try_get(1)?;
        ensure!(
            version >= VERSION_MIN,
            "the benchmark needs PostgreSQL {VERSION_MIN} or newer; this is {version}"
        );
        let [name, commit, fsync, buffers] =
            [row.try_get::<_, String>(0)?, row.try_get(2)?, row.try_get(3)?, row.try_get(4)?];
        let off = [("synchronous_commit", &commit), ("fsync", &fsync)].into_iter();
        Ok(Arc::new(Self {
            url: url.to_owned(),
            client,
            unsafe_settings: off.filter(|(_, value)| *value == "off").map(|(setting, _)| setting).collect(),
            about: format!(
                "PostgreSQL {name}, synchronous_commit={commit}, fsync={fsync}, shared_buffers={buffers}"
            ),
            made: Mutex::default(),
            next: AtomicU64::new(0),
        }))
    }

    /// Its version, and the settings that matter here.
    pub(super) fn about(&self) -> &str {
        &self.about
    }

    /// What should be known before its figures are believed.
    pub(super) fn warning(&self) -> Option<String> {
        (!self.unsafe_settings.is_empty()).then(|| {
            format!(
                "{} off at the PostgreSQL server: it does not wait for the disk, and its figures are better than those \
                 of one that loses nothing",
                self.unsafe_settings.join(" and ")
            )
        })
    }

    /// A new, empty database.
    pub(super) async fn make(self: &Arc<Self>, sync: Sync) -> anyhow::Result<Database> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidewheel_bench_{}_{number}", std::process::id());
        self.made().push(name.clone());
        self.run(&format!("CREATE DATABASE {name}")).await.context(
            "making a database for the benchmark: the user of the URL must be allowed to (ALTER ROLE … CREATEDB)",
        )?;
        if sync == Sync::Off {
            self.run(&format!("ALTER DATABASE {name} SET synchronous_commit = off")).await?;
        }
        let url = with_database(&self.url, &name).context("the URL of the store names no server")?;
        let client = connect(&url).await?;
        Ok(Database { server: Arc::clone(self), name, url, client })
    }

    /// Drops whatever is left of the benchmark.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        let left: Vec<String> = self.made().drain(..).collect();
        for name in left {
            self.run(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
                .await
                .with_context(|| format!("dropping the benchmark's database {name}: it is left behind"))?;
        }
        Ok(())
    }

    async fn run(&self, statement: &str) -> anyhow::Result<()> {
        Ok(tokio::time::timeout(PATIENCE, self.client.batch_execute(statement)).await??)
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows that no transaction sees any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeadRows {
    /// Those that have not been vacuumed.
    pub(super) left: u64,
    /// Updates and deletes: every one that there ever was.
    pub(super) made: u64,
}

/// A database of the benchmark's own.
pub(super) struct Database {
    server: Arc<PostgresServer>,
    name: String,
    url: String,
    client: Client,
}

impl Database {
    /// Where it is.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Bytes of log the server has written in all, whoever had it written.
    pub(super) async fn wal_bytes(&self) -> anyhow::Result<u64> {
        let bytes: i64 =
            self.client.query_one(WAL, &[]).await.context("reading the position of the log")?.try_get(0)?;
        Ok(bytes.unsigned_abs())
    }

    /// What it takes on disk.
    pub(super) async fn disk_bytes(&self) -> anyhow::Result<u64> {
        let row = self.client.query_one("SELECT pg_database_size(current_database())", &[]).await?;
        Ok(row.try_get::<_, i64>(0)?.unsigned_abs())
    }

    /// Dead rows of all tables. Waits until the servers' connections are gone: only then have all of them told what they did.
    pub(super) async fn dead_rows(&self) -> anyhow::Result<DeadRows> {
        let watch = Stopwatch::start();
        while self.client.query_one(OTHERS, &[&APPLICATION]).await?.try_get::<_, i64>(0)? > 0 {
            if watch.elapsed() > PATIENCE {
                bail!("the connections of a stopped server do not end");
            }
            pause(LOOK).await;
        }
        let row = self.client.query_one(DEAD, &[]).await.context("counting dead rows")?;
        let [left, made] = [row.try_get::<_, i64>(0)?, row.try_get(1)?];
        Ok(DeadRows { left: left.unsigned_abs(), made: made.unsigned_abs() })
    }

    /// Has what was stored so far vacuumed and written out, so that neither happens while something is measured. Not everybody
    /// may ask for that, and it is no matter.
    pub(super) async fn settle(&self) {
        drop(tokio::time::timeout(PATIENCE, self.client.batch_execute("VACUUM (FREEZE, ANALYZE)")).await);
        self.write_out().await;
    }

    /// Has what is in the server's memory written out; the same goes for it.
    pub(super) async fn write_out(&self) {
        drop(tokio::time::timeout(PATIENCE, self.client.batch_execute("CHECKPOINT")).await);
    }

    /// Begins a transaction that nobody ends: until it is dropped, no row that it could see is vacuumed.
    pub(super) async fn hold_transaction(&self) -> anyhow::Result<OpenTransaction> {
        const BEGIN: &str = "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ; \
             SELECT txid_current()";
        let client = connect(&self.url).await?;
        client.batch_execute(BEGIN).await.context("opening a transaction")?;
        Ok(OpenTransaction { client })
    }

    /// Drops it, whoever is still connected.
    pub(super) async fn remove(self) -> anyhow::Result<()> {
        let Self { server, name, client, .. } = self;
        drop(client);
        server.run(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        server.made().retain(|made| *made != name);
        Ok(())
    }
}

/// A transaction under way; over when dropped.
pub(super) struct OpenTransaction {
    client: Client,
}

impl OpenTransaction {
    /// How old it is. Fails if it has ended meanwhile: then nothing was measured with it.
    pub(super) async fn age(&self) -> anyhow::Result<Duration> {
        // Inside of it, this is when it began.
        const AGE: &str = "SELECT (extract(epoch FROM clock_timestamp() - now()) * 1000)::int8";
        let row = self.client.query_one(AGE, &[]).await.context("the old transaction has ended meanwhile")?;
        Ok(Duration::from_millis(row.try_get::<_, i64>(0)?.unsigned_abs()))
    }
}

/// What is told of a server that does not let the benchmark in, or is not there.
fn not_connected(url: &str, fault: anyhow::Error) -> Failure {
    let server = shown(url);
    if fault.is::<tidewheel_store::Error>() {
        return Failure::Usage(format!("the PostgreSQL server at {server} cannot be used: {fault:#}"));
    }
    let said = fault.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    if said.is_some() {
        return Failure::Refused(format!(
            "the PostgreSQL server at {server} refuses the benchmark: {fault:#}"
        ));
    }
    Failure::Unreachable(format!(
        "the PostgreSQL server at {server} cannot be reached: is it running, and the URL right? {fault:#}"
    ))
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let (mut config, tls) = tidewheel_store_postgres::connector(url)?;
    config.connect_timeout(CONNECT).application_name(APPLICATION);
    // The server answers the connection, but may not answer on it.
    let (client, connection) = tokio::time::timeout(CONNECT * 2, config.connect(tls))
        .await
        .context("it takes connections, but does not answer")??;
    // What breaks is told by the calls that are made over it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// The same server, another database.
fn with_database(url: &str, name: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let server = place.split('/').next()?;
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Some(format!("{scheme}://{server}/{name}{query}"))
}

/// A URL without the password in it.
pub(super) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (place, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    let path = path.split('?').next().unwrap_or_default();
    let Some((user, hosts)) = place.rsplit_once('@') else { return format!("{scheme}://{place}{path}") };
    let user = user.split(':').next().unwrap_or_default();
    format!("{scheme}://{user}@{hosts}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_of_a_url_is_replaced() {
        for (url, wanted) in [
            ("postgres://u:p@h:5432/db", "postgres://u:p@h:5432/x"),
            ("postgresql://h", "postgresql://h/x"),
            ("postgres://a:1,b:2/db?sslmode=require", "postgres://a:1,b:2/x?sslmode=require"),
            ("postgres://%2Ftmp?user=u", "postgres://%2Ftmp/x?user=u"),
        ] {
            assert_eq!(with_database(url, "x").as_deref(), Some(wanted));
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        for (url, wanted) in [
            ("postgres://u:secret@h:5432/db", "postgres://u@h:5432/db"),
            ("postgres://u:s@cret@h/db?password=secret", "postgres://u@h/db"),
            ("postgres://h?password=secret", "postgres://h"),
            ("postgres://h:1/db", "postgres://h:1/db"),
        ] {
            assert_eq!(shown(url), wanted);
        }
    }
}

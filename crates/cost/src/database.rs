//! The PostgreSQL server: a database of its own for every entry, and what the server says or shows of what it did.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use tokio_postgres::{Client, NoTls};

use crate::profile::Profile;
use crate::proxy::Proxy;
use crate::trace::Calls;
use crate::watched::{counted, log_length};

const APPLICATION: &str = "tidewheel-cost";
const WAL: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8";
/// Callgrind is told to write down what it has counted, and to begin anew, wherever this function is called: that marks a
/// window's begin and end in processes that take no orders from outside.
const MARK: &str = "SELECT pg_conf_load_time()";
const BACKENDS: &str = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
     AND backend_type = 'client backend' AND application_name <> $1 ORDER BY pid";

/// How PostgreSQL is reached.
#[derive(Debug, Clone)]
pub(crate) struct Postgres {
    /// As `scripts/with-postgres` gives it: a user, no password, an address, a database.
    pub(crate) url: String,
    /// Where its processes write what valgrind counts, if they run under it.
    pub(crate) counted_in: Option<PathBuf>,
}

/// A database of its own, behind a proxy.
pub(crate) struct Database {
    client: Client,
    proxy: Proxy,
    url: String,
    counted_in: Option<PathBuf>,
    backends: Vec<Backend>,
    begin: (u64, u64),
}

/// A process that serves a connection, under callgrind.
struct Backend {
    dump: PathBuf,
    log: PathBuf,
    log_begin: usize,
}

/// What a window cost outside the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outside {
    pub(crate) round_trips: u64,
    pub(crate) wal_bytes: u64,
    /// Of the processes that serve the server's connections, where they can be counted.
    pub(crate) backends: Option<(Profile, Calls)>,
}

impl Database {
    pub(crate) async fn make(postgres: &Postgres) -> anyhow::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("tidewheel_cost_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let first = connect(&postgres.url).await?;
        first.batch_execute(&format!("CREATE DATABASE {name}")).await.context("making a database")?;
        let (scheme, user, address) = parts(&postgres.url).context("reading the URL of PostgreSQL")?;
        let client = connect(&format!("{scheme}://{user}@{address}/{name}")).await?;
        let proxy = Proxy::start(address).await?;
        let url = format!("{scheme}://{user}@{}/{name}", proxy.address);
        let counted_in = postgres.counted_in.clone();
        Ok(Self { client, proxy, url, counted_in, backends: Vec::new(), begin: (0, 0) })
    }

    /// Where the server finds it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Starts a window.
    pub(crate) async fn begin(&mut self) -> anyhow::Result<()> {
        self.backends.clear();
        if let Some(folder) = self.counted_in.clone() {
            self.proxy.say_on_all(MARK).await?;
            for row in self.client.query(BACKENDS, &[&APPLICATION]).await? {
                let pid: i32 = row.try_get(0)?;
                let file = |what: &str| folder.join(format!("{pid}.{what}"));
                let log_begin = log_length(&file("log")).context("counting the database")?;
                self.backends.push(Backend { dump: file("out"), log: file("log"), log_begin });
            }
        }
        self.begin = (self.proxy.trips(), self.wal_bytes().await?);
        Ok(())
    }

    /// Ends it.
    pub(crate) async fn end(&mut self) -> anyhow::Result<Outside> {
        let round_trips = self.proxy.trips() - self.begin.0;
        let wal_bytes = self.wal_bytes().await? - self.begin.1;
        let mut ends = Vec::with_capacity(self.backends.len());
        for backend in &self.backends {
            ends.push(log_length(&backend.log)?);
        }
        if self.counted_in.is_some() {
            self.proxy.say_on_all(MARK).await?;
        }
        let mut backends = None;
        for (backend, log_end) in self.backends.iter().zip(ends) {
            // One that was made just before, or has been closed, is the server's own business.
            let Some(dump) = last_dump(&backend.dump) else { continue };
            let (profile, calls) = counted(&dump, &backend.log, backend.log_begin..log_end)?;
            let (sum, all): &mut (Profile, Calls) = backends.get_or_insert_default();
            sum.instructions += profile.instructions;
            sum.allocations += profile.allocations;
            all.all += calls.all;
            all.syncs += calls.syncs;
            all.file_bytes += calls.file_bytes;
        }
        Ok(Outside { round_trips, wal_bytes, backends })
    }

    async fn wal_bytes(&self) -> anyhow::Result<u64> {
        let row = self.client.query_one(WAL, &[]).await.context("reading the position of the log")?;
        Ok(row.try_get::<_, i64>(0)?.unsigned_abs())
    }
}

/// The last that a process has written: they are numbered.
fn last_dump(dump: &Path) -> Option<PathBuf> {
    let numbered = |number: u32| {
        let mut path = dump.to_owned().into_os_string();
        path.push(format!(".{number}"));
        PathBuf::from(path)
    };
    (1..).map(numbered).take_while(|path| path.exists()).last()
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let mut config: tokio_postgres::Config = url.parse().context("reading the URL of PostgreSQL")?;
    config.application_name(APPLICATION);
    let (client, connection) = config.connect(NoTls).await.context("connecting to PostgreSQL")?;
    tokio::spawn(connection);
    Ok(client)
}

/// Scheme, user and address.
fn parts(url: &str) -> Option<(&str, &str, SocketAddr)> {
    let (scheme, rest) = url.split_once("://")?;
    let (user, rest) = rest.split_once('@')?;
    let address = rest.split('/').next()?.parse().ok()?;
    Some((scheme, user, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_user_and_an_address() {
        let found = parts("postgresql://tidewheel@127.0.0.1:20001/postgres");
        assert_eq!(found, Some(("postgresql", "tidewheel", ([127, 0, 0, 1], 20_001).into())));
        assert_eq!(parts("postgresql://127.0.0.1:20001/postgres"), None);
    }
}

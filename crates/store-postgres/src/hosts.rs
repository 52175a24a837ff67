//! Which of several servers to connect to. A URL may name more than one (`postgres://a:5432,b:5432/name`): the one that
//! takes writes is the database, whichever that is at the moment.
//!
//! Each is given a bounded time, also to greet: one that hangs must not keep us from another that works. A server that
//! takes writes on an older timeline than the newest that was seen is one that was failed over from and came back;
//! what is written there would be lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::Connect;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, SimpleQueryMessage, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// Between two rounds in which no server was of use and none said why.
const AGAIN: Duration = Duration::from_millis(250);
/// A server may be asked for its timeline this way whoever asks; one that does not know the functions is believed.
const TIMELINE: &str = "SELECT CASE WHEN pg_is_in_recovery() THEN 0 \
    ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END";

/// The servers of one URL.
pub(crate) struct Hosts {
    each: Vec<Config>,
    tls: MakeRustlsConnect,
    /// How long each is given.
    patience: Duration,
    /// The one that was of use last.
    last: AtomicUsize,
    /// The newest timeline that was seen on any of them; 0 is none yet.
    timeline: AtomicI64,
}

impl Hosts {
    pub(crate) fn new(config: &Config, tls: MakeRustlsConnect, connect: Duration) -> Self {
        let count = config.get_hosts().len().max(config.get_hostaddrs().len());
        let each: Vec<Config> = match count {
            0 | 1 => vec![config.clone()],
            count => (0..count).map(|index| only(config, index)).collect(),
        };
        let patience = connect / u32::try_from(each.len()).unwrap_or(u32::MAX).max(1);
        Self { each, tls, patience, last: AtomicUsize::new(0), timeline: AtomicI64::new(0) }
    }

    /// A connection to a server of use, not checked for its timeline. Goes on trying while none says why not; callers bound
    /// it.
    pub(crate) async fn connect(&self) -> Result<(Client, Connection<Socket, Stream>), Error> {
        self.first_of(move |index| self.connect_to(index)).await
    }

    /// The same, driven by a task of its own; of several servers, only one of the newest timeline.
    pub(crate) async fn connect_driven(&self) -> Result<(Client, JoinHandle<()>), Error> {
        if self.each.len() == 1 {
            return Ok(drive(self.connect().await?));
        }
        if self.timeline.load(Ordering::SeqCst) == 0 {
            // Not even one that was there before this process is to be taken for the newest unseen.
            let mut newest = 0;
            for index in 0..self.each.len() {
                let is_of_use = matches!(self.connect_newest(index).await, Some(Ok(_)));
                let seen = self.timeline.load(Ordering::SeqCst);
                if is_of_use && seen > newest {
                    newest = seen;
                    // Asked first below: another that hangs would use up the time once more.
                    self.last.store(index, Ordering::SeqCst);
                }
            }
        }
        self.first_of(move |index| self.connect_newest(index)).await
    }

    /// Whatever connects first, asked for in turn; goes on while none says why not.
    async fn first_of<T, F>(&self, connect: impl Fn(usize) -> F + Send) -> Result<T, Error>
    where
        T: Send,
        F: Future<Output = Option<Result<T, Error>>> + Send,
    {
        let mut rounds = tokio::time::interval(AGAIN);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            let mut refused = None;
            for index in self.order() {
                match connect(index).await {
                    Some(Ok(connected)) => {
                        self.last.store(index, Ordering::SeqCst);
                        return Ok(connected);
                    }
                    // What a server says of itself tells more than that another is none of use.
                    Some(Err(error)) if refused.as_ref().is_none_or(has_no_code) => refused = Some(error),
                    Some(Err(_)) | None => {}
                }
            }
            if let Some(error) = refused {
                return Err(error);
            }
        }
    }

    /// The one that was of use last, then the others.
    fn order(&self) -> impl Iterator<Item = usize> {
        let (first, count) = (self.last.load(Ordering::SeqCst), self.each.len());
        (0..count).map(move |step| (first + step) % count)
    }

    /// None when it did not answer in time.
    async fn connect_to(&self, index: usize) -> Option<Result<(Client, Connection<Socket, Stream>), Error>> {
        let config = self.each.get(index)?;
        tokio::time::timeout(self.patience, config.connect(self.tls.clone())).await.ok()
    }

    /// None when it did not answer in time, or was failed over from.
    async fn connect_newest(&self, index: usize) -> Option<Result<(Client, JoinHandle<()>), Error>> {
        let (client, driver) = match self.connect_to(index).await? {
            Ok(connected) => drive(connected),
            Err(error) => return Some(Err(error)),
        };
        let asked = tokio::time::timeout(self.patience, client.simple_query(TIMELINE)).await.ok()?;
        let found = asked.ok().and_then(|messages| timeline_of(&messages)).unwrap_or(i64::MAX);
        if found == i64::MAX {
            return Some(Ok((client, driver)));
        }
        let newest = self.timeline.fetch_max(found, Ordering::SeqCst);
        if found < newest {
            tracing::warn!(found, newest, "a server of the database was failed over from; it is not used");
            return None;
        }
        Some(Ok((client, driver)))
    }
}

fn has_no_code(error: &Error) -> bool {
    error.code().is_none()
}

fn drive((client, connection): (Client, Connection<Socket, Stream>)) -> (Client, JoinHandle<()>) {
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the database ended");
        }
    });
    (client, driver)
}

fn timeline_of(messages: &[SimpleQueryMessage]) -> Option<i64> {
    messages.iter().find_map(|message| {
        let SimpleQueryMessage::Row(row) = message else { return None };
        row.get(0)?.parse().ok()
    })
}

/// The configuration with one of its hosts only, which must take writes unless the URL says otherwise.
fn only(config: &Config, index: usize) -> Config {
    let mut one = Config::new();
    match config.get_hosts().get(index) {
        Some(Host::Tcp(name)) => drop(one.host(name)),
        #[cfg(unix)]
        Some(Host::Unix(path)) => drop(one.host_path(path)),
        None => {}
    }
    if let Some(address) = config.get_hostaddrs().get(index) {
        one.hostaddr(*address);
    }
    if let Some(port) = config.get_ports().get(index).or_else(|| config.get_ports().first()) {
        one.port(*port);
    }
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(name) = config.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    let given = config.get_target_session_attrs();
    let attributes = if given == TargetSessionAttrs::Any { TargetSessionAttrs::ReadWrite } else { given };
    one.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(attributes);
    one
}

/// How pools connect.
pub(crate) struct ByHosts(pub(crate) Arc<Hosts>);

type Connecting<'a> =
    std::pin::Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + 'a>>;

impl Connect for ByHosts {
    fn connect(&self, _: &Config) -> Connecting<'_> {
        Box::pin(self.0.connect_driven())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_several_servers_gives_each_all_that_it_says() {
        let url = "postgres://me:secret@a:1,b:2/name?connect_timeout=3&application_name=x&sslmode=require";
        let (config, tls) = crate::tls::connector(url).unwrap();
        let hosts = Hosts::new(&config, tls, Duration::from_secs(4));
        assert_eq!(hosts.patience, Duration::from_secs(2));
        for (one, (name, port)) in hosts.each.iter().zip([("a", 1), ("b", 2)]) {
            assert_eq!(one.get_hosts(), [Host::Tcp(name.to_owned())]);
            assert_eq!(one.get_ports(), [port]);
            assert_eq!((one.get_user(), one.get_password()), (Some("me"), Some(b"secret".as_slice())));
            assert_eq!((one.get_dbname(), one.get_application_name()), (Some("name"), Some("x")));
            assert_eq!(one.get_ssl_mode(), config.get_ssl_mode());
            assert_eq!(one.get_connect_timeout(), config.get_connect_timeout());
            assert_eq!(one.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        }
        hosts.last.store(1, Ordering::SeqCst);
        assert_eq!(hosts.order().collect::<Vec<_>>(), [1, 0]);
    }
}

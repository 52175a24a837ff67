//! Two database servers, one the synchronous standby of the other, which change places.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::postgres::{Postgres, Setup};

/// Two servers.
#[derive(Debug)]
pub struct Pair {
    servers: [Postgres; 2],
    primary: AtomicUsize,
}

impl Pair {
    /// Starts both.
    ///
    /// # Errors
    /// When one does not start.
    pub fn start(setup: &Setup) -> anyhow::Result<Self> {
        let primary = Postgres::start(setup.clone())?;
        let standby = Postgres::prepare(setup.clone())?;
        standby.replicate(&primary)?;
        primary.wait_for_standby()?;
        Ok(Self { servers: [primary, standby], primary: AtomicUsize::new(0) })
    }

    /// Both, in the order of the URL.
    #[must_use]
    pub const fn servers(&self) -> &[Postgres; 2] {
        &self.servers
    }

    /// The one that takes writes.
    #[must_use]
    pub fn primary(&self) -> &Postgres {
        let [first, second] = &self.servers;
        if self.primary.load(Ordering::SeqCst) == 0 { first } else { second }
    }

    /// The other.
    #[must_use]
    pub fn standby(&self) -> &Postgres {
        let [first, second] = &self.servers;
        if self.primary.load(Ordering::SeqCst) == 0 { second } else { first }
    }

    /// How a node reaches whichever is the primary.
    #[must_use]
    pub fn url(&self) -> String {
        url(&self.servers.each_ref().map(|server| (server.host().to_owned(), server.port())))
    }

    /// The primary dies, and the standby takes its place.
    ///
    /// # Errors
    /// When it does not.
    pub fn fail_over(&self) -> anyhow::Result<()> {
        self.primary().crash();
        self.standby().promote()?;
        self.primary.fetch_xor(1, Ordering::SeqCst);
        Ok(())
    }

    /// The one that died becomes the standby of the other.
    ///
    /// # Errors
    /// When it does not.
    pub fn restore(&self) -> anyhow::Result<()> {
        self.standby().crash();
        self.standby().replicate(self.primary())?;
        self.primary().wait_for_standby()
    }
}

/// The URL of several servers.
#[must_use]
pub fn url(servers: &[(String, u16)]) -> String {
    let hosts: Vec<String> = servers.iter().map(|(host, port)| format!("{host}:{port}")).collect();
    format!("postgres://tidewheel@{}/postgres?target_session_attrs=read-write", hosts.join(","))
}

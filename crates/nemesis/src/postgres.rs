//! A PostgreSQL of a run's own: on a free port, in a temporary folder, ended and removed with the run. It can be killed,
//! paused, filled up and started again.

use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;

use crate::clock;
use crate::process::{Owned, Signal, descendants, is_root, run, signal};

/// How long a server may take to come up, or to go.
const PATIENCE: Duration = Duration::from_secs(300);
/// The user that owns everything; PostgreSQL refuses to run as root.
const USER: &str = "postgres";
/// How long a namespace is held at most.
const HOLD_S: &str = "7200";

/// A standby is back soon, and finds what it missed.
const SETTINGS: &str =
    "wal_retrieve_retry_interval = '500ms'\nwal_keep_size = '1GB'\nmax_connections = 200\n";

/// How to set up a server.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Where it listens.
    pub host: String,
    /// Settings, each as `name=value`.
    pub settings: Vec<String>,
    /// Where its log is kept; none is with its data, and goes with it.
    pub logs: Option<PathBuf>,
    /// Keeps the data, but not the write-ahead log, on a file system of so many megabytes. Needs root.
    pub space_mb: Option<u32>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { host: "127.0.0.1".to_owned(), settings: Vec::new(), logs: None, space_mb: None }
    }
}

/// A database server.
#[derive(Debug)]
pub struct Postgres {
    folder: TempDir,
    programs: PathBuf,
    setup: Setup,
    port: u16,
    /// Keeps the port from others until the first start.
    reserved: Mutex<Option<TcpListener>>,
    /// Holds the mount namespace with the small file system.
    space: Option<Owned>,
    server: Mutex<Option<Owned>>,
}

impl Postgres {
    /// Makes an empty database and starts it.
    ///
    /// # Errors
    /// When PostgreSQL is missing or does not start.
    pub fn start(setup: Setup) -> anyhow::Result<Self> {
        let postgres = Self::prepare(setup)?;
        let wal = postgres.folder.path().join("wal");
        let mut initdb = postgres.program("initdb");
        initdb.arg("-D").arg(postgres.data()).arg("-X").arg(wal);
        run(initdb.args(["-U", "tidewheel", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]))?;
        let rules = "host all all 10.0.0.0/8 trust\nhost replication all 10.0.0.0/8 trust\n";
        postgres.append("pg_hba.conf", rules)?;
        postgres.append("postgresql.conf", SETTINGS)?;
        postgres.begin()?;
        Ok(postgres)
    }

    /// A folder and a port, and nothing in it.
    pub(crate) fn prepare(setup: Setup) -> anyhow::Result<Self> {
        let programs = programs()?;
        let folder = TempDir::new()?;
        let data = folder.path().join("data");
        if is_root() {
            run(Command::new("chown").arg(USER).arg(folder.path()))?;
        }
        let reserved = TcpListener::bind((setup.host.as_str(), 0))?;
        let port = reserved.local_addr()?.port();
        let space = setup.space_mb.map(|space_mb| small(&data, space_mb)).transpose()?;
        let (reserved, server) = (Mutex::new(Some(reserved)), Mutex::new(None));
        Ok(Self { folder, programs, setup, port, reserved, space, server })
    }

    /// Where it listens.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.setup.host
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// How a node reaches it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://tidewheel@{}:{}/postgres", self.setup.host, self.port)
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Errors
    /// When it does not.
    pub fn begin(&self) -> anyhow::Result<()> {
        let folder = self.setup.logs.as_deref().unwrap_or(self.folder.path());
        let log = folder.join(format!("postgres-{}.log", self.port));
        let said = File::options().create(true).append(true).open(&log)?;
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.data()).args([
            "-h",
            &self.setup.host,
            "-p",
            &self.port.to_string(),
            "-k",
            "",
        ]);
        for setting in &self.setup.settings {
            command.args(["-c", setting]);
        }
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        drop(self.reserved.lock().unwrap_or_else(PoisonError::into_inner).take());
        *self.lock() = Some(Owned::spawn(&mut command)?);
        let up = clock::until(PATIENCE, || {
            if self.lock().as_mut().is_none_or(|server| server.ended().is_some()) {
                return Some(false);
            }
            self.try_ask("SELECT 1").ok().map(|_| true)
        });
        anyhow::ensure!(up == Some(true), "PostgreSQL did not start: {}", tail(&log));
        Ok(())
    }

    /// kill -9 of all of its processes.
    pub fn crash(&self) {
        let Some(mut server) = self.lock().take() else { return };
        let children = descendants(server.id());
        server.kill();
        for child in &children {
            signal(*child, Signal::KILL);
        }
        // The next start is refused while one of them is left.
        clock::until(PATIENCE, || children.iter().all(|child| !is_there(*child)).then_some(()));
    }

    /// Stops it in order, as a restart does.
    pub fn stop(&self) {
        let Some(mut server) = self.lock().take() else { return };
        signal(server.id(), Signal::INT);
        clock::until(PATIENCE, || server.ended());
    }

    /// Lets none of its processes run until it is resumed. Connections are still made, by the system.
    pub fn pause(&self) {
        self.signal_all(Signal::STOP);
    }

    /// Lets it run again.
    pub fn resume(&self) {
        self.signal_all(Signal::CONT);
    }

    fn signal_all(&self, which: Signal) {
        let Some(id) = self.lock().as_ref().map(Owned::id) else { return };
        signal(id, which);
        for child in descendants(id) {
            signal(child, which);
        }
    }

    /// What a statement gives, as text.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn try_ask(&self, sql: &str) -> anyhow::Result<String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.env("PGCONNECT_TIMEOUT", "60").args(["-X", "-d", &self.url(), "-tAc", sql]);
        run(psql.stdin(Stdio::null()))
    }

    /// A client that holds a connection, and does nothing but what `sql` says, until it is dropped.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn hold(&self, user: &str, sql: &str) -> anyhow::Result<Owned> {
        let url = format!("postgres://{user}@{}:{}/postgres", self.setup.host, self.port);
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-d", &url, "-tAc", sql]);
        Owned::spawn(psql.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// Makes this the primary; it was a standby.
    ///
    /// # Errors
    /// When it does not become one.
    pub fn promote(&self) -> anyhow::Result<()> {
        self.try_ask("SELECT pg_promote()")?;
        let done = clock::until(PATIENCE, || {
            (self.try_ask("SELECT pg_is_in_recovery()").ok()? == "f").then_some(())
        });
        done.context("the standby did not become the primary")
    }

    /// Copies the data of another, and starts as its standby.
    ///
    /// # Errors
    /// When it cannot be copied or started.
    pub fn replicate(&self, primary: &Self) -> anyhow::Result<()> {
        let data = self.data();
        if data.exists() {
            std::fs::remove_dir_all(&data)?;
        }
        let of = format!(
            "host={} port={} user=tidewheel application_name=standby_{}",
            primary.host(),
            primary.port(),
            self.port
        );
        let mut backup = self.program("pg_basebackup");
        run(backup.arg("-D").arg(&data).args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", &of]))?;
        // It is not to wait for a standby of its own once it is the primary.
        self.append("postgresql.auto.conf", "synchronous_standby_names = ''\n")?;
        self.begin()
    }

    /// Makes commits wait for a standby, which must be there.
    ///
    /// # Errors
    /// When there is none in time.
    pub fn wait_for_standby(&self) -> anyhow::Result<()> {
        self.try_ask("ALTER SYSTEM SET synchronous_standby_names = '*'")?;
        self.try_ask("SELECT pg_reload_conf()")?;
        let found = clock::until(PATIENCE, || {
            let ask = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
            (self.try_ask(ask).ok()? == "1").then_some(())
        });
        found.context("no synchronous standby")
    }

    /// A file on the file system the data is on, seen from outside.
    #[must_use]
    pub fn ballast(&self) -> PathBuf {
        let inside = self.data().join("ballast");
        match &self.space {
            Some(holder) => {
                let inside = inside.strip_prefix("/").unwrap_or(&inside).to_owned();
                PathBuf::from(format!("/proc/{}/root", holder.id())).join(inside)
            }
            None => inside,
        }
    }

    fn append(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let path = match &self.space {
            Some(_) => self.ballast().with_file_name(file),
            None => self.data().join(file),
        };
        let mut file = File::options().append(true).open(path)?;
        Ok(file.write_all(text.as_bytes())?)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        let mut words: Vec<String> = Vec::new();
        if let Some(holder) = &self.space {
            words.extend(["nsenter".to_owned(), format!("--mount=/proc/{}/ns/mnt", holder.id())]);
        }
        if is_root() {
            let change = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];
            words.extend(change.map(str::to_owned));
        }
        words.push(self.programs.join(name).display().to_string());
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).current_dir(self.folder.path());
        command
    }

    fn lock(&self) -> MutexGuard<'_, Option<Owned>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.crash();
    }
}

fn is_there(id: u32) -> bool {
    // One that ended and was not waited for yet is there in name only.
    std::fs::read_to_string(format!("/proc/{id}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}

/// A small file system at `folder`, in a mount namespace that lasts as long as its holder.
fn small(folder: &Path, space_mb: u32) -> anyhow::Result<Owned> {
    std::fs::create_dir(folder)?;
    let mount = format!(
        "mount -t tmpfs -o size={space_mb}m,mode=0700 tmpfs '{0}' && chown {USER}: '{0}' && exec sleep {HOLD_S}",
        folder.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &mount]).stdin(Stdio::null());
    let mut holder = Owned::spawn(&mut command)?;
    let name = format!("/proc/{}/comm", holder.id());
    let ready = clock::until(PATIENCE, || {
        if holder.ended().is_some() {
            return Some(false);
        }
        (std::fs::read_to_string(&name).ok()?.trim() == "sleep").then_some(true)
    });
    anyhow::ensure!(ready == Some(true), "a small file system cannot be mounted here");
    Ok(holder)
}

/// The folder of the newest version's programs.
fn programs() -> anyhow::Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<_> = versions.map(|entry| entry.path()).collect();
    folders.sort_by_key(|folder| folder.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let found =
        folders.pop().map(|folder| folder.join("bin")).filter(|folder| folder.join("initdb").exists());
    found.context("PostgreSQL is missing: `scripts/with-postgres true` installs it on Debian")
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(8).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

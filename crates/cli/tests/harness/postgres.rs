//! A PostgreSQL of a test's own: on a free port of loopback, in a temporary folder, stopped and removed at the end.
//! It can be killed and started again.

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// How many seconds it may take to start and to stop.
const PATIENCE_S: &str = "300";

/// A database server.
pub(crate) struct Postgres {
    folder: TempDir,
    programs: PathBuf,
    port: u16,
}

impl Postgres {
    pub(crate) fn start() -> Self {
        let programs = programs();
        let folder = TempDir::new().unwrap();
        if is_root() {
            // PostgreSQL refuses to run as root.
            run(Command::new("chown").arg("postgres").arg(folder.path()));
        }
        let mut postgres = Self { folder, programs, port: 0 };
        let data = postgres.data();
        run(postgres.program("initdb").arg("-D").arg(&data).args([
            "-U",
            "tidewheel",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]));
        // Not before: what comes first takes seconds, in which somebody else could get it.
        postgres.port = free_port();
        postgres.begin();
        postgres
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://tidewheel@127.0.0.1:{}/postgres", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Starts it again.
    pub(crate) fn begin(&self) {
        let data = self.data();
        let settings = format!("-h 127.0.0.1 -p {} -k '{}'", self.port, data.display());
        run(self
            .program("pg_ctl")
            .arg("-D")
            .arg(&data)
            .args(["-w", "-t", PATIENCE_S, "-o", &settings, "-l"])
            .arg(data.join("server.log"))
            .arg("start"));
    }

    /// Stops it as a crash would: what was not synced is gone.
    pub(crate) fn crash(&self) {
        run(self.program("pg_ctl").arg("-D").arg(self.data()).args([
            "-m",
            "immediate",
            "-w",
            "-t",
            PATIENCE_S,
            "stop",
        ]));
    }

    /// Lets only those in from now on who speak TLS and show a certificate of that authority.
    pub(crate) fn require_tls(&self, [certificate, key]: &[PathBuf; 2], authority: &Path) {
        let data = self.data();
        for (from, name) in
            [(certificate, "server.crt"), (key, "server.key"), (&authority.to_owned(), "root.crt")]
        {
            let to = data.join(name);
            std::fs::copy(from, &to).unwrap();
            std::fs::set_permissions(&to, Permissions::from_mode(0o600)).unwrap();
            if is_root() {
                run(Command::new("chown").arg("postgres").arg(&to));
            }
        }
        let mut settings = std::fs::read_to_string(data.join("postgresql.conf")).unwrap();
        settings.push_str("\nssl = on\nssl_ca_file = 'root.crt'\n");
        std::fs::write(data.join("postgresql.conf"), settings).unwrap();
        std::fs::write(data.join("pg_hba.conf"), "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n")
            .unwrap();
        self.crash();
        self.begin();
    }

    /// What a statement gives, as text.
    pub(crate) fn ask(&self, sql: &str) -> String {
        let output = self.program("psql").args([&self.url(), "-tAc", sql]).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(self.folder.path());
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.data().join("postmaster.pid").exists() {
            self.program("pg_ctl").arg("-D").arg(self.data()).args(["-m", "immediate", "stop"]).output().ok();
        }
    }
}

/// A port that nobody has, below those that outgoing connections are given, which could take it while the server is down.
fn free_port() -> u16 {
    let given = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut tries = std::iter::repeat_with(|| 20_000 + given() % 12_000);
    tries.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout.trim_ascii() == b"0"
}

/// The folder of the newest version's programs.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<_> = versions.map(|entry| entry.path().join("bin")).collect();
    folders.sort_by_key(|folder| version(folder));
    let found = folders.pop().filter(|folder| folder.join("initdb").exists());
    found.expect("PostgreSQL is missing: `scripts/with-postgres true` installs it on Debian")
}

fn version(folder: &Path) -> Option<u32> {
    folder.parent()?.file_name()?.to_str()?.parse().ok()
}

fn run(command: &mut Command) {
    // Its output goes nowhere: a server that inherits a pipe would keep it open.
    let status = command.stdout(std::process::Stdio::null()).status().unwrap();
    assert!(status.success(), "{command:?}");
}

//! A network of the run's own: a bridge, and a namespace for each node, so that a node can be cut off from everything as
//! by a cut cable. The whole run is put into namespaces of its own first, so that nothing of it is left behind.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::process::{Owned, run};

/// Set once the run is in namespaces of its own.
const INSIDE: &str = "TIDEWHEEL_NEMESIS_INSIDE";
/// The address of the database, of the target and of the observer.
pub const HUB: &str = "10.213.0.1";
/// All addresses.
pub const RANGE: &str = "10.213.0.0/24";
/// How long a namespace is held at most.
const HOLD_S: &str = "7200";
const BRIDGE: &str = "hub";

/// Whether this process is in namespaces of its own.
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Whether such namespaces can be made here.
#[must_use]
pub fn is_possible() -> bool {
    let tried = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["ip", "link", "add", BRIDGE, "type", "bridge"])
        .output();
    tried.is_ok_and(|output| output.status.success())
}

/// Runs this program again, in namespaces of its own. All that it starts ends with it.
///
/// # Errors
/// When it cannot; otherwise this process becomes that one.
pub fn enter() -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let error = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(error).context("no namespaces can be made here")
}

/// The bridge and the nodes' ends.
#[derive(Debug)]
pub struct Network {
    holders: Vec<Owned>,
}

fn ip(words: &[&str]) -> anyhow::Result<()> {
    run(Command::new("ip").args(words)).map(drop)
}

impl Network {
    /// Lays it.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn lay(nodes: usize) -> anyhow::Result<Self> {
        ip(&["link", "set", "lo", "up"])?;
        ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        ip(&["addr", "add", &format!("{HUB}/24"), "dev", BRIDGE])?;
        ip(&["link", "set", BRIDGE, "up"])?;
        let mut holders = Vec::new();
        for node in 0..nodes {
            let mut command = Command::new("unshare");
            command.args(["--net", "sleep", HOLD_S]).stdin(Stdio::null());
            let holder = Owned::spawn(&mut command)?;
            let id = holder.id().to_string();
            crate::clock::until(std::time::Duration::from_secs(20), || {
                (std::fs::read_to_string(format!("/proc/{id}/comm")).ok()?.trim() == "sleep").then_some(())
            });
            let (near, far) = (format!("node{node}"), format!("far{node}"));
            ip(&["link", "add", &near, "type", "veth", "peer", "name", &far])?;
            ip(&["link", "set", &near, "master", BRIDGE, "up"])?;
            ip(&["link", "set", &far, "netns", &id])?;
            let inside = |words: &[&str]| {
                let net = format!("--net=/proc/{id}/ns/net");
                run(Command::new("nsenter").args([&net, "ip"]).args(words)).map(drop)
            };
            inside(&["link", "set", "lo", "up"])?;
            inside(&["addr", "add", &format!("{}/24", Self::address(node)), "dev", &far])?;
            inside(&["link", "set", &far, "up"])?;
            holders.push(holder);
        }
        Ok(Self { holders })
    }

    /// The address of a node.
    #[must_use]
    pub fn address(node: usize) -> String {
        format!("10.213.0.{}", 10 + node)
    }

    /// A command that will run where a node is.
    #[must_use]
    pub fn command(&self, node: usize, program: &std::path::Path) -> Command {
        let id = self.holders.get(node).map_or(0, Owned::id);
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{id}/ns/net")).arg(program);
        command
    }

    /// Cuts a node off, or joins it again.
    pub fn cut(&self, node: usize, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        ip(&["link", "set", &format!("node{node}"), state]).ok();
    }
}

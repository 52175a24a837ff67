//! File descriptors: every connection, push and store file takes one. The soft limit is often 1,024, far below
//! what the hard limit allows, so it is raised at the start; connections get what the rest leaves.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept back for the store's files, the log and the listener.
const RESERVED: u64 = 1_024;
/// Connections that are taken even if the limit is so low that little else works.
const CONNECTIONS_MIN: u64 = 64;

/// Raises the limit as far as it goes, and says how many connections fit beside `pushes` pushes.
pub fn connections_max(wanted: usize, pushes: usize) -> usize {
    let limit = raise();
    let others = RESERVED.saturating_add(u64::try_from(pushes).unwrap_or(u64::MAX));
    let room = limit.saturating_sub(others).max(CONNECTIONS_MIN);
    let fits = usize::try_from(room).unwrap_or(usize::MAX);
    if fits < wanted {
        tracing::warn!(
            limit,
            connections = fits,
            "few file descriptors are allowed; raise the limit (ulimit -n) to serve more connections"
        );
    }
    wanted.min(fits)
}

/// Raises the limit as far as it goes, and says how far.
pub fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        // Not allowed here: what there is has to do.
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

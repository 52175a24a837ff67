//! Freeing what an opening has read from its journals.
//!
//! The engine flushes it at once, and keeps it in memory all the same until a write buffer of some keyspace is full. Then, at
//! the busiest time, it frees every entry by itself with the keyspace locked. Here it is let go of as soon as it is flushed, by
//! somebody who holds it last and locks nothing.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use fjall::{AbstractTree, Keyspace};

/// From one look whether all is flushed to the next.
const LOOK: Duration = Duration::from_millis(50);
/// A keyspace that is written to all the time may never be seen without a full buffer. What is held keeps files from being
/// removed, so there is an end to it.
const LOOKS_MAX: usize = 1_200;

/// The thread that does it; ends when it is done, or when this is dropped.
#[derive(Default)]
pub(crate) struct Recovered {
    /// Held for its end.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Recovered {
    /// Lets go of what `keyspaces` have recovered, after `written` was written to.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub(crate) fn let_go(mut keyspaces: Vec<Keyspace>, written: Keyspace) -> std::io::Result<Self> {
        keyspaces.retain(|keyspace| {
            keyspace.tree.version_memtable_size_sum() > keyspace.tree.active_memtable().size()
        });
        if keyspaces.is_empty() {
            return Ok(Self::default());
        }
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("tidewheel-recovered".to_owned())
            .spawn(move || hold(&keyspaces, &written, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Recovered {
    /// Waits for the thread, which has the engine open.
    fn drop(&mut self) {
        self.stop.take();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the thread that frees what was recovered panicked");
        }
    }
}

fn hold(keyspaces: &[Keyspace], written: &Keyspace, stopped: &Receiver<()>) {
    // The oldest state of each, which has everything that it began with.
    let held: Vec<_> = keyspaces
        .iter()
        .map(|keyspace| keyspace.tree.get_version_history_lock().get_version_for_snapshot(0))
        .collect();
    for _ in 0..LOOKS_MAX {
        if stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let is_flushed = keyspaces.iter().all(|keyspace| keyspace.tree.sealed_memtable_count() == 0);
        // The engine lets go of what it has flushed when it closes a write buffer. One that is empty it does not close.
        if is_flushed && !matches!(written.rotate_memtable(), Ok(false)) {
            break;
        }
    }
    drop(held);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use fjall::{Database, KeyspaceCreateOptions};

    #[test]
    fn what_was_flushed_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::builder(folder.path()).worker_threads(1).open().unwrap();
        let open = |name: &str| database.keyspace(name, KeyspaceCreateOptions::default).unwrap();
        let (full, other) = (open("full"), open("other"));
        for n in 0..1_000_u32 {
            full.insert(n.to_be_bytes(), [0; 100]).unwrap();
        }
        other.insert("a", "b").unwrap();
        full.rotate_memtable().unwrap();
        let mut recovered = Recovered::let_go(vec![full.clone(), other.clone()], other).unwrap();
        recovered.thread.take().unwrap().join().unwrap();
        assert_eq!(full.tree.sealed_memtable_count(), 0);
        assert_eq!(full.tree.version_memtable_size_sum(), full.tree.active_memtable().size());
        assert_eq!(full.get(7_u32.to_be_bytes()).unwrap().unwrap().len(), 100);
    }

    #[test]
    fn it_does_not_keep_the_engine_open() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            let database = Database::builder(folder.path()).worker_threads(1).open().unwrap();
            let full = database.keyspace("full", KeyspaceCreateOptions::default).unwrap();
            full.insert("a", "b").unwrap();
            full.rotate_memtable().unwrap();
            drop(Recovered::let_go(vec![full.clone()], full).unwrap());
        }
    }
}

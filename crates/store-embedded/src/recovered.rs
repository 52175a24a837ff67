//! Freeing what an opening has read from its journals.
//!
//! The engine flushes it at once, and keeps it in memory all the same until something was written and write buffers were closed
//! after that. Then, at the busiest time, it frees every entry by itself with the keyspace locked. Here somebody else holds it
//! as well, writes a key and has its buffer closed as soon as all is flushed, and lets go last, locking nothing.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use fjall::{AbstractTree, Keyspace};

/// From one look to the next.
const LOOK: Duration = Duration::from_millis(50);
/// What is held keeps files from being removed, so there is an end to it.
const LOOKS_MAX: usize = 1_200;
/// The engine lets go of what is older than the oldest reader and the last write but one. Two closed buffers are enough
/// unless somebody reads for long; each becomes a table of one key.
const CLOSED_COUNT_MAX: usize = 8;

/// The thread that does it; ends when it is done, or when this is dropped.
#[derive(Default)]
pub(crate) struct Recovered {
    /// Held for its end.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Recovered {
    /// Lets go of what `keyspaces` have recovered, by writing `key` to `noted_in`. It need not last.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub(crate) fn let_go(
        mut keyspaces: Vec<Keyspace>,
        noted_in: Keyspace,
        key: &'static [u8],
    ) -> std::io::Result<Self> {
        keyspaces.retain(|keyspace| !is_let_go(keyspace));
        if keyspaces.is_empty() {
            return Ok(Self::default());
        }
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("tidewheel-recovered".to_owned())
            .spawn(move || hold(&keyspaces, (&noted_in, key), &stopped))?;
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

/// Whether the engine has no buffer of a keyspace in memory but the one that is written to.
fn is_let_go(keyspace: &Keyspace) -> bool {
    keyspace.tree.version_memtable_size_sum() <= keyspace.tree.active_memtable().size()
}

fn hold(keyspaces: &[Keyspace], (noted_in, key): (&Keyspace, &[u8]), stopped: &Receiver<()>) {
    // The oldest state of each, which has everything that it began with.
    let held: Vec<_> = keyspaces
        .iter()
        .map(|keyspace| keyspace.tree.get_version_history_lock().get_version_for_snapshot(0))
        .collect();
    let mut closed = 0;
    for _ in 0..LOOKS_MAX {
        if stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) || keyspaces.iter().all(is_let_go) {
            break;
        }
        let is_flushed = keyspaces.iter().all(|keyspace| keyspace.tree.sealed_memtable_count() == 0);
        if !is_flushed {
            continue;
        }
        // The engine looks through what it keeps whenever it closes a buffer, and closes none that is empty.
        let noted = noted_in.insert(key, []).and_then(|()| noted_in.rotate_memtable());
        closed += 1;
        if noted.is_err() || closed >= CLOSED_COUNT_MAX {
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

    fn open(folder: &std::path::Path) -> (Database, [Keyspace; 3]) {
        let database = Database::builder(folder).worker_threads(1).open().unwrap();
        let keyspaces = ["full", "other", "third"]
            .map(|name| database.keyspace(name, KeyspaceCreateOptions::default).unwrap());
        (database, keyspaces)
    }

    #[test]
    fn what_was_flushed_is_not_kept_although_nobody_writes() {
        let folder = tempfile::tempdir().unwrap();
        let (_database, [full, other, noted_in]) = open(folder.path());
        for n in 0..1_000_u32 {
            full.insert(n.to_be_bytes(), [0; 100]).unwrap();
        }
        full.rotate_memtable_and_wait().unwrap();
        assert!(!is_let_go(&full), "the engine keeps it");
        let mut recovered = Recovered::let_go(vec![full.clone(), other], noted_in, b"noted").unwrap();
        recovered.thread.take().unwrap().join().unwrap();
        assert!(is_let_go(&full));
        assert_eq!(full.get(7_u32.to_be_bytes()).unwrap().unwrap().len(), 100);
    }

    #[test]
    fn while_somebody_reads_it_is_kept_and_no_more_than_a_few_buffers_are_closed() {
        let folder = tempfile::tempdir().unwrap();
        let (database, [full, noted_in, _]) = open(folder.path());
        full.insert("a", "b").unwrap();
        let reader = database.snapshot();
        full.rotate_memtable_and_wait().unwrap();
        let mut recovered = Recovered::let_go(vec![full.clone()], noted_in, b"noted").unwrap();
        recovered.thread.take().unwrap().join().unwrap();
        assert!(!is_let_go(&full));
        assert_eq!(fjall::Readable::get(&reader, &full, "a").unwrap().as_deref(), Some(&b"b"[..]));
    }

    #[test]
    fn it_does_not_keep_the_engine_open() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            let (_database, [full, noted_in, _]) = open(folder.path());
            full.insert("a", "b").unwrap();
            full.rotate_memtable().unwrap();
            drop(Recovered::let_go(vec![full.clone()], noted_in, b"noted").unwrap());
        }
    }
}

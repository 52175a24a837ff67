//! Freeing write buffers beside the engine.
//!
//! The engine drops a write buffer that it has flushed with its keyspace locked, and of a full one every entry is freed by
//! itself: for a tenth of a second nobody writes there, and every commit waits. So each buffer is held by somebody else as
//! well, who lets go of it last, on a thread of its own.

use std::any::Any;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::kv::Keyspace;

/// A write buffer of the engine.
pub(crate) type Buffer = Arc<dyn Any + Send + Sync>;

/// How long after a buffer was full it is first looked whether the engine has let go of it, and how long from one look to the
/// next at most.
const LOOK_FIRST: Duration = Duration::from_millis(50);
const LOOK_LONGEST: Duration = Duration::from_secs(1);

/// The buffers that are written to.
pub(crate) struct Buffers {
    current: Mutex<FxHashMap<Keyspace, (u64, Buffer)>>,
    /// Those that are written to no longer.
    full: Sender<Buffer>,
}

impl Buffers {
    /// # Errors
    /// When there can be no further thread.
    pub(crate) fn new() -> std::io::Result<Self> {
        let (full, heard) = channel();
        std::thread::Builder::new().name("tidewheel-free".to_owned()).spawn(move || free(&heard))?;
        Ok(Self { current: Mutex::default(), full })
    }

    /// Notes which buffer of a keyspace is written to now; `id` tells it from those before.
    pub(crate) fn note(&self, keyspace: Keyspace, id: u64, buffer: Buffer) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.get(&keyspace).is_some_and(|(known, _)| *known == id) {
            return;
        }
        if let Some((_, full)) = current.insert(keyspace, (id, buffer)) {
            self.let_go(full);
        }
        // Nobody writes to the keyspaces of days that are over, which the engine flushes all the same.
        current.retain(|_, (_, buffer)| {
            let is_held = Arc::strong_count(buffer) > 1;
            if !is_held {
                self.let_go(Arc::clone(buffer));
            }
            is_held
        });
    }

    /// The keyspace is gone, and so is its buffer.
    pub(crate) fn forget(&self, keyspace: Keyspace) {
        let removed = self.current.lock().unwrap_or_else(PoisonError::into_inner).remove(&keyspace);
        if let Some((_, buffer)) = removed {
            self.let_go(buffer);
        }
    }

    fn let_go(&self, buffer: Buffer) {
        // Without the thread it is freed here and now.
        self.full.send(buffer).ok();
    }
}

/// Lets go of what nobody else holds any more, until nothing more can come.
fn free(full: &Receiver<Buffer>) {
    let mut held: Vec<Buffer> = Vec::new();
    let mut wait = LOOK_FIRST;
    loop {
        let heard = if held.is_empty() {
            full.recv().map_err(RecvTimeoutError::from)
        } else {
            full.recv_timeout(wait)
        };
        match heard {
            Ok(buffer) => {
                held.push(buffer);
                wait = LOOK_FIRST;
            }
            Err(RecvTimeoutError::Timeout) => wait = wait.saturating_mul(2).min(LOOK_LONGEST),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        held.retain(|buffer| Arc::strong_count(buffer) > 1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    use crate::kv::Day;

    /// Says on which thread it was dropped.
    struct Told(Sender<Option<String>>);

    impl Drop for Told {
        fn drop(&mut self) {
            self.0.send(std::thread::current().name().map(str::to_owned)).unwrap();
        }
    }

    #[test]
    fn a_buffer_is_freed_elsewhere_once_the_engine_has_let_go_of_it() {
        let (tell, told) = channel();
        let buffers = Buffers::new().unwrap();
        let engines: Vec<Arc<Told>> = (0..3).map(|_| Arc::new(Told(tell.clone()))).collect();
        for (id, buffer) in (0_u64..).zip(&engines) {
            for _ in 0..2 {
                buffers.note(Keyspace::Waiting, id, Arc::clone(buffer) as Buffer);
            }
        }
        assert!(told.recv_timeout(2 * LOOK_FIRST).is_err(), "the engine still has them");
        let mut engines = engines.into_iter();
        drop(engines.next());
        assert_eq!(told.recv().unwrap().as_deref(), Some("tidewheel-free"));
        let left: Vec<_> = engines.collect();
        buffers.forget(Keyspace::Waiting);
        drop(left);
        for _ in 0..2 {
            assert_eq!(told.recv().unwrap().as_deref(), Some("tidewheel-free"));
        }
    }

    #[test]
    fn a_buffer_that_nobody_writes_to_any_more_is_not_kept() {
        let (tell, told) = channel();
        let buffers = Buffers::new().unwrap();
        let yesterdays = Arc::new(Told(tell));
        buffers.note(Keyspace::History(Day(1)), 0, Arc::clone(&yesterdays) as Buffer);
        drop(yesterdays);
        assert!(told.recv_timeout(2 * LOOK_FIRST).is_err(), "nothing was written since");
        let todays: Buffer = Arc::new(());
        buffers.note(Keyspace::History(Day(2)), 1, Arc::clone(&todays));
        assert_eq!(told.recv().unwrap().as_deref(), Some("tidewheel-free"));
        assert_eq!(buffers.current.lock().unwrap().len(), 1);
    }
}

//! Whether the machine or its disk stood still: a thread that wakes up and writes several times a second, and notes when it
//! could not.

use std::io::Write as _;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BEAT: Duration = Duration::from_millis(250);
/// Workers are taken for dead, and leases run out, when nothing was heard for many times as long.
const CALM_MAX: Duration = Duration::from_secs(2);

struct Beats {
    last: Instant,
    longest_gap: Duration,
}

impl Beats {
    fn beat(&mut self) {
        self.longest_gap = self.longest_gap.max(self.last.elapsed());
        self.last = Instant::now();
    }
}

/// Notes it from when it was made until it is dropped.
pub(crate) struct Pulse {
    beats: Arc<Mutex<Beats>>,
    _alive: Sender<()>,
}

impl Pulse {
    pub(crate) fn watch() -> Self {
        let beats = Arc::new(Mutex::new(Beats { last: Instant::now(), longest_gap: Duration::ZERO }));
        let (alive, gone) = mpsc::channel::<()>();
        let noted = Arc::clone(&beats);
        let mut file = tempfile::tempfile().unwrap();
        std::thread::spawn(move || {
            while gone.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                file.write_all(b"x").unwrap();
                file.sync_data().unwrap();
                noted.lock().unwrap().beat();
            }
        });
        Self { beats, _alive: alive }
    }

    /// Whether the machine never stood still so far. If it did, who is alive may have been taken for dead, and what is
    /// promised while nobody dies does not hold.
    pub(crate) fn is_calm(&self) -> bool {
        let mut beats = self.beats.lock().unwrap();
        beats.beat();
        let is_calm = beats.longest_gap <= CALM_MAX;
        if !is_calm {
            eprintln!("the machine stood still for {:?}", beats.longest_gap);
        }
        is_calm
    }
}

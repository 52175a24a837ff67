//! The engine in use: fjall, a log-structured merge tree. What is done about its habits:
//!
//! * It stalls hard (sleeps of 100 ms) once four write buffers of a keyspace wait to be flushed. The commit is
//!   slowed down by the millisecond before it comes to that.
//! * On opening it cuts a damaged journal off at the damage, silently. [`crate::journal`] looks first and refuses
//!   when that would drop something acknowledged; [`crate::mark`] notices when the end of the journal is missing.
//! * It frees what it has flushed with the keyspace locked; [`crate::buffers`] does that in its place, and
//!   [`crate::recovered`] for what it has read from journals.
//! * It does not sync the folder of a new keyspace; [`FjallKv::create`] does.
//! * Its first-in-first-out compaction is known to panic; all keyspaces use leveled compaction.

use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{AbstractTree, CompressionType, Database, KeyspaceCreateOptions, PersistMode, Readable};
use rustc_hash::FxHashMap;

use crate::buffers::Buffers;
use crate::kv::{Batch, Direction, Durability, Keyspace, Kv, KvError, Snapshot, Space, Visit, is_empty};
use crate::mark::Mark;
use crate::recovered::Recovered;
use crate::stopwatch::Stopwatch;
use crate::{journal, keys};

const MIB: u64 = 1024 * 1024;
/// Journals together; more is flushed out. Also what an opening has to read at most, about.
const JOURNAL_BYTES_MAX: u64 = 160 * MIB;
/// After so much, small keyspaces are flushed too: their few entries would keep whole journals alive.
const JOURNAL_BYTES_TIDY: u64 = 100 * MIB;
/// Write buffers of the keyspaces that every job goes through, and of those that every fire writes to. Smaller ones are flushed
/// and merged more often, which takes CPU from the server; in larger ones every write takes longer.
const BUFFER_BYTES_BUSY: u64 = 32 * MIB;
const BUFFER_BYTES_OTHER: u64 = 8 * MIB;
const TABLE_BYTES: u64 = 32 * MIB;
const BLOCK_BYTES: u32 = 8 * 1024;
/// Full write buffers of one keyspace at which commits wait; the engine's own stall comes at four.
const FULL_BUFFERS_MAX: usize = 3;
/// Sorted runs not yet merged at which commits wait; the engine halts at thirty.
const LOOSE_RUNS_MAX: usize = 20;
const PACE_STEP: Duration = Duration::from_millis(1);
/// A commit is held back no longer than this; then the engine's own brakes take over.
const PACE_STEPS_MAX: u32 = 200;
/// How far the engine is behind changes with its write buffers, which hold megabytes: it is asked after so many bytes.
const LOOK_BYTES: u64 = 256 * 1024;
/// With so much left on the device it is not asked again for so long: nobody fills that much in that time.
const SPACE_PLENTY_BYTES: u64 = 1024 * MIB;
const SPACE_FRESH: Duration = Duration::from_millis(100);

/// fjall behind the seam.
pub struct FjallKv {
    recovered: Recovered,
    path: PathBuf,
    database: Database,
    keyspaces: RwLock<FxHashMap<Keyspace, fjall::Keyspace>>,
    mark: Mark,
    buffers: Buffers,
    /// Written since the small keyspaces were last flushed.
    untidied_bytes: AtomicU64,
    /// Written since the engine was last asked whether it is behind.
    unlooked_bytes: AtomicU64,
    /// What the device said when it was last asked.
    space: Mutex<Option<(Stopwatch, Space)>>,
}

impl FjallKv {
    /// Opens or makes the database in a folder.
    ///
    /// # Errors
    /// When another process has it open, the device fails, or what is there is damaged.
    pub fn open(path: &Path, cache_bytes: u64) -> Result<Self, KvError> {
        std::fs::create_dir_all(path).map_err(|error| io(&error))?;
        journal::check(path)?;
        let database = Database::builder(path)
            .cache_size(cache_bytes)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .manual_journal_persist(true)
            // With more than one, the first keeps sending itself the compactions of the others while they run,
            // as fast as it can: a whole core lost.
            .worker_threads(1)
            .open()
            .map_err(engine)?;
        let mark = Mark::open(path).map_err(|error| io(&error))?;
        let mut kv = Self {
            recovered: Recovered::default(),
            path: path.to_owned(),
            database,
            keyspaces: RwLock::default(),
            mark,
            buffers: Buffers::new().map_err(|error| io(&error))?,
            untidied_bytes: AtomicU64::new(0),
            unlooked_bytes: AtomicU64::new(0),
            space: Mutex::default(),
        };
        let names = kv.database.list_keyspace_names();
        for keyspace in names.iter().filter_map(|name| Keyspace::from_name(name)).chain(Keyspace::FIXED) {
            kv.create(keyspace)?;
        }
        let group = kv.get(Keyspace::Meta, keys::meta::GROUP)?;
        let group = group.and_then(|bytes| <[u8; 8]>::try_from(&*bytes).ok()).map_or(0, u64::from_be_bytes);
        kv.mark.resume_at(group).map_err(KvError::Corrupt)?;
        let (all, meta) = (kv.handles(|_| true), kv.meta()?);
        kv.recovered = Recovered::let_go(all, meta, keys::meta::OPENED).map_err(|error| io(&error))?;
        Ok(kv)
    }

    fn handle(&self, keyspace: Keyspace) -> Option<fjall::Keyspace> {
        self.keyspaces.read().unwrap_or_else(PoisonError::into_inner).get(&keyspace).cloned()
    }

    fn meta(&self) -> Result<fjall::Keyspace, KvError> {
        self.handle(Keyspace::Meta).ok_or_else(|| KvError::Io("there is no meta keyspace".to_owned()))
    }

    fn hold_buffer(&self, keyspace: Keyspace, handle: &fjall::Keyspace) {
        let buffer = handle.tree.active_memtable();
        self.buffers.note(keyspace, buffer.id(), buffer);
    }

    /// Looks how the engine stands, if enough was written since that was looked at: waits while it is behind with flushing
    /// and merging, and notes which buffers are written to.
    fn look_after(&self, touched: &[fjall::Keyspace], bytes: u64) {
        let unlooked = self.unlooked_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if unlooked < LOOK_BYTES {
            return;
        }
        // One that is still behind after the longest wait is looked at with the next commit, too.
        let is_behind = !self.pace(touched);
        self.unlooked_bytes.store(if is_behind { LOOK_BYTES } else { 0 }, Ordering::Relaxed);
        let handles = self.keyspaces.read().unwrap_or_else(PoisonError::into_inner);
        handles.iter().for_each(|(keyspace, handle)| self.hold_buffer(*keyspace, handle));
    }

    /// Waits while the engine is behind; says whether it has caught up.
    fn pace(&self, touched: &[fjall::Keyspace]) -> bool {
        let behind = |keyspace: &fjall::Keyspace| {
            keyspace.sealed_memtable_count() >= FULL_BUFFERS_MAX
                || keyspace.l0_table_count() >= LOOSE_RUNS_MAX
        };
        for _ in 0..PACE_STEPS_MAX {
            if !touched.iter().any(behind) {
                return true;
            }
            std::thread::park_timeout(PACE_STEP);
        }
        false
    }

    fn tidy(&self, bytes: u64) -> Result<(), KvError> {
        if self.untidied_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes < JOURNAL_BYTES_TIDY {
            return Ok(());
        }
        self.untidied_bytes.store(0, Ordering::Relaxed);
        let small = |keyspace: &Keyspace| {
            !matches!(keyspace, Keyspace::Waiting | Keyspace::History(_) | Keyspace::Standings)
        };
        for handle in self.handles(small) {
            handle.rotate_memtable().map_err(engine)?;
        }
        Ok(())
    }

    fn handles(&self, is_wanted: impl Fn(&Keyspace) -> bool) -> Vec<fjall::Keyspace> {
        let wanted = self.keyspaces().into_iter().filter(is_wanted);
        wanted.filter_map(|keyspace| self.handle(keyspace)).collect()
    }

    fn sync_folder(&self) -> Result<(), KvError> {
        let folder = std::fs::File::open(self.path.join("keyspaces")).map_err(|error| io(&error))?;
        folder.sync_all().map_err(|error| io(&error))
    }
}

impl Kv for FjallKv {
    fn create(&self, keyspace: Keyspace) -> Result<(), KvError> {
        if self.handle(keyspace).is_some() {
            return Ok(());
        }
        let is_new = !self.database.keyspace_exists(&keyspace.name());
        let handle = self.database.keyspace(&keyspace.name(), || options(keyspace)).map_err(engine)?;
        if is_new {
            self.sync_folder()?;
        }
        self.hold_buffer(keyspace, &handle);
        self.keyspaces.write().unwrap_or_else(PoisonError::into_inner).insert(keyspace, handle);
        Ok(())
    }

    fn remove(&self, keyspace: Keyspace) -> Result<(), KvError> {
        let handle = self.keyspaces.write().unwrap_or_else(PoisonError::into_inner).remove(&keyspace);
        self.buffers.forget(keyspace);
        handle.map_or(Ok(()), |handle| self.database.delete_keyspace(handle).map_err(engine))
    }

    fn keyspaces(&self) -> Vec<Keyspace> {
        let mut names: Vec<_> =
            self.database.list_keyspace_names().iter().filter_map(|name| Keyspace::from_name(name)).collect();
        names.sort_unstable();
        names
    }

    fn commit(&self, mut batch: Batch, durability: Durability) -> Result<(), KvError> {
        // Neighbours go into the write buffer one after the other, over the same few steps of its index.
        batch.sort();
        let mode = match durability {
            Durability::Synced => PersistMode::SyncData,
            Durability::Buffered => PersistMode::Buffer,
        };
        let bytes = u64::try_from(batch.size_bytes()).unwrap_or(u64::MAX);
        let mut touched: Vec<fjall::Keyspace> = Vec::with_capacity(8);
        let mut writes = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), batch.0.len() + 1)
            .durability(Some(mode));
        let mut current = None;
        for write in batch.0 {
            // Sorted, so a keyspace's writes stand together.
            if current != Some(write.keyspace) {
                current = Some(write.keyspace);
                touched.push(
                    self.handle(write.keyspace).ok_or_else(|| {
                        KvError::Io(format!("there is no keyspace {}", write.keyspace.name()))
                    })?,
                );
            }
            let Some(handle) = touched.last() else { continue };
            match write.value {
                Some(value) => writes.insert(handle, write.key, value),
                None => writes.remove(handle, write.key),
            }
        }
        let meta = self.meta()?;
        let group = self.mark.next();
        writes.insert(&meta, keys::meta::GROUP, group.to_be_bytes());
        self.look_after(&touched, bytes);
        writes.commit().map_err(engine)?;
        if durability == Durability::Synced {
            self.mark.note(group).map_err(|error| io(&error))?;
        }
        self.tidy(bytes)
    }

    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        let Some(handle) = self.handle(keyspace) else { return Ok(None) };
        let value = handle.get(key).map_err(engine)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        Box::new(FjallSnapshot { kv: self, snapshot: self.database.snapshot() })
    }

    fn disk_bytes(&self) -> Result<u64, KvError> {
        self.database.disk_space().map_err(engine)
    }

    fn space(&self) -> Option<Space> {
        let mut known = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked, space)) = &*known
            && space.free_bytes >= SPACE_PLENTY_BYTES
            && asked.elapsed() < SPACE_FRESH
        {
            return Some(*space);
        }
        let stat = rustix::fs::statvfs(&self.path).ok()?;
        let space =
            Space { free_bytes: stat.f_bavail * stat.f_frsize, total_bytes: stat.f_blocks * stat.f_frsize };
        *known = Some((Stopwatch::start(), space));
        Some(space)
    }

    fn close(&self) -> Result<(), KvError> {
        self.database.persist(PersistMode::SyncAll).map_err(engine)
    }
}

struct FjallSnapshot<'a> {
    kv: &'a FjallKv,
    snapshot: fjall::Snapshot,
}

impl Snapshot for FjallSnapshot<'_> {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        let Some(handle) = self.kv.handle(keyspace) else { return Ok(None) };
        let value = self.snapshot.get(&handle, key).map_err(engine)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), KvError> {
        let Some(handle) = self.kv.handle(keyspace) else { return Ok(()) };
        if is_empty(range) {
            return Ok(());
        }
        let mut entries = self.snapshot.range::<&[u8], _>(&handle, range);
        loop {
            let entry = match direction {
                Direction::Up => entries.next(),
                Direction::Down => entries.next_back(),
            };
            let Some(entry) = entry else { return Ok(()) };
            let (key, value) = entry.into_inner().map_err(engine)?;
            if visit(&key, &value) == ControlFlow::Break(()) {
                return Ok(());
            }
        }
    }
}

fn options(keyspace: Keyspace) -> KeyspaceCreateOptions {
    let buffer = match keyspace {
        Keyspace::Waiting | Keyspace::History(_) | Keyspace::Standings | Keyspace::Ledger(_) => {
            BUFFER_BYTES_BUSY
        }
        Keyspace::Schedules
        | Keyspace::Parked
        | Keyspace::Dead
        | Keyspace::Claims
        | Keyspace::Leases
        | Keyspace::Meta
        | Keyspace::Names
        | Keyspace::Calendars
        | Keyspace::Documents
        | Keyspace::Keys(_)
        | Keyspace::Audit(_) => BUFFER_BYTES_OTHER,
    };
    // What every fire writes anew is seldom worth it before it is merged.
    let compression = if keyspace == Keyspace::Standings {
        CompressionPolicy::new([CompressionType::None, CompressionType::Lz4])
    } else {
        CompressionPolicy::all(CompressionType::Lz4)
    };
    KeyspaceCreateOptions::default()
        .manual_journal_persist(true)
        .max_memtable_size(buffer)
        .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
        .data_block_compression_policy(compression)
        .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(TABLE_BYTES)))
}

fn io(error: &std::io::Error) -> KvError {
    if error.kind() == std::io::ErrorKind::StorageFull {
        KvError::Full(error.to_string())
    } else {
        KvError::Io(error.to_string())
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the engine's errors may grow; all others mean damage")]
fn engine(error: fjall::Error) -> KvError {
    match error {
        fjall::Error::Io(error) => io(&error),
        fjall::Error::Storage(fjall::LsmError::Io(error)) => io(&error),
        fjall::Error::Locked => KvError::Locked,
        fjall::Error::Poisoned => {
            KvError::Io("the storage engine stopped after a failed write; the log has its reason".to_owned())
        }
        other => KvError::Corrupt(format!("{other:?}")),
    }
}

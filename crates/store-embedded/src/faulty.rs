//! An engine in memory that behaves like a disk: what was not synced is lost in a crash, a sync can fail, and an
//! image of what a crash would leave can be taken at every sync. For tests and simulations.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::kv::{Batch, Direction, Durability, Keyspace, Kv, KvError, Snapshot, Space, Visit};

type Tables = BTreeMap<Keyspace, Arc<BTreeMap<Vec<u8>, Bytes>>>;

/// What is on the disk.
#[derive(Debug, Clone, Default)]
pub struct Image(Tables);

/// What goes wrong with a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails and the batch never reaches the disk.
    Lost,
    /// It fails, but the batch is on the disk all the same.
    Kept,
}

/// Asked before every commit, with its number from 1.
pub type Plan = Box<dyn FnMut(u64) -> Option<Fault> + Send>;

/// Told after every sync, with the number of the commit, what a crash now would leave.
pub type OnSync = Box<dyn FnMut(u64, Image) + Send>;

/// Called at certain moments, by whichever thread is there.
pub type Hook = Arc<dyn Fn() + Send + Sync>;

fn call(hook: &Mutex<Option<Hook>>) {
    let hook = hook.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(hook) = hook {
        hook();
    }
}

/// The engine.
#[derive(Default)]
pub struct FaultyKv {
    inner: Mutex<Inner>,
    before_commit: Mutex<Option<Hook>>,
    before_read: Mutex<Option<Hook>>,
}

#[derive(Default)]
struct Inner {
    /// What readers see.
    visible: Tables,
    /// What a crash leaves.
    synced: Tables,
    commits: u64,
    plan: Option<Plan>,
    on_sync: Option<OnSync>,
    space: Option<Space>,
    reads_fail: bool,
}

impl FaultyKv {
    /// An engine on what a crash left.
    #[must_use]
    pub fn reopen(image: Image) -> Self {
        let inner = Inner { visible: image.0.clone(), synced: image.0, ..Inner::default() };
        Self { inner: Mutex::new(inner), ..Self::default() }
    }

    /// What a crash now would leave.
    #[must_use]
    pub fn image(&self) -> Image {
        Image(self.lock().synced.clone())
    }

    /// Lets commits fail.
    pub fn set_plan(&self, plan: Plan) {
        self.lock().plan = Some(plan);
    }

    /// Lets commits take their time: called before each, while reads go on.
    pub fn set_before_commit(&self, hook: Hook) {
        *self.before_commit.lock().unwrap_or_else(PoisonError::into_inner) = Some(hook);
    }

    /// Called before each read of a single key.
    pub fn set_before_read(&self, hook: Hook) {
        *self.before_read.lock().unwrap_or_else(PoisonError::into_inner) = Some(hook);
    }

    /// Watches syncs.
    pub fn set_on_sync(&self, on_sync: OnSync) {
        self.lock().on_sync = Some(on_sync);
    }

    /// Says how much room there is.
    pub fn set_space(&self, space: Option<Space>) {
        self.lock().space = space;
    }

    /// Lets reads of single keys fail, or work again.
    pub fn set_reads_fail(&self, fail: bool) {
        self.lock().reads_fail = fail;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kv for FaultyKv {
    fn create(&self, keyspace: Keyspace) -> Result<(), KvError> {
        let mut inner = self.lock();
        inner.visible.entry(keyspace).or_default();
        inner.synced.entry(keyspace).or_default();
        Ok(())
    }

    fn remove(&self, keyspace: Keyspace) -> Result<(), KvError> {
        let mut inner = self.lock();
        inner.visible.remove(&keyspace);
        inner.synced.remove(&keyspace);
        Ok(())
    }

    fn keyspaces(&self) -> Vec<Keyspace> {
        self.lock().visible.keys().copied().collect()
    }

    fn commit(&self, batch: Batch, durability: Durability) -> Result<(), KvError> {
        call(&self.before_commit);
        let mut inner = self.lock();
        inner.commits += 1;
        let number = inner.commits;
        let fault = inner.plan.as_mut().and_then(|plan| plan(number));
        match fault {
            None => write(&mut inner.visible, &batch)?,
            Some(Fault::Lost) => return Err(KvError::Io("injected: the write was lost".to_owned())),
            Some(Fault::Kept) => {
                write(&mut inner.synced, &batch)?;
                return Err(KvError::Io("injected: the sync failed".to_owned()));
            }
        }
        if durability == Durability::Synced {
            inner.synced = inner.visible.clone();
            let image = Image(inner.synced.clone());
            if let Some(on_sync) = inner.on_sync.as_mut() {
                on_sync(number, image);
            }
        }
        Ok(())
    }

    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        call(&self.before_read);
        let inner = self.lock();
        if inner.reads_fail {
            return Err(KvError::Io("injected: the read failed".to_owned()));
        }
        Ok(inner.visible.get(&keyspace).and_then(|table| table.get(key).cloned()))
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        Box::new(Image(self.lock().visible.clone()))
    }

    fn disk_bytes(&self) -> Result<u64, KvError> {
        let inner = self.lock();
        let entries = inner.synced.values().flat_map(|table| table.iter());
        let bytes: usize = entries.map(|(key, value)| key.len() + value.len()).sum();
        Ok(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    fn space(&self) -> Option<Space> {
        self.lock().space
    }

    fn close(&self) -> Result<(), KvError> {
        let mut inner = self.lock();
        inner.synced = inner.visible.clone();
        Ok(())
    }
}

fn write(tables: &mut Tables, batch: &Batch) -> Result<(), KvError> {
    let mut seen = std::collections::BTreeSet::new();
    for write in &batch.0 {
        if !seen.insert((write.keyspace, &write.key)) {
            return Err(KvError::Corrupt(format!("a batch writes a key of {} twice", write.keyspace.name())));
        }
        let table = tables
            .get_mut(&write.keyspace)
            .ok_or_else(|| KvError::Io(format!("there is no keyspace {}", write.keyspace.name())))?;
        let table = Arc::make_mut(table);
        match &write.value {
            Some(value) => table.insert(write.key.to_vec(), Bytes::copy_from_slice(value)),
            None => table.remove(&*write.key),
        };
    }
    Ok(())
}

impl Snapshot for Image {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        Ok(self.0.get(&keyspace).and_then(|table| table.get(key).cloned()))
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), KvError> {
        let Some(table) = self.0.get(&keyspace) else { return Ok(()) };
        if crate::kv::is_empty(range) {
            return Ok(());
        }
        let mut entries = table.range::<[u8], _>(range);
        while let Some((key, value)) = match direction {
            Direction::Up => entries.next(),
            Direction::Down => entries.next_back(),
        } {
            if visit(key, value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}

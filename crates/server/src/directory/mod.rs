//! What the server goes by and an operator may change while it runs: tenants, keys, webhook secrets, job types. All of it is small
//! documents in the store, kept whole in memory, so that no request and no delivery waits for the store to read them.
//!
//! | file | what it holds |
//! |---|---|
//! | `tenants` | weights and limits |
//! | `narrowing` | when a tenant that was spread over more shards is done with them |
//! | `keys` | API keys, by their digest |
//! | `notifications` | where a tenant is told of what its owner should know |
//! | `webhook_secrets` | what pushes are signed with |
//! | `sessions` | which sessions of the web pages have ended |
//! | `job_types` | schemas, submitters and defaults of job types |
//!
//! A change made here is seen at once; one made by another node within two seconds, and at once by whoever asks for it.

mod job_types;
mod keys;
mod narrowing;
mod notifications;
mod sessions;
mod tenants;
mod webhook_secrets;

use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewheel_core::names::Tenant;
use tidewheel_core::webhook::Secret;
use tidewheel_store::{Document, DocumentKey, DocumentQuery, Error, IfVersion, Store};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::engine::{Allotment, Engine};
use crate::random;

pub(crate) use self::job_types::{JobType, TypeBook, TypeRefusal};
pub use self::keys::{ApiKey, KeyDigest, Role, Roles};
pub(crate) use self::keys::{KeyAsked, KeyMade, KeyRefusal, key_id};
pub use self::notifications::{Event, NotificationSettings};
pub use self::tenants::TenantSettings;
pub(crate) use self::tenants::TenantShown;
pub(crate) use self::webhook_secrets::{SecretRefusal, SecretShown, webhook_secret_id};

/// How often the store is asked whether another node has changed something.
const POLL: Duration = Duration::from_secs(2);
/// How long a call waits for what other nodes have changed.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(1);
/// Documents read at once.
const PAGE_COUNT: usize = 500;
/// How often a change is tried again that met another one.
const TRIES_MAX: usize = 16;

/// What an operator has set, in memory.
#[expect(missing_debug_implementations, reason = "made of trait objects, and holds secrets")]
pub struct Directory {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// What holds for tenants for whom nothing is set.
    unset: Arc<TenantSettings>,
    /// What the secrets of tenants that have none of their own are made from.
    root: Secret,
    snapshot: Arc<RwLock<Arc<Snapshot>>>,
    /// Told of every change.
    changes: watch::Sender<u64>,
    /// One reload at a time, so that an older one never takes the place of a newer one.
    reloading: tokio::sync::Mutex<()>,
}

/// Everything, as it was after one change.
#[derive(Default)]
struct Snapshot {
    change: u64,
    tenants: FxHashMap<Tenant, TenantShown>,
    secrets: FxHashMap<Tenant, webhook_secrets::Kept>,
    notifications: FxHashMap<Tenant, Arc<NotificationSettings>>,
    keys: keys::KeyRing,
    session_ends: FxHashMap<sessions::OfKey, sessions::Ends>,
    types: FxHashMap<Tenant, Arc<TypeBook>>,
}

impl Snapshot {
    fn allotments(&self) -> Vec<Allotment> {
        let each = self.tenants.iter().map(|(tenant, shown)| Allotment {
            tenant: tenant.clone(),
            weight: shown.settings.weight,
            running_count_max: shown.settings.running_count_max,
            queue_running_count_max: shown.settings.queue_running_count_max,
            starts_per_s: shown.settings.starts_per_s,
            spread: shown.settings.spread(),
        });
        each.collect()
    }
}

impl Directory {
    /// Reads everything, and goes on watching for changes of other nodes.
    ///
    /// # Errors
    /// When the store cannot be read, or the first secret not be made.
    pub async fn open(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Arc<Self>, Error> {
        let root = webhook_secrets::root(&*store).await?;
        let directory = Arc::new(Self {
            store,
            clock,
            root,
            unset: Arc::default(),
            snapshot: Arc::default(),
            changes: watch::channel(0).0,
            reloading: tokio::sync::Mutex::new(()),
        });
        directory.reload().await?;
        tokio::spawn(poll(Arc::downgrade(&directory)));
        tokio::spawn(narrowing::run(Arc::downgrade(&directory)));
        Ok(directory)
    }

    /// Where all of it is kept.
    pub(crate) const fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Has the engine go by the weights and caps that are set, now and whenever they change.
    pub fn steer(&self, engine: &Engine) {
        let (mut changes, engine) = (self.changes.subscribe(), engine.clone());
        let snapshot = self.snapshot();
        engine.allot(snapshot.allotments());
        let weak = Arc::downgrade(&self.snapshot);
        tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                let Some(current) = weak.upgrade() else { return };
                let snapshot = Arc::clone(&current.read().unwrap_or_else(PoisonError::into_inner));
                drop(current);
                engine.allot(snapshot.allotments());
            }
        });
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sees what other nodes have changed, as far as the store answers; else what is known stays in force.
    pub(crate) async fn catch_up(&self) {
        tokio::select! {
            reloaded = self.reload() => {
                if let Err(error) = reloaded {
                    tracing::debug!(%error, "what other nodes have changed cannot be read now");
                }
            }
            () = self.clock.sleep(CATCH_UP_WITHIN) => {}
        }
    }

    /// Reads everything again if anything changed.
    async fn reload(&self) -> Result<(), Error> {
        let _one_at_a_time = self.reloading.lock().await;
        let change = self.store.newest_document_change().await?;
        let before = self.snapshot();
        if change == before.change {
            return Ok(());
        }
        let mut snapshot = Snapshot { change, ..Snapshot::default() };
        for document in self.read_all(tenants::KIND).await? {
            if let Some(settings) = read::<TenantSettings>(&document) {
                let shown = TenantShown { settings: Arc::new(settings), version: document.version };
                snapshot.tenants.insert(document.key.tenant, shown);
            }
        }
        for document in self.read_all(webhook_secrets::KIND).await? {
            if let Some(kept) = read(&document) {
                snapshot.secrets.insert(document.key.tenant, kept);
            }
        }
        for document in self.read_all(sessions::KIND).await? {
            if let Some(ends) = read(&document) {
                snapshot.session_ends.insert((document.key.tenant, document.key.name), ends);
            }
        }
        for document in self.read_all(notifications::KIND).await? {
            if let Some(settings) = read::<NotificationSettings>(&document) {
                snapshot.notifications.insert(document.key.tenant, Arc::new(settings));
            }
        }
        snapshot.keys = keys::KeyRing::of(
            self.read_all(keys::KIND).await?,
            self.read_all(keys::USE_KIND).await?,
            &before.keys,
        );
        snapshot.types = job_types::books(self.read_all(job_types::KIND).await?, &before.types);
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
        self.changes.send_replace(change);
        Ok(())
    }

    async fn read_all(&self, kind: &'static str) -> Result<Vec<Document>, Error> {
        let mut all: Vec<Document> = Vec::new();
        loop {
            let after = all.last().map(|last| (last.key.tenant.clone(), Arc::clone(&last.key.name)));
            let query = DocumentQuery { kind, tenant: None, after, count_max: PAGE_COUNT };
            let page = self.store.documents(query).await?;
            let is_last = page.len() < PAGE_COUNT;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Stores a document, and sees it.
    async fn put<T: Serialize>(
        &self,
        key: DocumentKey,
        value: Option<&T>,
        if_version: IfVersion,
    ) -> Result<bool, Error> {
        let bytes = value.map(serde_json::to_vec).transpose();
        let bytes = bytes.map_err(|fault| Error::Corrupt(fault.to_string()))?.map(Bytes::from);
        let stored = self.store.put_document(key, bytes, if_version).await?;
        self.reload().await?;
        Ok(stored.is_ok())
    }
}

/// A document's text. One that cannot be read is left out, and said so: a newer program may have written it.
fn read<T: DeserializeOwned>(document: &Document) -> Option<T> {
    match serde_json::from_slice(&document.bytes) {
        Ok(value) => Some(value),
        Err(fault) => {
            // Never the text itself, nor what serde quotes of it: it may be a secret.
            let (kind, tenant) = (document.key.kind, document.key.tenant.as_str());
            let (line, column) = (fault.line(), fault.column());
            tracing::error!(kind, tenant, line, column, "a document cannot be read and does not count");
            None
        }
    }
}

async fn poll(directory: Weak<Directory>) {
    let mut failing = false;
    loop {
        let Some(open) = directory.upgrade() else { return };
        let pause = open.clock.sleep(POLL);
        drop(open);
        pause.await;
        let Some(open) = directory.upgrade() else { return };
        open.note_uses().await;
        match open.reload().await {
            Ok(()) => failing = false,
            Err(Error::Closed) => return,
            Err(error) => {
                if !failing {
                    tracing::warn!(%error, "tenants and keys cannot be read; those known stay in force");
                }
                failing = true;
            }
        }
    }
}

/// 32 bytes nobody can guess.
fn fresh_secret() -> Result<[u8; 32], Error> {
    random::secret_bytes()
        .map_err(|fault| Error::Unavailable(format!("the system gives no random numbers: {fault}")))
}

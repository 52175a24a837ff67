//! API keys. A key is 256 random bits, so its SHA-256 can stand for it at rest: there is nothing to guess that a slow
//! hash would protect, and a fast one lets every request be checked. Keys are found by their digest, which whoever
//! guesses cannot steer, and then compared in constant time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tidewheel_core::limits::{KEY_USE_NOTED_MS, TENANT_KEYS_COUNT_MAX};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Document, DocumentKey, Error, IfVersion};

use super::{Directory, fresh_secret, read};

pub(super) const KIND: &str = "key";
pub(super) const USE_KIND: &str = "key-use";
const KEY_PREFIX: &str = "twk_";
/// What tells the bearer of a token from keys, whose ids begin otherwise.
const TOKEN_ID_PREFIX: &str = "token:";
/// Uses written at once; the others wait for the next time.
const USES_NOTED_COUNT_MAX: usize = 100;
/// No key was ever used then.
const NEVER_MS: i64 = i64::MIN;

/// What stands for a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// Of a key as it is sent.
    #[must_use]
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// Its bytes.
    pub(crate) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether it is the other, in a time that does not depend on how alike they are.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(…)")
    }
}

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything, for every tenant.
    Admin,
    /// Everything of its tenant but keys and limits.
    Operator,
    /// Submits jobs, makes schedules, and looks at both.
    Producer,
    /// Runs jobs.
    Worker,
    /// Looks.
    Viewer,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Admin, Self::Operator, Self::Producer, Self::Worker, Self::Viewer];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Producer => "producer",
            Self::Worker => "worker",
            Self::Viewer => "viewer",
        }
    }

    /// The role of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

/// The roles of one key.
pub type Roles = Vec<Role>;

/// A key, without the key itself.
#[derive(Debug)]
pub struct ApiKey {
    /// Its id.
    pub id: Box<str>,
    /// Whose it is.
    pub tenant: Tenant,
    /// What it is for.
    pub roles: Roles,
    /// Job types it is limited to; `None` is all.
    pub types: Option<Vec<Box<str>>>,
    /// Queues it is limited to; `None` is all.
    pub queues: Option<Vec<Box<str>>>,
    /// Who has it, for people.
    pub name: Option<Box<str>>,
    /// When it was made; `None` for the one in a file.
    pub created_at: Option<Timestamp>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    digest: KeyDigest,
    used_at_ms: AtomicI64,
    noted_at_ms: AtomicI64,
}

impl ApiKey {
    /// The key of an operator who has the file it is in.
    #[must_use]
    pub fn admin_file(key: &str) -> Self {
        Self {
            id: "key_file".into(),
            tenant: Tenant::default(),
            roles: vec![Role::Admin],
            types: None,
            queues: None,
            name: Some("the key in the file given at the start".into()),
            created_at: None,
            expires_at: None,
            digest: KeyDigest::of(key),
            used_at_ms: AtomicI64::new(NEVER_MS),
            noted_at_ms: AtomicI64::new(NEVER_MS),
        }
    }

    /// What a token of an issuer stands for.
    pub(crate) fn of_token(
        digest: KeyDigest,
        subject: &str,
        tenant: Tenant,
        roles: Roles,
        end: Timestamp,
    ) -> Self {
        Self {
            id: format!("{TOKEN_ID_PREFIX}{subject}").into(),
            tenant,
            roles,
            expires_at: Some(end),
            name: None,
            digest,
            ..Self::admin_file("")
        }
    }

    /// Whether it is a token of an issuer, which no directory has.
    pub(crate) fn is_token(&self) -> bool {
        self.id.starts_with(TOKEN_ID_PREFIX)
    }

    /// What stands for the key itself.
    #[must_use]
    pub const fn digest(&self) -> &KeyDigest {
        &self.digest
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    /// Notes that it was used.
    pub(crate) fn used(&self, now: Timestamp) {
        self.used_at_ms.fetch_max(now.as_ms(), Ordering::Relaxed);
    }

    /// When it was last used, as far as is known.
    #[must_use]
    pub fn last_used_at(&self) -> Option<Timestamp> {
        let ms = self.used_at_ms.load(Ordering::Relaxed);
        (ms != NEVER_MS).then(|| Timestamp::from_ms(ms))
    }
}

/// A key as it is stored.
#[derive(Serialize, Deserialize)]
struct Record {
    digest: String,
    roles: Roles,
    #[serde(default)]
    types: Option<Vec<Box<str>>>,
    #[serde(default)]
    queues: Option<Vec<Box<str>>>,
    #[serde(default)]
    name: Option<Box<str>>,
    created_at_ms: i64,
    #[serde(default)]
    expires_at_ms: Option<i64>,
}

/// All keys.
#[derive(Default)]
pub(super) struct KeyRing {
    by_digest: FxHashMap<KeyDigest, Arc<ApiKey>>,
    by_id: BTreeMap<(Tenant, Box<str>), Arc<ApiKey>>,
}

impl KeyRing {
    /// From what is stored; uses not yet noted are taken over from before.
    pub(super) fn of(records: Vec<Document>, uses: Vec<Document>, before: &Self) -> Self {
        let uses: FxHashMap<(Tenant, Arc<str>), i64> = uses
            .into_iter()
            .filter_map(|document| {
                Some(((document.key.tenant.clone(), Arc::clone(&document.key.name)), read(&document)?))
            })
            .collect();
        let mut ring = Self::default();
        for document in records {
            let Some(record) = read::<Record>(&document) else { continue };
            let digest = URL_SAFE_NO_PAD.decode(&record.digest).ok().and_then(|bytes| bytes.try_into().ok());
            let Some(digest) = digest.map(KeyDigest) else { continue };
            let (tenant, id): (_, Box<str>) = (document.key.tenant.clone(), (&*document.key.name).into());
            let noted_ms = uses.get(&(tenant.clone(), document.key.name)).copied().unwrap_or(NEVER_MS);
            let known =
                before.by_digest.get(&digest).map_or(NEVER_MS, |key| key.used_at_ms.load(Ordering::Relaxed));
            let key = Arc::new(ApiKey {
                id: id.clone(),
                tenant: tenant.clone(),
                roles: record.roles,
                types: record.types,
                queues: record.queues,
                name: record.name,
                created_at: Some(Timestamp::from_ms(record.created_at_ms)),
                expires_at: record.expires_at_ms.map(Timestamp::from_ms),
                digest,
                used_at_ms: AtomicI64::new(known.max(noted_ms)),
                noted_at_ms: AtomicI64::new(noted_ms),
            });
            ring.by_digest.insert(digest, Arc::clone(&key));
            ring.by_id.insert((tenant, id), key);
        }
        ring
    }

    pub(super) fn tenants(&self) -> impl Iterator<Item = Tenant> {
        self.by_id.keys().map(|(tenant, _)| tenant.clone())
    }
}

/// A key to be made.
#[derive(Debug)]
pub(crate) struct KeyAsked {
    pub(crate) tenant: Tenant,
    pub(crate) roles: Roles,
    pub(crate) types: Option<Vec<Box<str>>>,
    pub(crate) queues: Option<Vec<Box<str>>>,
    pub(crate) name: Option<Box<str>>,
    pub(crate) expires_at: Option<Timestamp>,
}

/// A key that was asked for.
#[derive(Debug)]
pub(crate) enum KeyMade {
    /// With the key itself, this once.
    Now(Arc<ApiKey>, String),
    /// It had been made before.
    Before(Arc<ApiKey>),
}

/// Why no key was made.
#[derive(Debug)]
pub(crate) enum KeyRefusal {
    /// The tenant has as many as it may.
    TooMany,
    Store(Error),
}

impl From<Error> for KeyRefusal {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// The id with that number in it.
#[must_use]
pub(crate) fn key_id(number: u64) -> String {
    format!("key_{number:016x}")
}

/// A new key.
#[must_use]
pub(crate) fn written(secret: &[u8; 32]) -> String {
    format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(secret))
}

impl Directory {
    /// Makes a key for the file of the first admin.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn fresh_key() -> Result<String, Error> {
        fresh_secret().map(|secret| written(&secret))
    }

    /// Whether there is any key.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        !self.snapshot().keys.by_id.is_empty()
    }

    /// The key with this digest.
    pub(crate) fn find_key(&self, digest: &KeyDigest) -> Option<Arc<ApiKey>> {
        let snapshot = self.snapshot();
        snapshot.keys.by_digest.get(digest).filter(|key| key.digest.matches(digest)).cloned()
    }

    /// The key of that id.
    pub(crate) fn key(&self, tenant: Option<&Tenant>, id: &str) -> Option<Arc<ApiKey>> {
        let snapshot = self.snapshot();
        let mut all = snapshot.keys.by_id.values();
        all.find(|key| &*key.id == id && tenant.is_none_or(|tenant| *tenant == key.tenant)).cloned()
    }

    /// The tenant's key of that id.
    pub(crate) fn key_of(&self, tenant: &Tenant, id: &str) -> Option<Arc<ApiKey>> {
        self.snapshot().keys.by_id.get(&(tenant.clone(), id.into())).cloned()
    }

    /// Keys of one tenant, or of all, by tenant and id.
    pub(crate) fn keys(&self, tenant: Option<&Tenant>) -> Vec<Arc<ApiKey>> {
        let snapshot = self.snapshot();
        let wanted = |key: &&Arc<ApiKey>| tenant.is_none_or(|tenant| *tenant == key.tenant);
        snapshot.keys.by_id.values().filter(wanted).cloned().collect()
    }

    /// Makes a key, with that id if one is given, unless there is one of that id. It is shown this once.
    pub(crate) async fn make_key(&self, asked: KeyAsked, id: Option<u64>) -> Result<KeyMade, KeyRefusal> {
        let [a, b, c, d, e, f, g, h, ..] = fresh_secret()?;
        let id = key_id(id.unwrap_or(u64::from_be_bytes([a, b, c, d, e, f, g, h])));
        if let Some(before) = self.key(Some(&asked.tenant), &id) {
            return Ok(KeyMade::Before(before));
        }
        if self.keys(Some(&asked.tenant)).len() >= TENANT_KEYS_COUNT_MAX {
            return Err(KeyRefusal::TooMany);
        }
        let secret = written(&fresh_secret()?);
        let digest = KeyDigest::of(&secret);
        let record = Record {
            digest: URL_SAFE_NO_PAD.encode(digest.0),
            roles: asked.roles,
            types: asked.types,
            queues: asked.queues,
            name: asked.name,
            created_at_ms: self.clock.now().as_ms(),
            expires_at_ms: asked.expires_at.map(Timestamp::as_ms),
        };
        let tenant = asked.tenant.clone();
        let key = DocumentKey { kind: KIND, tenant: asked.tenant, name: Arc::from(id.as_str()) };
        let is_new = self.put(key, Some(&record), IfVersion::Absent).await?;
        let made = if is_new { self.find_key(&digest) } else { self.key(Some(&tenant), &id) };
        let gone = || KeyRefusal::Store(Error::Unavailable("the key was revoked at once".to_owned()));
        let made = made.ok_or_else(gone)?;
        Ok(if is_new { KeyMade::Now(made, secret) } else { KeyMade::Before(made) })
    }

    /// Ends a key; what it is used for from now on is refused.
    pub(crate) async fn revoke_key(&self, key: &ApiKey) -> Result<(), Error> {
        let name: Arc<str> = Arc::from(&*key.id);
        for kind in [KIND, USE_KIND, super::sessions::KIND] {
            let key = DocumentKey { kind, tenant: key.tenant.clone(), name: Arc::clone(&name) };
            self.put::<()>(key, None, IfVersion::Any).await?;
        }
        Ok(())
    }

    /// Writes down when keys were last used, a few at a time and each now and then: it is told, not relied upon.
    pub(super) async fn note_uses(&self) {
        let snapshot = self.snapshot();
        let is_news = |key: &&Arc<ApiKey>| {
            let used_ms = key.used_at_ms.load(Ordering::Relaxed);
            used_ms != NEVER_MS
                && used_ms.saturating_sub(key.noted_at_ms.load(Ordering::Relaxed)) >= KEY_USE_NOTED_MS
        };
        for key in snapshot.keys.by_id.values().filter(is_news).take(USES_NOTED_COUNT_MAX) {
            let used_ms = key.used_at_ms.load(Ordering::Relaxed);
            let name: Arc<str> = Arc::from(&*key.id);
            let document = DocumentKey { kind: USE_KIND, tenant: key.tenant.clone(), name };
            let bytes = Bytes::from(used_ms.to_string());
            // Read again with everything else, once for all of them.
            if self.store.put_document(document, Some(bytes), IfVersion::Any).await.is_err() {
                return;
            }
            key.noted_at_ms.store(used_ms, Ordering::Relaxed);
        }
    }
}

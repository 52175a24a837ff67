//! What pushes are signed with. A tenant that has set nothing has a secret all the same, `default`, which is made from a
//! root secret of the store and the tenant's name: it needs no write when the first job is pushed, and all nodes agree
//! on it. Whoever may manage the tenant can read it. Secrets added later are used beside it, until it is removed.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidewheel_core::limits::WEBHOOK_SECRETS_COUNT_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_core::webhook::Secret;
use tidewheel_store::{DocumentKey, Documents, Error, IfVersion, Store};

use super::{Directory, TRIES_MAX, fresh_secret};

pub(super) const KIND: &str = "webhook-secrets";
const NAME: &str = "secrets";
const ROOT_KIND: &str = "root-secret";
const ROOT_NAME: &str = "webhooks";
/// The id of the secret a tenant has without having set one.
const DEFAULT_ID: &str = "default";

/// A tenant's own secrets, oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    #[serde(default)]
    default_removed: bool,
    own: Vec<Own>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Own {
    id: String,
    secret: String,
    created_at_ms: i64,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.id)
    }
}

/// A secret, as it is told of.
#[derive(Debug, Clone)]
pub(crate) struct SecretShown {
    pub(crate) id: String,
    /// `None` for the one that nobody made.
    pub(crate) created_at: Option<Timestamp>,
    /// Only where it is to be shown.
    pub(crate) secret: Option<Secret>,
}

/// Why secrets stay as they are.
#[derive(Debug)]
pub(crate) enum SecretRefusal {
    NotFound,
    /// There are as many as may be.
    TooMany,
    /// A tenant must have one.
    Last,
    /// It is there already.
    Known,
    Busy,
    Store(Error),
}

impl From<Error> for SecretRefusal {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// The root secret; the first node makes it.
pub(super) async fn root(store: &dyn Store) -> Result<Secret, Error> {
    let key = DocumentKey { kind: ROOT_KIND, tenant: Tenant::default(), name: Arc::from(ROOT_NAME) };
    if let Some(secret) = read_root(store, &key).await? {
        return Ok(secret);
    }
    let fresh = Bytes::copy_from_slice(&fresh_secret()?);
    // Another node may be faster; what counts is what is stored then.
    if store.put_document(key.clone(), Some(fresh), IfVersion::Absent).await?.is_err() {
        tracing::debug!("another node has made the root secret");
    }
    read_root(store, &key).await?.ok_or_else(|| Error::Corrupt("the root secret is gone".to_owned()))
}

async fn read_root(store: &dyn Documents, key: &DocumentKey) -> Result<Option<Secret>, Error> {
    let Some(document) = store.document(key).await? else { return Ok(None) };
    let secret = Secret::from_bytes(&document.bytes);
    secret.map(Some).map_err(|fault| Error::Corrupt(format!("the root secret: {fault}")))
}

/// The id with that number in it, as much of it as there is room for.
pub(crate) fn webhook_secret_id(number: u64) -> String {
    format!("whs_{:012x}", number >> 16)
}

fn key_of(tenant: &Tenant) -> DocumentKey {
    DocumentKey { kind: KIND, tenant: tenant.clone(), name: Arc::from(NAME) }
}

impl Directory {
    /// What a tenant's pushes are signed with; never nothing.
    #[must_use]
    pub fn webhook_secrets(&self, tenant: &Tenant) -> Vec<Secret> {
        let snapshot = self.snapshot();
        let Some(kept) = snapshot.secrets.get(tenant) else { return vec![self.default_secret(tenant)] };
        let own = kept.own.iter().filter_map(|own| Secret::parse(&own.secret).ok());
        let default = (!kept.default_removed).then(|| self.default_secret(tenant));
        default.into_iter().chain(own).collect()
    }

    fn default_secret(&self, tenant: &Tenant) -> Secret {
        self.root.derive(tenant.as_str())
    }

    /// A tenant's secrets, without the secrets themselves.
    pub(crate) fn list_webhook_secrets(&self, tenant: &Tenant) -> Vec<SecretShown> {
        let snapshot = self.snapshot();
        let kept = snapshot.secrets.get(tenant);
        let default = SecretShown { id: DEFAULT_ID.to_owned(), created_at: None, secret: None };
        let default = kept.is_none_or(|kept| !kept.default_removed).then_some(default);
        let own = kept.map(|kept| kept.own.as_slice()).unwrap_or_default();
        let own = own.iter().map(|own| SecretShown {
            id: own.id.clone(),
            created_at: Some(Timestamp::from_ms(own.created_at_ms)),
            secret: None,
        });
        default.into_iter().chain(own).collect()
    }

    /// One of a tenant's secrets; only the one nobody made is shown, as nobody has seen it when it was.
    pub(crate) fn show_webhook_secret(&self, tenant: &Tenant, id: &str) -> Option<SecretShown> {
        let mut shown = self.list_webhook_secrets(tenant).into_iter().find(|shown| shown.id == id)?;
        shown.secret = (id == DEFAULT_ID).then(|| self.default_secret(tenant));
        Some(shown)
    }

    /// Adds a secret, a fresh one if none is given, with that number in its id if there is one. It is shown this once, and
    /// not at all if there was one of that id.
    pub(crate) async fn add_webhook_secret(
        &self,
        tenant: &Tenant,
        given: Option<Secret>,
        number: Option<u64>,
    ) -> Result<SecretShown, SecretRefusal> {
        let secret = match given {
            Some(given) => given,
            None => {
                Secret::from_bytes(&fresh_secret()?).map_err(|fault| Error::Corrupt(fault.to_string()))?
            }
        };
        let [a, b, c, d, e, f, g, h, ..] = fresh_secret()?;
        let id = webhook_secret_id(number.unwrap_or(u64::from_be_bytes([a, b, c, d, e, f, g, h])));
        let (now, revealed) = (self.clock.now(), secret.reveal());
        let change = |kept: &mut Kept| {
            if let Some(before) = kept.own.iter().find(|own| own.id == id) {
                return Ok(Some(Timestamp::from_ms(before.created_at_ms)));
            }
            if kept.own.len() >= WEBHOOK_SECRETS_COUNT_MAX {
                return Err(SecretRefusal::TooMany);
            }
            if kept.own.iter().any(|own| own.secret == revealed) {
                return Err(SecretRefusal::Known);
            }
            let secret = revealed.clone();
            kept.own.push(Own { id: id.clone(), secret, created_at_ms: now.as_ms() });
            Ok(None)
        };
        let before = self.change_secrets(tenant, change).await?;
        let secret = before.is_none().then_some(secret);
        Ok(SecretShown { id, created_at: before.or(Some(now)), secret })
    }

    /// Takes a secret out of use.
    pub(crate) async fn remove_webhook_secret(&self, tenant: &Tenant, id: &str) -> Result<(), SecretRefusal> {
        self.change_secrets(tenant, |kept| {
            let is_default = id == DEFAULT_ID && !kept.default_removed;
            let at = kept.own.iter().position(|own| own.id == id);
            if !is_default && at.is_none() {
                return Err(SecretRefusal::NotFound);
            }
            if kept.own.len() + usize::from(!kept.default_removed) == 1 {
                return Err(SecretRefusal::Last);
            }
            kept.default_removed |= is_default;
            if let Some(at) = at {
                kept.own.remove(at);
            }
            Ok(())
        })
        .await
    }

    async fn change_secrets<T: Send>(
        &self,
        tenant: &Tenant,
        change: impl Fn(&mut Kept) -> Result<T, SecretRefusal> + Send,
    ) -> Result<T, SecretRefusal> {
        let key = key_of(tenant);
        for _ in 0..TRIES_MAX {
            let document = self.store.document(&key).await?;
            let if_version =
                document.as_ref().map_or(IfVersion::Absent, |document| IfVersion::Is(document.version));
            let mut kept: Kept = document.as_ref().and_then(super::read).unwrap_or_default();
            let changed = change(&mut kept)?;
            if self.put(key.clone(), Some(&kept), if_version).await? {
                return Ok(changed);
            }
        }
        Err(SecretRefusal::Busy)
    }
}

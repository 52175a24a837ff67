//! Idempotency keys of calls that change what is there. Submissions and creations have their own digests in
//! [`super::idempotency`]; everything else is known by its method, its address and its body.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use tidewheel_api::wire::call_key::{KeyIs, body_key, canonical};
use tidewheel_api::wire::fault::{At, Code, Fault, Faults};
use tidewheel_core::id::JobId;
use tidewheel_core::limits::IDEMPOTENCY_WINDOW_MS;
use tidewheel_core::names::{Tenant, check_idempotency_key};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{IdempotencyClaim, KeyClaimed, KeyUse};

use super::app::App;
use super::idempotency::{choose_key, digest, header_key};
use super::problem::{Problem, refuse_faults};

/// The digests of submissions and creations begin with a type or an object, never with this.
const MARK: &[u8] = b"\0call";
/// The routes answer under two prefixes; this begins the longer one.
const PREFIX: &str = "/api";
/// What is left of a batch's key in those of its items where they would be too long.
const BATCH_KEY_CHARS_KEPT: usize = 200;

/// What tells a call from others, besides its body.
pub(super) struct CallKey {
    header: Option<Arc<str>>,
    method: String,
    address: String,
}

impl FromRequestParts<Arc<App>> for CallKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        let header = header_key(&parts.headers)?;
        let address = parts.uri.path_and_query().map_or("", |address| address.as_str());
        let address = address.strip_prefix(PREFIX).unwrap_or(address).to_owned();
        Ok(Self { header, method: parts.method.as_str().to_owned(), address })
    }
}

impl CallKey {
    /// The key of the call: in the header or in the body.
    pub(super) fn claim(&self, now: Timestamp, body: &str) -> Result<Option<IdempotencyClaim>, Problem> {
        let mut faults = Faults::default();
        let in_body = body_key(body, &mut faults);
        let key = choose_key(in_body.as_ref(), self.header.as_ref(), &mut faults);
        refuse_faults(faults)?;
        Ok(key.map(|key| self.claim_of(key, now, &canonical(body, KeyIs::Apart))))
    }

    /// The key in the header; one in the body is the schedule's own.
    pub(super) fn claim_by_header(&self, now: Timestamp, body: &str) -> Option<IdempotencyClaim> {
        let key = Arc::clone(self.header.as_ref()?);
        Some(self.claim_of(key, now, &canonical(body, KeyIs::Part)))
    }

    fn claim_of(&self, key: Arc<str>, now: Timestamp, body: &[u8]) -> IdempotencyClaim {
        let fingerprint = digest(&[MARK, self.method.as_bytes(), self.address.as_bytes(), body]);
        IdempotencyClaim { key, fingerprint, until: now.plus_ms(IDEMPOTENCY_WINDOW_MS) }
    }
}

/// Refuses a key that is none, where a call is safe to repeat by itself and needs no key.
pub(super) fn check_key(headers: &HeaderMap, body: &str) -> Result<(), Problem> {
    let header = header_key(headers)?;
    let mut faults = Faults::default();
    let in_body = body_key(body, &mut faults);
    choose_key(in_body.as_ref(), header.as_ref(), &mut faults);
    refuse_faults(faults)
}

/// The key of one job in a call for many. No key that a caller can send has a zero in it.
pub(super) fn claim_for_job(call: &IdempotencyClaim, id: JobId) -> IdempotencyClaim {
    IdempotencyClaim { key: Arc::from(format!("{}\0{id}", call.key)), ..call.clone() }
}

/// The key of one item of a batch: its own, or one made of the batch's and its place.
pub(super) fn item_key(
    batch: Option<&Arc<str>>,
    own: Option<&Arc<str>>,
    index: usize,
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<Arc<str>> {
    if own.is_some() && own == batch {
        // One key stands for one thing: the item would take it, and the batch could not.
        let detail = "the header Idempotency-Key is the same, and is the key of the whole batch";
        faults.add(Code::ConflictingFields, &at.field("idempotency_key"), detail);
    }
    own.cloned().or_else(|| batch.map(|batch| key_in_batch(batch, index)))
}

/// Where the key would be too long, a digest stands for the end of the batch's.
fn key_in_batch(batch: &str, index: usize) -> Arc<str> {
    let key = format!("{batch}:{index}");
    if check_idempotency_key(&key).is_ok() {
        return Arc::from(key);
    }
    let beginning: String = batch.chars().take(BATCH_KEY_CHARS_KEPT).collect();
    let digest = u128::from_be_bytes(digest(&[batch.as_bytes()]));
    Arc::from(format!("{beginning}~{digest:032x}:{index}"))
}

/// Takes the key of a call that is no single order, if it has one. What the call does must be safe to repeat.
pub(super) async fn take(
    app: &App,
    tenant: &Tenant,
    claim: Option<&IdempotencyClaim>,
) -> Result<(), Problem> {
    let Some(claim) = claim else { return Ok(()) };
    match app.engine.store().claim_key(app.now(), tenant, claim.clone()).await? {
        KeyClaimed::New | KeyClaimed::Repeat => Ok(()),
        KeyClaimed::Conflict(used_for) => Err(conflict(used_for)),
    }
}

/// Refuses a key that belongs to something else. It may still be taken by others until it is taken here.
pub(super) async fn check_free(
    app: &App,
    tenant: &Tenant,
    claim: Option<&IdempotencyClaim>,
) -> Result<(), Problem> {
    let Some(claim) = claim else { return Ok(()) };
    match app.engine.store().find_key(app.now(), tenant, &claim.key).await? {
        Some(held) if held.fingerprint != claim.fingerprint => Err(conflict(held.used_for)),
        Some(_) | None => Ok(()),
    }
}

/// What the same call has done before under its key. Whether a key is free only the store can judge, along with
/// what is changed.
pub(super) async fn done_before(
    app: &App,
    tenant: &Tenant,
    claim: Option<&IdempotencyClaim>,
) -> Result<Option<KeyUse>, Problem> {
    let Some(claim) = claim else { return Ok(None) };
    let held = app.engine.store().find_key(app.now(), tenant, &claim.key).await?;
    Ok(held.filter(|held| held.fingerprint == claim.fingerprint).map(|held| held.used_for))
}

/// What a key that belongs to another request is answered with.
pub(super) fn conflict(used_for: KeyUse) -> Problem {
    let code = Code::IdempotencyConflict;
    let detail = format!(
        "the idempotency key belongs to {used_for}, which this is not; use another key for another request"
    );
    let fault = Fault { code, pointer: "/idempotency_key".to_owned(), detail: detail.clone() };
    Problem::new(code, detail).with_errors(vec![fault])
}

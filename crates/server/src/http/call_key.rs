//! Idempotency keys of calls that change what is there. Submissions and creations have their own digests in
//! [`super::idempotency`]; everything else is known by its method, its address and its body.

use std::fmt;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use tidewheel_api::wire::call_key::{KeyIs, body_key, canonical, found_key};
use tidewheel_api::wire::fault::{At, Code, Fault, Faults};
use tidewheel_core::id::JobId;
use tidewheel_core::limits::{IDEMPOTENCY_KEY_CHARS_MAX, IDEMPOTENCY_WINDOW_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{IdempotencyClaim, KeyClaimed, KeyUse};

use super::app::App;
use super::idempotency::{choose_key, digest, header_key};
use super::problem::{Problem, refuse_faults};

/// The digests of submissions and creations begin with a type or an object, never with this.
const MARK: &[u8] = b"\0call";
/// The routes answer under two prefixes; this begins the longer one.
const PREFIX: &str = "/api";
/// What is left of a call's key in those made of it, where they would be too long.
const CALL_KEY_CHARS_KEPT: usize = 180;
/// Stands between a call's key and what the server adds. No key that a caller can send has it; PostgreSQL takes it, unlike a
/// zero.
const ADDED: char = '\u{1}';
/// Added to the key of a call that has made what it names.
const MADE: &str = "made";

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

/// The key of one job in a call for many.
pub(super) fn claim_for_job(call: &IdempotencyClaim, id: JobId) -> IdempotencyClaim {
    IdempotencyClaim { key: extended(&call.key, ADDED, &id), ..call.clone() }
}

/// The key of a batch: in the header, or in the body beside its items, as it was found there.
pub(super) fn batch_key(found: Option<&str>, header: Option<&Arc<str>>) -> Result<Option<Arc<str>>, Problem> {
    let mut faults = Faults::default();
    let in_body = found.and_then(|raw| found_key(raw, &mut faults));
    let key = choose_key(in_body.as_ref(), header, &mut faults);
    refuse_faults(faults)?;
    Ok(key)
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
        let detail = "it is the key of the whole batch already, and can be no job's or schedule's own";
        faults.add(Code::ConflictingFields, &at.field("idempotency_key"), detail);
    }
    own.cloned().or_else(|| batch.map(|batch| extended(batch, ':', &index)))
}

/// A key made of a call's. Where it would be too long, a digest stands for the end of the call's.
fn extended(call: &str, mark: char, addition: &dyn fmt::Display) -> Arc<str> {
    let key = format!("{call}{mark}{addition}");
    if key.chars().count() <= IDEMPOTENCY_KEY_CHARS_MAX {
        return Arc::from(key);
    }
    let beginning: String = call.chars().take(CALL_KEY_CHARS_KEPT).collect();
    let digest = u128::from_be_bytes(digest(&[call.as_bytes()]));
    Arc::from(format!("{beginning}~{digest:032x}{mark}{addition}"))
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
    is_held(app, tenant, claim).await.map(drop)
}

/// Whether a call about what the directory has was done before under its key; one that belongs to something else is
/// refused. Such calls take their key once they are done: one that was refused, or failed, may be sent again.
pub(super) async fn is_repeat(
    app: &App,
    tenant: &Tenant,
    claim: Option<&IdempotencyClaim>,
) -> Result<bool, Problem> {
    let is_repeat = is_held(app, tenant, claim).await?;
    if is_repeat {
        // Another node may have done it a moment ago.
        app.access.directory().catch_up().await;
    }
    Ok(is_repeat)
}

/// Whether the same call has the key. Any other that has it is a conflict.
async fn is_held(app: &App, tenant: &Tenant, claim: Option<&IdempotencyClaim>) -> Result<bool, Problem> {
    let Some(claim) = claim else { return Ok(false) };
    match app.engine.store().find_key(app.now(), tenant, &claim.key).await? {
        Some(held) if held.fingerprint != claim.fingerprint => Err(conflict(held.used_for)),
        Some(_) => Ok(true),
        None => Ok(false),
    }
}

/// Notes, before the call can be taken for done, that it makes what it names, so that its repeats say so, too.
pub(super) async fn note_made(
    app: &App,
    tenant: &Tenant,
    claim: Option<&IdempotencyClaim>,
) -> Result<(), Problem> {
    take(app, tenant, claim.map(claim_of_made).as_ref()).await
}

/// Whether the call that has the key has made what it names.
pub(super) async fn has_made(
    app: &App,
    tenant: &Tenant,
    claim: Option<&IdempotencyClaim>,
) -> Result<bool, Problem> {
    is_held(app, tenant, claim.map(claim_of_made).as_ref()).await
}

fn claim_of_made(call: &IdempotencyClaim) -> IdempotencyClaim {
    IdempotencyClaim { key: extended(&call.key, ADDED, &MADE), ..call.clone() }
}

/// The number in the id of what is made under a key: the same when it is asked for again, so that there is one.
pub(super) fn id_under(claim: &IdempotencyClaim, tenant: &Tenant) -> u64 {
    let parts: [&[u8]; 3] = [tenant.as_str().as_bytes(), claim.key.as_bytes(), &claim.fingerprint];
    let [a, b, c, d, e, f, g, h, ..] = digest(&parts);
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
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

#[cfg(test)]
mod tests {
    use tidewheel_core::names::check_idempotency_key;

    use super::*;

    fn claim(key: &str) -> IdempotencyClaim {
        IdempotencyClaim { key: Arc::from(key), fingerprint: [7; 16], until: Timestamp::from_ms(0) }
    }

    #[test]
    fn keys_made_of_a_call_s_can_be_stored_anywhere_and_sent_by_nobody() {
        let id = JobId::from_bytes([1; 16]);
        for call in ["k".to_owned(), "é".repeat(IDEMPOTENCY_KEY_CHARS_MAX)] {
            let call = claim(&call);
            for made in [claim_for_job(&call, id), claim_of_made(&call)] {
                assert!(made.key.chars().count() <= IDEMPOTENCY_KEY_CHARS_MAX, "{made:?}");
                // PostgreSQL has no zeros in its texts.
                assert!(!made.key.contains('\0'), "{made:?}");
                assert!(check_idempotency_key(&made.key).is_err(), "{made:?}");
            }
            assert_ne!(claim_for_job(&call, id).key, claim_of_made(&call).key);
        }
        let long = |last: &str| claim(&format!("{}{last}", "k".repeat(IDEMPOTENCY_KEY_CHARS_MAX - 1)));
        assert_ne!(claim_for_job(&long("a"), id).key, claim_for_job(&long("b"), id).key);
    }
}

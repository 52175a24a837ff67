//! API keys. A key is shown when it is made, and never again.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::fault::Code;
use tidewheel_api::wire::key_request::KeyRequest;
use tidewheel_api::wire::schedule_query;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::limits::TENANT_KEYS_COUNT_MAX;

use super::answer;
use super::app::App;
use super::body::Text;
use super::call_key::{self, CallKey};
use super::caller::{Caller, NamePath};
use super::jobs::change::whole;
use super::problem::Problem;
use super::schedules::read::read_query;
use crate::audit::Told;
use crate::directory::{ApiKey, KeyAsked, KeyMade, KeyRefusal, Role, key_id};

/// `POST /v1/keys`
pub(super) async fn make(
    State(app): State<Arc<App>>,
    caller: Caller,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    app.check_open()?;
    let asked = whole(|faults| KeyRequest::read(&body.text, app.now(), faults))?;
    let asked = KeyAsked {
        tenant: asked.tenant.unwrap_or_else(|| caller.tenant.clone()),
        roles: asked.roles.into_iter().filter_map(Role::from_name).collect(),
        types: asked.types,
        queues: asked.queues,
        name: asked.name,
        expires_at: asked.expires_at,
    };
    let claim = call.claim(app.now(), &body.text)?;
    let id = claim.as_ref().map(|claim| call_key::id_under(claim, &caller.tenant));
    let made = if call_key::is_repeat(&app, &caller.tenant, claim.as_ref()).await? {
        // One that was revoked since is not made again.
        let id = id.map(key_id).unwrap_or_default();
        KeyMade::Before(app.access.directory().key(Some(&asked.tenant), &id).ok_or_else(no_key)?)
    } else {
        app.access.directory().make_key(asked, id).await?
    };
    if let KeyMade::Now(key, _) = &made {
        tracing::info!(key = &*key.id, tenant = key.tenant.as_str(), "a key was made");
    }
    call_key::take(&app, &caller.tenant, claim.as_ref()).await?;
    let mut out = JsonWriter::with_capacity(512);
    Ok(match made {
        KeyMade::Now(key, secret) => {
            write(&mut out, &key, Some(&secret));
            answer::json(StatusCode::CREATED, out)
        }
        KeyMade::Before(key) => {
            write(&mut out, &key, None);
            answer::json(StatusCode::OK, out)
        }
    })
}

/// `GET /v1/keys`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let query = read_query(text.as_deref(), schedule_query::PAGE)?;
    let keys = app.access.directory().keys(caller.named.as_ref());
    let place = |key: &ApiKey| format!("{}:{}", key.tenant, key.id);
    let mut keys: Vec<_> = keys.iter().map(|key| (place(key), key)).collect();
    keys.sort_by(|(a, _), (b, _)| a.cmp(b));
    let after = query.cursor.as_deref();
    let mut left = keys.iter().filter(|(place, _)| after.is_none_or(|after| place.as_str() > after));
    let mut items = JsonWriter::with_capacity(1_024);
    let mut last = None;
    for (place, key) in left.by_ref().take(query.limit) {
        write(&mut items, key, None);
        last = Some(place.as_str());
    }
    let next = left.next().and(last);
    Ok(answer::list(items, next))
}

/// `GET /v1/keys/{id}`
pub(super) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamePath(id): NamePath,
) -> Result<Response, Problem> {
    let key = app.access.directory().key(caller.named.as_ref(), &id).ok_or_else(no_key)?;
    let mut out = JsonWriter::with_capacity(512);
    write(&mut out, &key, None);
    Ok(answer::json(StatusCode::OK, out))
}

/// `DELETE /v1/keys/{id}`
pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamePath(id): NamePath,
    call: CallKey,
) -> Result<Response, Problem> {
    app.check_open()?;
    let claim = call.claim(app.now(), "")?;
    if call_key::is_repeat(&app, &caller.tenant, claim.as_ref()).await? {
        return Ok(answer::no_content());
    }
    let key = app.access.directory().key(caller.named.as_ref(), &id).ok_or_else(no_key)?;
    app.access.directory().revoke_key(&key).await?;
    tracing::info!(key = &*key.id, tenant = key.tenant.as_str(), "a key was revoked");
    call_key::take(&app, &caller.tenant, claim.as_ref()).await?;
    Ok(Told::Whose(key.tenant.clone()).beside(answer::no_content()))
}

fn no_key() -> Problem {
    Problem::new(Code::KeyNotFound, "there is no such key")
}

fn write(out: &mut JsonWriter, key: &ApiKey, secret: Option<&str>) {
    let names = |out: &mut JsonWriter, names: Option<&Vec<Box<str>>>| match names {
        Some(names) => out.array(|out| names.iter().for_each(|name| out.text(name))),
        None => out.null(),
    };
    out.object(|out| {
        out.key("id").text(&key.id);
        if let Some(secret) = secret {
            out.key("secret").text(secret);
        }
        out.key("tenant").text(key.tenant.as_str());
        out.key("name").text_or_null(key.name.as_deref());
        out.key("roles").array(|out| key.roles.iter().for_each(|role| out.text(role.as_str())));
        names(out.key("types"), key.types.as_ref());
        names(out.key("queues"), key.queues.as_ref());
        out.key("created_at").time(key.created_at);
        out.key("expires_at").time(key.expires_at);
        out.key("last_used_at").time(key.last_used_at());
    });
}

impl From<KeyRefusal> for Problem {
    fn from(refusal: KeyRefusal) -> Self {
        match refusal {
            KeyRefusal::TooMany => {
                Self::new(Code::LimitReached, format!("a tenant has at most {TENANT_KEYS_COUNT_MAX} keys"))
            }
            KeyRefusal::Store(error) => error.into(),
        }
    }
}

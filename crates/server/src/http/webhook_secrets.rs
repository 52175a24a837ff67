//! The secrets a tenant's pushes are signed with. They are shown when they are made, and never again; the one a tenant has
//! by itself is shown on request.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, State};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use tidewheel_api::wire::fault::Code;
use tidewheel_api::wire::tenant_request::SecretRequest;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::limits::WEBHOOK_SECRETS_COUNT_MAX;

use super::answer;
use super::app::App;
use super::body::Text;
use super::call_key::{self, CallKey};
use super::caller::Caller;
use super::jobs::change::whole;
use super::problem::Problem;
use super::tenants::TenantPath;
use crate::directory::{SecretRefusal, SecretShown, webhook_secret_id};

/// The secret named in the path.
pub(super) struct SecretPath(String);

impl FromRequestParts<Arc<App>> for SecretPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let Path(names) =
            Path::<Vec<(String, String)>>::from_request_parts(parts, app).await.map_err(|_| no_secret())?;
        let found = names.into_iter().find(|(key, _)| key == "secret");
        found.map(|(_, name)| Self(name)).ok_or_else(no_secret)
    }
}

fn no_secret() -> Problem {
    Problem::new(Code::SecretNotFound, "there is no such webhook secret")
}

/// `GET /v1/tenants/{id}/webhook-secrets`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    TenantPath(tenant): TenantPath,
) -> Result<Response, Problem> {
    let secrets = app.access.directory().list_webhook_secrets(&tenant);
    let mut items = JsonWriter::with_capacity(512);
    secrets.iter().for_each(|secret| write(&mut items, secret));
    Ok(answer::list(items, None))
}

/// `GET /v1/tenants/{id}/webhook-secrets/{secret}`
pub(super) async fn one(
    State(app): State<Arc<App>>,
    TenantPath(tenant): TenantPath,
    SecretPath(id): SecretPath,
) -> Result<Response, Problem> {
    let secret = app.access.directory().show_webhook_secret(&tenant, &id).ok_or_else(no_secret)?;
    Ok(shown(StatusCode::OK, &secret))
}

/// `POST /v1/tenants/{id}/webhook-secrets`
pub(super) async fn add(
    State(app): State<Arc<App>>,
    TenantPath(tenant): TenantPath,
    caller: Caller,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    app.check_open()?;
    let request = whole(|faults| SecretRequest::read(&body.text, faults))?;
    let claim = call.claim(app.now(), &body.text)?;
    let number = claim.as_ref().map(|claim| call_key::id_under(claim, &caller.tenant));
    if call_key::is_repeat(&app, &caller.tenant, claim.as_ref()).await? {
        // One that was removed since is not added again.
        let id = number.map(webhook_secret_id).unwrap_or_default();
        let before = app.access.directory().show_webhook_secret(&tenant, &id).ok_or_else(no_secret)?;
        return Ok(shown(StatusCode::OK, &before));
    }
    let added = app.access.directory().add_webhook_secret(&tenant, request.secret, number).await?;
    call_key::take(&app, &caller.tenant, claim.as_ref()).await?;
    let status = if added.secret.is_some() { StatusCode::CREATED } else { StatusCode::OK };
    Ok(shown(status, &added))
}

/// `DELETE /v1/tenants/{id}/webhook-secrets/{secret}`
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    TenantPath(tenant): TenantPath,
    SecretPath(id): SecretPath,
    caller: Caller,
    call: CallKey,
) -> Result<Response, Problem> {
    app.check_open()?;
    let claim = call.claim(app.now(), "")?;
    if !call_key::is_repeat(&app, &caller.tenant, claim.as_ref()).await? {
        app.access.directory().remove_webhook_secret(&tenant, &id).await?;
        call_key::take(&app, &caller.tenant, claim.as_ref()).await?;
    }
    Ok(answer::no_content())
}

fn shown(status: StatusCode, secret: &SecretShown) -> Response {
    let mut out = JsonWriter::with_capacity(256);
    write(&mut out, secret);
    answer::json(status, out)
}

fn write(out: &mut JsonWriter, shown: &SecretShown) {
    out.object(|out| {
        out.key("id").text(&shown.id);
        out.key("created_at").time(shown.created_at);
        if let Some(secret) = &shown.secret {
            out.key("secret").text(&secret.reveal());
        }
    });
}

impl From<SecretRefusal> for Problem {
    fn from(refusal: SecretRefusal) -> Self {
        match refusal {
            SecretRefusal::NotFound => no_secret(),
            SecretRefusal::TooMany => Self::new(
                Code::LimitReached,
                format!(
                    "a tenant has at most {WEBHOOK_SECRETS_COUNT_MAX} secrets of its own; remove one first"
                ),
            ),
            SecretRefusal::Last => {
                Self::new(Code::SecretConflict, "it is the only secret; add another before removing it")
            }
            SecretRefusal::Known => Self::new(Code::SecretConflict, "the secret is in use already"),
            SecretRefusal::Busy => Self::new(Code::StoreUnavailable, "others change the same; try again"),
            SecretRefusal::Store(error) => error.into(),
        }
    }
}

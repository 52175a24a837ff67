//! Signing in to the web pages and out of them, and who one is.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::header::{HOST, ORIGIN, SET_COOKIE};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tidewheel_api::wire::fault::Code;
use tidewheel_api::wire::session_request::SessionRequest;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::limits::{SECOND_MS, SESSION_MS};

use super::answer;
use super::app::App;
use super::body::Text;
use super::caller::Caller;
use super::jobs::change::whole;
use super::problem::Problem;
use crate::access::{COOKIE_NAME, Identity, Need, Peer, Session, shown_key};
use crate::audit::Told;
use crate::directory::Role;

/// Where a proxy says over what it was asked.
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What one may do, by name.
const NEEDS: [(&str, Need); 5] = [
    ("look", Need::Look),
    ("submit", Need::Submit),
    ("manage", Need::Manage),
    ("work", Need::Work),
    ("administer", Need::Administer),
];

/// `POST /v1/session`
pub(super) async fn sign_in(
    State(app): State<Arc<App>>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    body: Text,
) -> Result<Response, Problem> {
    let key = match shown_key(&headers) {
        Some(key) => key.to_owned(),
        None => whole(|faults| SessionRequest::read(&body.text, faults))?.key,
    };
    let (session, cookie) = app.access.sign_in(key.trim(), peer.map(|Extension(peer)| peer))?;
    tracing::info!(key = &*session.key.id, tenant = session.key.tenant.as_str(), "somebody signed in");
    let mut out = JsonWriter::with_capacity(512);
    let identity = Identity::Key(Arc::clone(&session.key));
    write(&mut out, &app, &identity, session.key.tenant.as_str(), Some(&session));
    let mut response = answer::json(StatusCode::CREATED, out);
    set_cookie(&mut response, &headers, &cookie, SESSION_MS / SECOND_MS)?;
    Ok(Told::Who(session.key).beside(response))
}

/// `DELETE /v1/session`
pub(super) async fn sign_out(
    State(app): State<Arc<App>>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // One that has ended already needs no ending, whoever says so; nobody learns anything from it.
    let mut response = answer::no_content();
    if let Ok(Some(session)) = app.access.signed_in(&headers, None) {
        session.check_change(&method, &headers)?;
        app.access.sign_out(&session).await?;
        response = Told::Who(session.key).beside(response);
    }
    set_cookie(&mut response, &headers, "", 0)?;
    Ok(response)
}

/// `GET /v1/me`
pub(super) async fn me(
    State(app): State<Arc<App>>,
    caller: Caller,
    session: Option<Extension<Session>>,
) -> Response {
    let mut out = JsonWriter::with_capacity(512);
    let session = session.map(|Extension(session)| session);
    write(&mut out, &app, &caller.identity, caller.tenant.as_str(), session.as_ref());
    answer::json(StatusCode::OK, out)
}

fn write(out: &mut JsonWriter, app: &App, identity: &Identity, tenant: &str, session: Option<&Session>) {
    let key = match identity {
        Identity::Key(key) => Some(key),
        Identity::Anyone => None,
    };
    let roles = key.map_or(&[Role::Admin][..], |key| &key.roles);
    let may = |need: Need| roles.iter().any(|role| need.is_met_by(*role));
    out.object(|out| {
        out.key("tenant").text(tenant);
        out.key("roles").array(|out| roles.iter().for_each(|role| out.text(role.as_str())));
        out.key("may").array(|out| {
            NEEDS.iter().filter(|(_, need)| may(*need)).for_each(|(name, _)| out.text(name));
        });
        out.key("key_id").text_or_null(key.map(|key| &*key.id));
        out.key("key_name").text_or_null(key.and_then(|key| key.name.as_deref()));
        out.key("expires_at").time(key.and_then(|key| key.expires_at));
        out.key("keys_required").boolean(app.access.is_closed());
        out.key("session");
        match session {
            Some(session) => out.object(|out| {
                out.key("expires_at").plain(session.ends_at());
                out.key("csrf_token").text(&session.token);
            }),
            None => out.null(),
        }
    });
}

/// Has the browser keep a session for so long, or forget it.
fn set_cookie(response: &mut Response, request: &HeaderMap, value: &str, age_s: i64) -> Result<(), Problem> {
    let secure = if is_plain_loopback(request) { "" } else { "; Secure" };
    let text = format!("{COOKIE_NAME}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}");
    let failed = |_| Problem::new(Code::Internal, "the server failed; its log says more");
    response.headers_mut().insert(SET_COOKIE, HeaderValue::try_from(text).map_err(failed)?);
    Ok(())
}

/// Whether the browser asks this machine without TLS: only there may a cookie go over the wire as it is.
fn is_plain_loopback(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_tls = text(FORWARDED_PROTO).eq_ignore_ascii_case("https") || text(ORIGIN).starts_with("https:");
    !is_tls && text(HOST).parse().is_ok_and(|asked: Authority| is_loopback(asked.host()))
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_goes_unprotected_only_to_this_machine() {
        let is_plain = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            is_plain_loopback(&headers)
        };
        for host in ["127.0.0.1:7400", "localhost", "LOCALHOST:80", "[::1]:7400", "127.8.0.1"] {
            assert!(is_plain(&[("host", host)]), "{host}");
            assert!(
                !is_plain(&[("host", host), ("origin", "https://tide.example")]),
                "a proxy before {host}"
            );
            assert!(!is_plain(&[("host", host), ("x-forwarded-proto", "https")]), "a proxy before {host}");
        }
        for host in ["tide.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", ""] {
            assert!(!is_plain(&[("host", host)]), "{host}");
        }
        assert!(!is_plain(&[]));
    }
}

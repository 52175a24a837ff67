//! What a token says, and whether it says it to us, now.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

use super::jwks::Jwks;
use super::{LEEWAY_MS, OidcConfig};
use crate::directory::{ApiKey, KeyDigest, Role, Roles};

/// Of the subject's name, as much as is kept.
const SUBJECT_CHARS_MAX: usize = 128;

/// Why a token does not count. For the log alone: callers are told the same whatever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unverified {
    #[error("it has not the form of a token")]
    Malformed,
    #[error("none of the issuer's keys has signed it by an algorithm that is taken")]
    Signature,
    #[error("it is of another issuer")]
    Issuer,
    #[error("it is for somebody else")]
    Audience,
    #[error("it has ended, or does not say when it ends")]
    Over,
    #[error("it does not hold yet")]
    Early,
    #[error("it names no tenant")]
    Tenant,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    /// What must be understood; nothing here is.
    #[serde(default)]
    crit: Option<Value>,
}

struct Parts<'a> {
    header: Header,
    claims: &'a str,
    signed: &'a str,
    signature: &'a str,
}

fn decoded(text: &str) -> Result<Vec<u8>, Unverified> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| Unverified::Malformed)
}

fn parts(token: &str) -> Result<Parts<'_>, Unverified> {
    let (signed, signature) = token.rsplit_once('.').ok_or(Unverified::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(Unverified::Malformed)?;
    let header: Header = serde_json::from_slice(&decoded(header)?).map_err(|_| Unverified::Malformed)?;
    if header.crit.is_some() {
        return Err(Unverified::Malformed);
    }
    Ok(Parts { header, claims, signed, signature })
}

/// Which key a token says it is signed with.
pub(super) fn key_id(token: &str) -> Option<String> {
    parts(token).ok()?.header.kid
}

/// What a token stands for, if it holds.
pub(super) fn verify(
    token: &str,
    config: &OidcConfig,
    keys: &Jwks,
    now: Timestamp,
) -> Result<ApiKey, Unverified> {
    let Parts { header, claims, signed, signature } = parts(token)?;
    let signature = decoded(signature)?;
    if !keys.has_signed(header.kid.as_deref(), &header.alg, signed.as_bytes(), &signature) {
        return Err(Unverified::Signature);
    }
    let claims: Map<String, Value> =
        serde_json::from_slice(&decoded(claims)?).map_err(|_| Unverified::Malformed)?;
    if claims.get("iss").and_then(Value::as_str) != Some(&*config.issuer) {
        return Err(Unverified::Issuer);
    }
    if !texts(claims.get("aud")).contains(&&*config.audience) {
        return Err(Unverified::Audience);
    }
    let end = claims.get("exp").and_then(instant).ok_or(Unverified::Over)?.plus_ms(LEEWAY_MS);
    if end <= now {
        return Err(Unverified::Over);
    }
    match claims.get("nbf").map(instant) {
        None => {}
        Some(Some(begin)) if begin <= now.plus_ms(LEEWAY_MS) => {}
        Some(_) => return Err(Unverified::Early),
    }
    let roles = roles(claims.get(&config.roles_claim));
    let tenant = match claims.get(&config.tenant_claim).and_then(Value::as_str).map(Tenant::new) {
        Some(Ok(tenant)) => tenant,
        // An admin acts for every tenant, so needs none.
        None if roles.contains(&Role::Admin) => Tenant::default(),
        Some(Err(_)) | None => return Err(Unverified::Tenant),
    };
    let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
    let subject: String = subject.chars().take(SUBJECT_CHARS_MAX).collect();
    Ok(ApiKey::of_token(KeyDigest::of(token), &subject, tenant, roles, end))
}

/// One text, words with spaces between them, or a list.
fn roles(claim: Option<&Value>) -> Roles {
    let words = texts(claim).into_iter().flat_map(str::split_whitespace);
    let mut roles: Roles = words.filter_map(Role::from_name).collect();
    roles.sort_unstable();
    roles.dedup();
    roles
}

fn texts(claim: Option<&Value>) -> Vec<&str> {
    match claim {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
    }
}

/// Seconds since 1970, whole or not. What is no number is no instant.
fn instant(value: &Value) -> Option<Timestamp> {
    match value.as_i64() {
        Some(seconds) => Some(Timestamp::from_ms(seconds.saturating_mul(1_000))),
        None => {
            let duration = std::time::Duration::try_from_secs_f64(value.as_f64()?).ok()?;
            Some(Timestamp::from_ms(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
        }
    }
}

//! Signing in to the web pages. A session is a cookie that no script can read: when it began, a number of its own and the
//! key it stands for, signed. It ends after twelve hours, when it is ended, and with its key. The signature covers the
//! key's digest, so that a session never outlives the key it was made from, also where another takes its id.
//!
//! ```text
//! cookie    Base64url(began_ms / number / key id / tenant) . Base64url(signature)
//! ```
//!
//! A browser sends the cookie whoever makes it ask, so whoever asks for a change must also know the session's token, which
//! only the server's own pages can read.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::COOKIE;
use http::{HeaderMap, HeaderName, Method};
use tidewheel_api::wire::fault::Code;
use tidewheel_core::limits::{SESSION_COOKIE_BYTES_MAX, SESSION_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::Error;

use super::{Access, Peer};
use crate::directory::{ApiKey, Directory};
use crate::http::Problem;

/// The name of the cookie.
pub(crate) const COOKIE_NAME: &str = "tidewheel_session";
const TOKEN_HEADER: HeaderName = HeaderName::from_static("tidewheel-csrf");
/// Between the parts of a session; none of them can have it.
const SEPARATOR: char = '/';
/// What the two signatures are for, so that neither stands for the other.
const FOR_SESSION: &[u8] = b"session\0";
const FOR_TOKEN: &[u8] = b"token\0";

/// Somebody who is signed in.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) key: Arc<ApiKey>,
    pub(crate) began_at: Timestamp,
    nonce: Box<str>,
    /// What a change must be sent with.
    pub(crate) token: Box<str>,
}

impl Session {
    /// When it ends by itself.
    pub(crate) fn ends_at(&self) -> Timestamp {
        let end = self.began_at.plus_ms(SESSION_MS);
        self.key.expires_at.map_or(end, |key_ends| end.min(key_ends))
    }

    /// Whether a change may be made: by a page that knows the token.
    pub(crate) fn check_change(&self, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
        let shown = headers.get(TOKEN_HEADER).map_or(&b""[..], |value| value.as_bytes());
        if method.is_safe() || bool::from(subtle::ConstantTimeEq::ct_eq(shown, self.token.as_bytes())) {
            return Ok(());
        }
        let detail = "whoever is signed in by a cookie sends the token of `GET /v1/me` as `Tidewheel-CSRF`";
        Err(Problem::new(Code::CrossSite, detail))
    }
}

impl Access {
    /// Signs somebody in who shows a key; returns the session and its cookie.
    pub(crate) fn sign_in(&self, shown: &str, peer: Option<Peer>) -> Result<(Session, String), Problem> {
        let Some(key) = self.prove(shown, peer)? else {
            return Err(self.failed(peer, "the key is not known, was revoked or has ended"));
        };
        if key.is_token() {
            let detail = "sign in with a key; a token is shown with each request";
            return Err(Problem::new(Code::Unauthorized, detail));
        }
        let began_at = self.clock.now();
        key.used(began_at);
        let nonce = format!("{:032x}", Directory::session_nonce()?);
        let parts = [&began_at.as_ms().to_string(), &nonce, &*key.id, key.tenant.as_str()];
        let body = parts.join(&SEPARATOR.to_string());
        let signature = self.signature(&body, &key);
        let cookie =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(&body), URL_SAFE_NO_PAD.encode(signature.as_bytes()));
        let token = self.token(&cookie);
        Ok((Session { key, began_at, nonce: nonce.into(), token }, cookie))
    }

    /// Who is signed in by the cookie of a request; `None` without one, and where it says nothing and nothing is asked
    /// for.
    pub(crate) fn signed_in(
        &self,
        headers: &HeaderMap,
        peer: Option<Peer>,
    ) -> Result<Option<Session>, Problem> {
        let Some(cookie) = shown_cookie(headers) else { return Ok(None) };
        // Nobody can guess a signature, so one that holds needs no patience.
        if let Some(session) = self.read_session(cookie) {
            return Ok(Some(session));
        }
        if !self.is_closed() {
            return Ok(None);
        }
        self.check_penalty(peer)?;
        Err(self.failed(peer, "the session has ended; sign in again"))
    }

    /// Ends a session.
    pub(crate) async fn sign_out(&self, session: &Session) -> Result<(), Error> {
        self.directory().end_session(&session.key, &session.nonce, session.began_at.as_ms()).await
    }

    fn read_session(&self, cookie: &str) -> Option<Session> {
        let (body, signature) = cookie.split_once('.')?;
        let signature: [u8; 32] = URL_SAFE_NO_PAD.decode(signature).ok()?.try_into().ok()?;
        let body = String::from_utf8(URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
        let mut parts = body.splitn(4, SEPARATOR);
        let (began_ms, nonce, id, tenant) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let key = self.key_of(&Tenant::new(tenant).ok()?, id)?;
        // Compared in a time that does not depend on how alike they are.
        if self.signature(&body, &key) != blake3::Hash::from_bytes(signature) {
            return None;
        }
        let (now, began_at) = (self.clock.now(), Timestamp::from_ms(began_ms.parse().ok()?));
        let token = self.token(cookie);
        let session = Session { key, began_at, nonce: nonce.into(), token };
        let is_ended = self.directory().is_session_ended(&session.key, nonce, began_at.as_ms());
        (session.ends_at() > now && !is_ended).then_some(session)
    }

    fn key_of(&self, tenant: &Tenant, id: &str) -> Option<Arc<ApiKey>> {
        let in_file = self.file_key.as_ref().filter(|key| &*key.id == id && key.tenant == *tenant).cloned();
        in_file.or_else(|| self.directory().key_of(tenant, id))
    }

    fn signature(&self, body: &str, key: &ApiKey) -> blake3::Hash {
        self.signed(&[FOR_SESSION, key.digest().as_bytes(), body.as_bytes()])
    }

    fn token(&self, cookie: &str) -> Box<str> {
        URL_SAFE_NO_PAD.encode(self.signed(&[FOR_TOKEN, cookie.as_bytes()]).as_bytes()).into()
    }

    fn signed(&self, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.directory().session_secret());
        for part in parts {
            hasher.update(part);
        }
        hasher.finalize()
    }
}

/// The cookie of a session that came with a request.
fn shown_cookie(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|pairs| pairs.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| *name == COOKIE_NAME)?;
    Some(value).filter(|value| !value.is_empty() && value.len() <= SESSION_COOKIE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tidewheel_store::{Layout, Store};
    use tidewheel_store_testkit::memory::MemoryStore;

    use super::*;
    use crate::clock::SystemClock;

    async fn access(store: &Arc<dyn Store>, key: &str) -> Access {
        let clock = Arc::new(SystemClock::new());
        let directory = Directory::open(Arc::clone(store), clock.clone()).await.unwrap();
        Access::with_keys(directory, clock, Some(key))
    }

    fn store() -> Arc<dyn Store> {
        Arc::new(MemoryStore::new(Layout { shards: 4 }))
    }

    fn with(cookie: &str) -> HeaderMap {
        let value = format!("theme=dark; {COOKIE_NAME}={cookie}; other=1");
        HeaderMap::from_iter([(COOKIE, HeaderValue::try_from(value).unwrap())])
    }

    #[tokio::test]
    async fn a_session_holds_at_every_node_and_ends_with_its_key() {
        let store = store();
        let one = access(&store, "twk_first").await;
        let (session, cookie) = one.sign_in("twk_first", None).unwrap();
        let other = access(&store, "twk_first").await;
        let found = other.signed_in(&with(&cookie), None).unwrap().unwrap();
        assert_eq!((&*found.key.id, &found.token), ("key_file", &session.token));
        assert!(other.signed_in(&HeaderMap::new(), None).unwrap().is_none());
        let replaced = access(&store, "twk_second").await;
        assert!(replaced.signed_in(&with(&cookie), None).is_err(), "another key has taken its id");
    }

    #[tokio::test]
    async fn a_cookie_that_was_touched_is_none() {
        let store = store();
        let access = access(&store, "twk_first").await;
        let (_, cookie) = access.sign_in("twk_first", None).unwrap();
        for at in 0..cookie.len() {
            let mut touched = cookie.clone().into_bytes();
            touched[at] = if touched[at] == b'A' { b'B' } else { b'A' };
            let touched = String::from_utf8(touched).unwrap();
            assert!(access.signed_in(&with(&touched), None).is_err(), "{touched}");
        }
        let (body, signature) = cookie.split_once('.').unwrap();
        for cookie in [body, signature, "", ".", "a.b", &format!("{body}."), &"x".repeat(10_000)] {
            assert!(!matches!(access.signed_in(&with(cookie), None), Ok(Some(_))), "{cookie}");
        }
    }

    #[tokio::test]
    async fn whoever_guesses_is_slowed_and_who_is_signed_in_is_not() {
        let store = store();
        let access = access(&store, "twk_first").await;
        let (_, cookie) = access.sign_in("twk_first", None).unwrap();
        let peer = Some(Peer("192.0.2.1".parse().unwrap()));
        let mut refusals = Vec::new();
        for n in 0..40 {
            let refused = if n % 2 == 0 {
                access.sign_in("twk_guessed", peer).map(drop)
            } else {
                access.signed_in(&with("guessed.guessed"), peer).map(drop)
            };
            refusals.push(refused.unwrap_err().status().as_u16());
        }
        assert_eq!(refusals[..20], [401; 20]);
        assert!(refusals[20..].contains(&429), "{refusals:?}");
        assert!(access.signed_in(&with(&cookie), peer).unwrap().is_some());
    }
}

//! Who may do what.
//!
//! | file | what it holds |
//! |---|---|
//! | `rules` | what each call needs, in one table |
//! | `guard` | asks before a call is served |
//! | `submitters` | who may submit a job type |
//! | `penalty` | slows down whoever guesses keys |
//! | `sessions` | signing in to the web pages, by a cookie |
//! | `host` | under which names a server without keys answers |
//! | `origin` | what pages of other sites may not do |
//! | [`oidc`] | tokens of an issuer, taken as well as keys |

mod guard;
mod host;
pub mod oidc;
mod origin;
mod penalty;
mod rules;
mod sessions;
mod submitters;

use std::net::IpAddr;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use tidewheel_api::wire::fault::Code;
use tidewheel_core::job::Destination;
use tidewheel_core::limits::TOKEN_BYTES_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_store::Error;

pub(crate) use self::guard::{Guard, ORIGIN_METADATA, guard_call, guard_route};
use self::oidc::{Oidc, is_token};
use self::penalty::Penalties;
#[cfg(test)]
pub(crate) use self::rules::rules;
pub(crate) use self::rules::{Need, need_of};
pub(crate) use self::sessions::{COOKIE_NAME, Session};
use crate::audit::Auditor;
use crate::clock::Clock;
use crate::directory::{ApiKey, Directory, KeyDigest, Role};
use crate::engine::Engine;
use crate::http::Problem;

/// What a caller's connection comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Decides who may do what.
#[expect(missing_debug_implementations, reason = "made of trait objects, and holds secrets")]
pub struct Access {
    directory: Arc<Directory>,
    clock: Arc<dyn Clock>,
    /// Whether a key is asked for.
    closed: bool,
    file_key: Option<Arc<ApiKey>>,
    penalties: Penalties,
    auditor: Arc<Auditor>,
    oidc: Option<Arc<Oidc>>,
    /// Whether it answers to no name that a site may have.
    only_here: bool,
}

/// Who calls.
#[derive(Debug, Clone)]
pub(crate) enum Identity {
    /// The server asks for no keys.
    Anyone,
    /// Whoever has this key.
    Key(Arc<ApiKey>),
}

impl Access {
    /// Asks for no keys, for a server in the process of its caller.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn open_to_all(engine: &Engine) -> Result<Arc<Self>, Error> {
        let clock = Arc::clone(engine.clock());
        let directory = Directory::open(Arc::clone(engine.store()), Arc::clone(&clock)).await?;
        directory.steer(engine);
        Ok(Arc::new(Self::without_keys(directory, clock)))
    }

    /// Asks for no keys: whoever reaches the server may do everything. A key that is shown all the same, and is one,
    /// counts.
    #[must_use]
    pub fn without_keys(directory: Arc<Directory>, clock: Arc<dyn Clock>) -> Self {
        let auditor = Arc::new(Auditor::new(Arc::clone(directory.store()), Arc::clone(&clock)));
        let penalties = Penalties::default();
        Self {
            directory,
            clock,
            closed: false,
            file_key: None,
            penalties,
            auditor,
            oidc: None,
            only_here: false,
        }
    }

    /// Answers to no name that a site may have: for a server that asks for no keys.
    #[must_use]
    pub fn only_here(self) -> Self {
        Self { only_here: true, ..self }
    }

    /// See [`Self::only_here`].
    pub(crate) const fn is_only_here(&self) -> bool {
        self.only_here
    }

    /// Asks for a key. `admin_key` is one, besides those in the directory.
    #[must_use]
    pub fn with_keys(directory: Arc<Directory>, clock: Arc<dyn Clock>, admin_key: Option<&str>) -> Self {
        let file_key = admin_key.map(|key| Arc::new(ApiKey::admin_file(key)));
        Self { closed: true, file_key, ..Self::without_keys(directory, clock) }
    }

    /// Sums up the calls of the jobs' own path in the audit trail, or does not; what becomes of the jobs, and all other
    /// calls that change something, are in it all the same.
    #[must_use]
    pub fn auditing_calls(mut self, audits_calls: bool) -> Self {
        let auditor = Auditor::new(Arc::clone(self.directory.store()), Arc::clone(&self.clock));
        self.auditor = Arc::new(auditor.summing_calls(audits_calls));
        self
    }

    /// Who records what is asked for.
    pub(crate) const fn auditor(&self) -> &Arc<Auditor> {
        &self.auditor
    }

    /// Records calls that were only counted so far, before the store is closed.
    ///
    /// # Errors
    /// When the store does not take them.
    pub async fn record_counts(&self) -> Result<(), Error> {
        self.auditor.flush().await
    }

    /// Takes tokens of this issuer as well as keys.
    #[must_use]
    pub fn with_issuer(self, oidc: Arc<Oidc>) -> Self {
        Self { oidc: Some(oidc), ..self }
    }

    /// What is known of tenants and keys.
    #[must_use]
    pub const fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Whether a key is asked for.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Who calls, if they may do what the call needs; and the session they are signed in by, if that says so.
    pub(crate) fn check(
        &self,
        method: &Method,
        headers: &HeaderMap,
        peer: Option<Peer>,
        need: Need,
    ) -> Result<(Identity, Option<Session>), Problem> {
        let (key, session) = match shown_key(headers) {
            Some(shown) => (self.prove(shown, peer)?, None),
            None => match self.signed_in(headers, peer)? {
                Some(session) => {
                    session.check_change(method, headers)?;
                    (Some(Arc::clone(&session.key)), Some(session))
                }
                None if self.closed => return Err(no_key()),
                None => (None, None),
            },
        };
        let Some(key) = key else { return Ok((Identity::Anyone, None)) };
        if !key.is_token() {
            key.used(self.clock.now());
        }
        if !key.roles.iter().any(|role| need.is_met_by(*role)) {
            return Err(forbidden("the key's roles do not allow this"));
        }
        Ok((Identity::Key(key), session))
    }

    /// The key that is shown, if it is one; `None` for one that is none where no keys are asked for.
    fn prove(&self, shown: &str, peer: Option<Peer>) -> Result<Option<Arc<ApiKey>>, Problem> {
        if let Some(oidc) = self.oidc.as_ref().filter(|_| is_token(shown)) {
            // No penalty: a signature cannot be guessed, and whoever has a token that just ended is no enemy.
            return oidc.verify(shown).map(|key| Some(Arc::new(key))).map_err(|reason| {
                tracing::debug!(%reason, "a token was refused");
                Problem::new(Code::Unauthorized, "the token does not hold here, or not any more")
            });
        }
        let digest = KeyDigest::of(shown);
        if peer.is_some_and(|peer| !self.penalties.is_trusted(&digest, peer.0)) {
            self.check_penalty(peer)?;
        }
        match self.find(&digest).filter(|key| !key.is_over(self.clock.now())) {
            Some(key) => {
                if let Some(Peer(address)) = peer {
                    self.penalties.worked(&digest, address);
                }
                Ok(Some(key))
            }
            None if !self.closed => Ok(None),
            None => Err(self.failed(peer, "the key is not known, was revoked or has ended")),
        }
    }

    /// Whose key or token came with a request, whatever it allows.
    pub(crate) fn identify(&self, headers: &HeaderMap) -> Option<Identity> {
        let key = match shown_key(headers) {
            Some(shown) => match self.oidc.as_ref().filter(|_| is_token(shown)) {
                Some(oidc) => oidc.verify(shown).ok().map(Arc::new),
                None => self.find(&KeyDigest::of(shown)),
            },
            None => self.signed_in(headers, None).ok().flatten().map(|session| session.key),
        };
        key.map(Identity::Key)
    }

    /// Whether a request shows a key that is not known here. An address that showed too many that are none is not asked for.
    pub(crate) fn shows_unknown_key(&self, headers: &HeaderMap, peer: Option<Peer>) -> bool {
        let shown = shown_key(headers).filter(|shown| self.closed && !is_token(shown));
        shown.is_some_and(|shown| {
            self.find(&KeyDigest::of(shown)).is_none() && self.check_penalty(peer).is_ok()
        })
    }

    /// Refuses an address that showed too many keys that are none.
    fn check_penalty(&self, peer: Option<Peer>) -> Result<(), Problem> {
        let now_ms = self.clock.monotonic_ms();
        let Some(wait_s) = peer.and_then(|peer| self.penalties.wait_s(peer.0, now_ms)) else { return Ok(()) };
        let detail = "too many wrong keys came from this address; try again later";
        Err(Problem::new(Code::TooManyWrongKeys, detail).retry_after(wait_s))
    }

    /// The answer to a key, or a session, that is none; it counts against the address.
    fn failed(&self, peer: Option<Peer>, detail: &str) -> Problem {
        if let Some(Peer(address)) = peer {
            self.penalties.failed(address, self.clock.monotonic_ms());
        }
        Problem::new(Code::Unauthorized, detail)
    }

    /// The issuer, if the request's token may be signed with a key of its that is not known yet.
    pub(crate) fn issuer_to_ask(&self, headers: &HeaderMap) -> Option<Arc<Oidc>> {
        let oidc = self.oidc.as_ref()?;
        let token = shown_key(headers).filter(|shown| is_token(shown))?;
        oidc.is_worth_a_look(token).then(|| Arc::clone(oidc))
    }

    /// Whether what a caller has shown once holds still: it was not revoked and has not ended.
    pub(crate) fn still_holds(&self, identity: &Identity) -> bool {
        match identity {
            Identity::Anyone => true,
            Identity::Key(key) if key.is_over(self.clock.now()) => false,
            Identity::Key(key) => key.is_token() || self.find(key.digest()).is_some(),
        }
    }

    fn find(&self, digest: &KeyDigest) -> Option<Arc<ApiKey>> {
        let in_file = self.file_key.as_ref().filter(|key| key.digest().matches(digest)).cloned();
        in_file.or_else(|| self.directory.find_key(digest))
    }
}

fn no_key() -> Problem {
    Problem::new(Code::Unauthorized, "send a key: `Authorization: Bearer twk_…`")
}

fn forbidden(detail: impl Into<String>) -> Problem {
    Problem::new(Code::Forbidden, detail)
}

/// The key or token that came with a request. Anything else in its place is a key that is none.
pub(crate) fn shown_key(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?;
    let text = value.to_str().ok().filter(|text| text.len() <= TOKEN_BYTES_MAX).unwrap_or_default();
    let key = match text.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim(),
        Some(_) | None => "",
    };
    Some(key)
}

impl Identity {
    /// Whether it may act for every tenant.
    pub(crate) fn is_admin(&self) -> bool {
        match self {
            Self::Anyone => true,
            Self::Key(key) => key.roles.contains(&Role::Admin),
        }
    }

    /// For which tenant it acts, given the one the request names.
    pub(crate) fn tenant(&self, named: Option<Tenant>) -> Result<Tenant, Problem> {
        match (self, named) {
            (Self::Anyone, named) => Ok(named.unwrap_or_default()),
            (Self::Key(key), None) => Ok(key.tenant.clone()),
            (Self::Key(key), Some(named)) if named == key.tenant || self.is_admin() => Ok(named),
            (Self::Key(_), Some(_)) => {
                Err(forbidden("the key belongs to another tenant than the request names"))
            }
        }
    }

    /// Whether it may submit or run jobs of this type.
    pub(crate) fn check_type(&self, kind: &str) -> Result<(), Problem> {
        match self.types() {
            Some(types) if !types.iter().any(|allowed| **allowed == *kind) => {
                Err(forbidden(format!("the key is not for jobs of type {kind:?}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether it may submit jobs to this queue or take them from it.
    pub(crate) fn check_queue(&self, queue: &str) -> Result<(), Problem> {
        match self {
            Self::Key(key)
                if key.queues.as_ref().is_some_and(|queues| !queues.iter().any(|q| **q == *queue)) =>
            {
                Err(forbidden(format!("the key is not for the queue {queue:?}")))
            }
            Self::Key(_) | Self::Anyone => Ok(()),
        }
    }

    /// Whether it may push to targets: one that is limited to queues may not go around them.
    pub(crate) fn check_push(&self) -> Result<(), Problem> {
        match self {
            Self::Key(key) if key.queues.is_some() => {
                Err(forbidden("the key is for certain queues, so its jobs cannot have targets"))
            }
            Self::Key(_) | Self::Anyone => Ok(()),
        }
    }

    /// Whether it is limited to certain types or queues.
    pub(crate) fn is_limited(&self) -> bool {
        match self {
            Self::Key(key) => key.types.is_some() || key.queues.is_some(),
            Self::Anyone => false,
        }
    }

    /// Whether jobs of this type and place are within what it is limited to.
    pub(crate) fn check_place(&self, kind: &str, destination: &Destination) -> Result<(), Problem> {
        self.check_type(kind)?;
        match destination {
            Destination::Queue(queue) => self.check_queue(queue),
            Destination::Target(_) => self.check_push(),
        }
    }

    /// Types it takes jobs of; none means every type.
    pub(crate) fn kinds(&self) -> Result<Vec<Arc<str>>, Problem> {
        match self.types() {
            None => Ok(Vec::new()),
            Some([]) => Err(forbidden("the key is for jobs of no type")),
            Some(types) => Ok(types.iter().map(|kind| Arc::from(&**kind)).collect()),
        }
    }

    /// Types it is limited to.
    pub(crate) fn types(&self) -> Option<&[Box<str>]> {
        match self {
            Self::Key(key) => key.types.as_deref(),
            Self::Anyone => None,
        }
    }
}

//! Tokens (JWT) of an OpenID Connect issuer, taken as well as keys.
//!
//! | file | what it holds |
//! |---|---|
//! | `jwks` | the issuer's public keys, and whether one of them has signed something |
//! | `token` | what a token says, and whether it says it to us, now |
//! | `fetch` | where the keys come from |
//!
//! A token whose signature, issuer, audience and times hold stands for a key: it has a tenant and roles, and passes the
//! same table. The signatures are checked with ring, which TLS uses too; libraries for tokens come with cryptography of
//! their own or read the machine's clock past [`Clock`].

mod fetch;
mod jwks;
mod token;

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;

use self::fetch::Fetcher;
pub use self::fetch::OidcFault;
use self::jwks::Jwks;
use self::token::Unverified;
use crate::clock::Clock;
use crate::directory::ApiKey;

/// The claim that names the tenant, unless set otherwise.
pub const TENANT_CLAIM_DEFAULT: &str = "tidewheel_tenant";
/// The claim that names the roles, unless set otherwise.
pub const ROLES_CLAIM_DEFAULT: &str = "tidewheel_roles";
/// How far the issuer's clock and ours may be apart.
pub const LEEWAY_MS: i64 = 30_000;
/// How often an issuer's URL is asked for its keys.
const URL_EVERY: Duration = Duration::from_secs(600);
/// How often a file of keys is looked at.
const FILE_EVERY: Duration = Duration::from_secs(10);
/// Between two times that the keys are read because a token names one that is not among them.
const UNKNOWN_PAUSE_MS: i64 = 10_000;
/// Keys were never read.
const NEVER_MS: i64 = i64::MIN / 2;

/// Whose tokens are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcConfig {
    /// What `iss` must be.
    pub issuer: String,
    /// What `aud` must be or have in it.
    pub audience: String,
    /// Where the issuer's public keys are.
    pub keys: KeySource,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// The claim that names the roles.
    pub roles_claim: String,
}

/// Where an issuer's public keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In a file.
    File(PathBuf),
    /// Where the issuer shows them.
    Url(Uri),
}

impl KeySource {
    /// From the text of a URL.
    ///
    /// # Errors
    /// When it is none, or others could change what is read from it on the way.
    pub fn url(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|_| format!("{text:?} is not a URL"))?;
        let host = uri.host().unwrap_or_default();
        let is_own = ["127.0.0.1", "[::1]", "localhost"].contains(&host);
        let is_safe = uri.scheme() == Some(&Scheme::HTTPS) || (uri.scheme() == Some(&Scheme::HTTP) && is_own);
        if is_safe && !host.is_empty() {
            return Ok(Self::Url(uri));
        }
        Err(format!("{text:?} does not begin with https://, so anybody on the way could change the keys"))
    }

    const fn every(&self) -> Duration {
        match self {
            Self::File(_) => FILE_EVERY,
            Self::Url(_) => URL_EVERY,
        }
    }
}

/// What is known of the issuer.
#[expect(missing_debug_implementations, reason = "made of trait objects")]
pub struct Oidc {
    config: OidcConfig,
    clock: Arc<dyn Clock>,
    fetcher: Fetcher,
    keys: RwLock<Arc<Jwks>>,
    /// One at a time.
    fetching: tokio::sync::Mutex<()>,
    fetched_at_ms: AtomicI64,
}

impl Oidc {
    /// Reads the issuer's keys, and goes on reading them. An issuer that cannot be reached is asked again: keys of
    /// this server's own work meanwhile.
    ///
    /// # Errors
    /// When a file of keys cannot be used, or TLS not be set up.
    pub async fn open(config: OidcConfig, clock: Arc<dyn Clock>) -> Result<Arc<Self>, OidcFault> {
        let fetcher = Fetcher::new(&config.keys)?;
        let first = fetcher.fetch().await;
        let keys = match (&config.keys, first) {
            (_, Ok(keys)) => keys,
            (KeySource::File(_), Err(fault)) => return Err(fault),
            (KeySource::Url(_), Err(fault)) => {
                tracing::warn!(error = %fault, "the issuer's keys cannot be read; its tokens are refused until they can");
                Jwks::default()
            }
        };
        let oidc = Arc::new(Self {
            config,
            clock,
            fetcher,
            keys: RwLock::new(Arc::new(keys)),
            fetching: tokio::sync::Mutex::new(()),
            fetched_at_ms: AtomicI64::new(NEVER_MS),
        });
        tokio::spawn(keep_fetching(Arc::downgrade(&oidc)));
        Ok(oidc)
    }

    fn keys(&self) -> Arc<Jwks> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who has this token.
    pub(super) fn verify(&self, token: &str) -> Result<ApiKey, Unverified> {
        token::verify(token, &self.config, &self.keys(), self.clock.now())
    }

    /// Whether the token may have been signed with a key that was not there when the keys were last read, and it is
    /// time to look.
    pub(super) fn is_worth_a_look(&self, token: &str) -> bool {
        self.is_time() && token::key_id(token).is_some_and(|kid| !self.keys().has(&kid))
    }

    fn is_time(&self) -> bool {
        let since_ms = self.clock.monotonic_ms().saturating_sub(self.fetched_at_ms.load(Ordering::Relaxed));
        since_ms >= UNKNOWN_PAUSE_MS
    }

    /// Reads the keys, unless somebody just has.
    pub(super) async fn look(&self) {
        let _one_at_a_time = self.fetching.lock().await;
        if self.is_time() {
            self.fetch().await;
        }
    }

    async fn fetch(&self) {
        self.fetched_at_ms.store(self.clock.monotonic_ms(), Ordering::Relaxed);
        match self.fetcher.fetch().await {
            Ok(keys) => *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys),
            Err(fault) => {
                tracing::warn!(error = %fault, "the issuer's keys cannot be read; those known stay in use");
            }
        }
    }
}

async fn keep_fetching(oidc: Weak<Oidc>) {
    loop {
        let Some(open) = oidc.upgrade() else { return };
        let pause = open.clock.sleep(open.config.keys.every());
        drop(open);
        pause.await;
        let Some(open) = oidc.upgrade() else { return };
        let _one_at_a_time = open.fetching.lock().await;
        open.fetch().await;
    }
}

/// Whether what was shown has the form of a token; no key of this server has.
pub(super) fn is_token(shown: &str) -> bool {
    shown.bytes().filter(|byte| *byte == b'.').count() == 2
}

//! TLS for the server's one port: certificates from files, taken over while the server runs.
//!
//! | file | what it holds |
//! |---|---|
//! | `files` | from what is in the files to what a handshake goes by |
//! | this one | which of it is in use, and when the files are looked at again |
//!
//! The files are looked at every [`LOOK_EVERY`] and whenever [`Tls::look`] is called. Only what is in them counts, not
//! their times: a link that is pointed elsewhere is seen too. A new pair holds for connections made from then on; those
//! that are open go on. What cannot be used is logged and counted, and the pair before stays.

mod files;

use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use rustls::ServerConfig;
use tidewheel_core::time::Timestamp;

pub use self::files::{ClientCertificates, TlsFault, TlsFiles};
use self::files::{Contents, Usable};
use crate::clock::Clock;
use crate::metrics::TlsMetrics;

/// How often the files are looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What handshakes go by now.
#[expect(missing_debug_implementations, reason = "holds a private key")]
pub struct Tls {
    files: TlsFiles,
    clock: Arc<dyn Clock>,
    metrics: TlsMetrics,
    in_use: RwLock<Arc<ServerConfig>>,
    /// What was in the files when they were last looked at; one look at a time.
    seen: tokio::sync::Mutex<[u8; 32]>,
}

impl Tls {
    /// Reads the files, and goes on looking at them.
    ///
    /// # Errors
    /// When they cannot be used. One that is over can: a server that starts is more use than one that does not.
    pub async fn open(
        files: TlsFiles,
        clock: Arc<dyn Clock>,
        metrics: TlsMetrics,
    ) -> Result<Arc<Self>, TlsFault> {
        let contents = Contents::read(files.clone()).await?;
        let Usable { config, expires_at } = contents.usable(&files)?;
        if expires_at <= clock.now() {
            tracing::warn!(file = %files.certificate.display(), ended = %expires_at, "the server's certificate is over");
        }
        metrics.set_expiry(expires_at);
        let (in_use, seen) = (RwLock::new(config), tokio::sync::Mutex::new(contents.digest()));
        let tls = Arc::new(Self { files, clock, metrics, in_use, seen });
        tokio::spawn(keep_looking(Arc::downgrade(&tls)));
        Ok(tls)
    }

    /// Takes over what is in the files, if it has changed and can be used.
    pub async fn look(&self) {
        let mut seen = self.seen.lock().await;
        let contents = Contents::read(self.files.clone()).await;
        let digest = contents.as_ref().map_or([0; 32], Contents::digest);
        if digest == *seen {
            return;
        }
        *seen = digest;
        match contents.and_then(|contents| self.checked(&contents)) {
            Ok(Usable { config, expires_at }) => {
                *self.in_use.write().unwrap_or_else(PoisonError::into_inner) = config;
                self.metrics.set_expiry(expires_at);
                self.metrics.reloaded(true);
                tracing::info!(ends = %expires_at, "a new certificate is in use");
            }
            Err(fault) => {
                self.metrics.reloaded(false);
                tracing::error!(error = %fault, "the new certificate cannot be used; the one before stays in use");
            }
        }
    }

    fn checked(&self, contents: &Contents) -> Result<Usable, TlsFault> {
        let usable = contents.usable(&self.files)?;
        if usable.expires_at <= self.clock.now() {
            return Err(TlsFault::Over { file: self.files.certificate.clone(), ended: usable.expires_at });
        }
        Ok(usable)
    }

    /// What the next handshake goes by.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.in_use.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where handshakes are counted.
    pub(crate) const fn metrics(&self) -> &TlsMetrics {
        &self.metrics
    }
}

async fn keep_looking(tls: Weak<Tls>) {
    loop {
        let Some(open) = tls.upgrade() else { return };
        let pause = open.clock.sleep(LOOK_EVERY);
        drop(open);
        pause.await;
        let Some(open) = tls.upgrade() else { return };
        open.look().await;
    }
}

/// An instant in seconds, as certificates have it.
fn instant(since_epoch: Duration) -> Timestamp {
    Timestamp::from_ms(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

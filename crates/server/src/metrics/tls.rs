//! The server's own certificate, and handshakes. There only if the server speaks TLS.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tidewheel_core::time::Timestamp;

use super::{Seconds, seconds};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// How a handshake ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// Well.
    Done,
    /// One of the two did not like the other.
    Failed,
    /// It took too long.
    TimedOut,
    /// It was the longest under way when there were too many.
    CrowdedOut,
}

impl Handshake {
    const ALL: [Self; 4] = [Self::Done, Self::Failed, Self::TimedOut, Self::CrowdedOut];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::CrowdedOut => "crowded_out",
        }
    }
}

/// What is counted of TLS. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct TlsMetrics {
    expiry: Seconds,
    stale: Gauge,
    reloads: Family<OutcomeLabels, Counter>,
    handshakes: Family<OutcomeLabels, Counter>,
}

impl TlsMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "tls_certificate_expiry_timestamp",
            "When the certificate in use ends, in seconds since 1970",
            Unit::Seconds,
            self.expiry.clone(),
        );
        registry.register(
            "tls_certificate_stale",
            "1 if the files hold a certificate that cannot be used, and the one before is in use",
            self.stale.clone(),
        );
        registry.register(
            "tls_reloads",
            "New certificates found in the files, by whether they are used",
            self.reloads.clone(),
        );
        registry.register("tls_handshakes", "Handshakes, by how they ended", self.handshakes.clone());
        for outcome in Handshake::ALL.map(Handshake::as_str) {
            drop(self.handshakes.get_or_create(&OutcomeLabels { outcome }));
        }
        for outcome in ["taken", "refused"] {
            drop(self.reloads.get_or_create(&OutcomeLabels { outcome }));
        }
    }

    pub(crate) fn set_expiry(&self, at: Timestamp) {
        self.expiry.set(seconds(at.as_ms()));
    }

    pub(crate) fn reloaded(&self, taken: bool) {
        let outcome = if taken { "taken" } else { "refused" };
        self.reloads.get_or_create(&OutcomeLabels { outcome }).inc();
        self.stale.set(i64::from(!taken));
    }

    pub(crate) fn shook(&self, how: Handshake) {
        self.handshakes.get_or_create(&OutcomeLabels { outcome: how.as_str() }).inc();
    }
}

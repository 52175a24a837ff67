//! What became of the spans of traces.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Why a span never reached the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// As many as may wait did.
    QueueFull,
    /// The collector could not be reached, or refused it.
    ExportFailed,
}

impl DropReason {
    const ALL: [Self; 2] = [Self::QueueFull, Self::ExportFailed];

    const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::ExportFailed => "export_failed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// The counters.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpanCounts {
    exported: Counter,
    dropped: Family<ReasonLabels, Counter>,
}

impl SpanCounts {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("spans_exported", "Spans a collector took", self.exported.clone());
        registry.register(
            "spans_dropped",
            "Spans that never reached a collector, by why",
            self.dropped.clone(),
        );
        DropReason::ALL.into_iter().for_each(|reason| self.dropped(reason, 0));
    }

    pub(crate) fn exported(&self, spans: u64) {
        self.exported.inc_by(spans);
    }

    pub(crate) fn dropped(&self, reason: DropReason, spans: u64) {
        self.dropped.get_or_create(&ReasonLabels { reason: reason.as_str() }).inc_by(spans);
    }
}

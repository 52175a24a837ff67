//! How many targets are not called, and how often that came about.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tidewheel_core::breaker::BreakerState;

use super::{Metrics, StateLabels, level};

/// The numbers of all breakers.
#[derive(Debug, Default)]
pub(super) struct Targets {
    breakers: Family<StateLabels, Gauge>,
    opened: Counter,
}

impl Targets {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "breakers",
            "Pairs of tenant and host at which pushes failed lately, by how their breaker stands",
            self.breakers.clone(),
        );
        registry.register("breaker_opened", "Breakers that opened for failures", self.opened.clone());
        self.set(&BreakerState::ALL.map(|state| (state, 0)));
    }

    fn set(&self, counts: &[(BreakerState, usize)]) {
        for (state, count) in counts {
            self.breakers.get_or_create(&StateLabels { state: state.as_str() }).set(level(*count));
        }
    }
}

impl Metrics {
    pub(crate) fn breaker_opened(&self) {
        self.targets.opened.inc();
    }

    pub(crate) fn set_breakers(&self, counts: &[(BreakerState, usize)]) {
        self.targets.set(counts);
    }
}

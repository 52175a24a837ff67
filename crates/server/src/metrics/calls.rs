//! Requests, by what they are for. Paths would be too many labels, and none would say which of them matter.

use std::time::Duration;

use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::{LAG_BUCKETS_S, StatusLabels};

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// New jobs.
    Submit,
    /// Asking for jobs to run; may wait for some.
    Take,
    /// How an attempt goes or went.
    Report,
    /// Anything else that changes something.
    Change,
    /// Anything that only looks.
    Read,
    /// A call over gRPC, up to the first of its answers.
    Grpc,
}

impl Call {
    const ALL: [Self; 6] = [Self::Submit, Self::Take, Self::Report, Self::Change, Self::Read, Self::Grpc];

    /// What a request over HTTP is for, by its method and the pattern of its path.
    pub(crate) fn of(method: &Method, pattern: &str) -> Self {
        let last = pattern.rsplit('/').next().unwrap_or_default();
        match (last, method) {
            ("take", _) => Self::Take,
            ("heartbeat" | "outcome", _) => Self::Report,
            (_, &Method::GET | &Method::HEAD | &Method::OPTIONS) => Self::Read,
            ("jobs", _) => Self::Submit,
            ("batch", _) if pattern.ends_with("/jobs/batch") => Self::Submit,
            (_, _) => Self::Change,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Take => "take",
            Self::Report => "report",
            Self::Change => "change",
            Self::Read => "read",
            Self::Grpc => "grpc",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    call: &'static str,
}

/// Kinds of status, from 2xx up.
const STATUSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// Requests answered.
#[derive(Debug)]
pub(super) struct Calls {
    durations: Family<CallLabels, Histogram, fn() -> Histogram>,
    responses: Family<StatusLabels, Counter>,
    /// The same, by the number of the call and of the status: every request would look for two of them.
    each_duration: [Histogram; Call::ALL.len()],
    each_response: [Counter; STATUSES.len()],
}

impl Calls {
    pub(super) fn new() -> Self {
        let durations = Family::new_with_constructor((|| Histogram::new(LAG_BUCKETS_S)) as fn() -> Histogram);
        let responses: Family<StatusLabels, Counter> = Family::default();
        let each_duration =
            Call::ALL.map(|call| durations.get_or_create_owned(&CallLabels { call: call.as_str() }));
        let each_response = STATUSES.map(|status| responses.get_or_create_owned(&StatusLabels { status }));
        Self { durations, responses, each_duration, each_response }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "http_request_duration",
            "From a request's head to its answer's, by what it is for",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register("http_responses", "Answers, by their kind of status", self.responses.clone());
    }

    pub(super) fn answered(&self, call: Call, status: StatusCode, took: Duration) {
        let status = usize::from(status.as_u16() / 100).saturating_sub(2).min(STATUSES.len() - 1);
        if let Some(responses) = self.each_response.get(status) {
            responses.inc();
        }
        if let Some(durations) = self.each_duration.get(call as usize) {
            durations.observe(took.as_secs_f64());
        }
    }
}

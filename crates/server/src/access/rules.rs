//! What each call needs: one table for all routes of the HTTP API and all methods of the gRPC API. What is not in it is
//! not served; tests hold it to the routes and to the descriptors.

use crate::directory::Role;

/// What a caller must be allowed to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Open to everybody.
    Nothing,
    /// Have a key, whatever it is for.
    Key,
    /// See what the tenant has.
    Look,
    /// Submit and change jobs and schedules.
    Submit,
    /// Act on many of them, and on what concerns the tenant as a whole.
    Manage,
    /// Take jobs and report on them.
    Work,
    /// Tenants and keys.
    Administer,
}

impl Need {
    /// Whether a role is enough.
    pub(crate) const fn is_met_by(self, role: Role) -> bool {
        match (role, self) {
            (Role::Admin, _) | (_, Self::Nothing | Self::Key) => true,
            (Role::Operator, Self::Look | Self::Submit | Self::Manage | Self::Work) => true,
            (Role::Producer, Self::Look | Self::Submit) => true,
            (Role::Worker, Self::Work) => true,
            (Role::Viewer, Self::Look) => true,
            (
                Role::Operator | Role::Producer | Role::Worker | Role::Viewer,
                Self::Look | Self::Submit | Self::Manage | Self::Work | Self::Administer,
            ) => false,
        }
    }
}

/// Every call. Routes under `/v1` stand for those under `/api/v1` too.
pub(crate) const RULES: &[(&str, Need)] = &[
    ("post /v1/jobs", Need::Submit),
    ("post /v1/jobs/batch", Need::Submit),
    ("get /v1/jobs", Need::Look),
    ("get /v1/jobs/count", Need::Look),
    ("get /v1/jobs/{id}", Need::Look),
    ("patch /v1/jobs/{id}", Need::Submit),
    ("get /v1/jobs/{id}/attempts", Need::Look),
    ("get /v1/jobs/{id}/explain", Need::Look),
    ("post /v1/jobs/{id}/cancel", Need::Submit),
    ("post /v1/jobs/{id}/run", Need::Submit),
    ("post /v1/jobs/{id}/retry", Need::Submit),
    ("post /v1/jobs/cancel", Need::Manage),
    ("post /v1/jobs/retry", Need::Manage),
    ("post /v1/queues/{queue}/take", Need::Work),
    ("get /v1/workers", Need::Look),
    ("post /v1/jobs/{id}/heartbeat", Need::Work),
    ("post /v1/jobs/{id}/outcome", Need::Work),
    ("post /v1/schedules", Need::Submit),
    ("post /v1/schedules/batch", Need::Submit),
    ("post /v1/schedules/preview", Need::Look),
    ("get /v1/schedules", Need::Look),
    ("get /v1/schedules/{id}", Need::Look),
    ("patch /v1/schedules/{id}", Need::Submit),
    ("delete /v1/schedules/{id}", Need::Submit),
    ("put /v1/schedules/by-name/{name}", Need::Submit),
    ("post /v1/schedules/{id}/pause", Need::Submit),
    ("post /v1/schedules/{id}/resume", Need::Submit),
    ("post /v1/schedules/{id}/trigger", Need::Submit),
    ("post /v1/schedules/{id}/backfill", Need::Submit),
    ("get /v1/schedules/{id}/firings", Need::Look),
    ("get /v1/schedules/{id}/next", Need::Look),
    ("get /v1/calendars", Need::Look),
    ("get /v1/calendars/{name}", Need::Look),
    ("put /v1/calendars/{name}", Need::Submit),
    ("delete /v1/calendars/{name}", Need::Submit),
    ("get /v1/dead-letters", Need::Look),
    ("delete /v1/dead-letters", Need::Manage),
    ("delete /v1/dead-letters/{id}", Need::Manage),
    ("post /v1/dead-letters/{id}/replay", Need::Manage),
    ("post /v1/dead-letters/replay", Need::Manage),
    ("get /v1/cluster", Need::Look),
    ("get /v1/overview", Need::Look),
    ("get /v1/targets", Need::Look),
    ("get /v1/tenants", Need::Look),
    ("get /v1/tenants/{id}", Need::Look),
    ("put /v1/tenants/{id}", Need::Administer),
    ("get /v1/tenants/{id}/webhook-secrets", Need::Manage),
    ("post /v1/tenants/{id}/webhook-secrets", Need::Manage),
    ("get /v1/tenants/{id}/webhook-secrets/{secret}", Need::Manage),
    ("delete /v1/tenants/{id}/webhook-secrets/{secret}", Need::Manage),
    ("get /v1/audit", Need::Manage),
    ("get /v1/audit/chains", Need::Administer),
    ("post /v1/session", Need::Nothing),
    ("delete /v1/session", Need::Nothing),
    ("get /v1/me", Need::Key),
    ("get /v1/types", Need::Look),
    ("get /v1/types/{type}", Need::Look),
    ("put /v1/types/{type}", Need::Manage),
    ("delete /v1/types/{type}", Need::Manage),
    ("get /v1/tenants/{id}/notifications", Need::Manage),
    ("put /v1/tenants/{id}/notifications", Need::Manage),
    ("get /v1/keys", Need::Administer),
    ("post /v1/keys", Need::Administer),
    ("get /v1/keys/{id}", Need::Administer),
    ("delete /v1/keys/{id}", Need::Administer),
    ("get /healthz", Need::Nothing),
    ("get /readyz", Need::Nothing),
    ("get /metrics", Need::Administer),
    ("get /openapi.json", Need::Nothing),
    ("get /docs", Need::Nothing),
    ("get /docs/errors", Need::Nothing),
    ("/tidewheel.v1.Jobs/Submit", Need::Submit),
    ("/tidewheel.v1.Jobs/SubmitStream", Need::Submit),
    ("/tidewheel.v1.Jobs/Get", Need::Look),
    ("/tidewheel.v1.Jobs/List", Need::Look),
    ("/tidewheel.v1.Jobs/Count", Need::Look),
    ("/tidewheel.v1.Jobs/Cancel", Need::Submit),
    ("/tidewheel.v1.Jobs/Run", Need::Submit),
    ("/tidewheel.v1.Jobs/Retry", Need::Submit),
    ("/tidewheel.v1.Jobs/Patch", Need::Submit),
    ("/tidewheel.v1.Jobs/Explain", Need::Look),
    ("/tidewheel.v1.Jobs/ListAttempts", Need::Look),
    ("/tidewheel.v1.Jobs/SubmitMany", Need::Submit),
    ("/tidewheel.v1.Jobs/CancelMany", Need::Manage),
    ("/tidewheel.v1.Jobs/RetryMany", Need::Manage),
    ("/tidewheel.v1.Schedules/Create", Need::Submit),
    ("/tidewheel.v1.Schedules/Put", Need::Submit),
    ("/tidewheel.v1.Schedules/Get", Need::Look),
    ("/tidewheel.v1.Schedules/List", Need::Look),
    ("/tidewheel.v1.Schedules/Update", Need::Submit),
    ("/tidewheel.v1.Schedules/Delete", Need::Submit),
    ("/tidewheel.v1.Schedules/Pause", Need::Submit),
    ("/tidewheel.v1.Schedules/Resume", Need::Submit),
    ("/tidewheel.v1.Schedules/Trigger", Need::Submit),
    ("/tidewheel.v1.Schedules/Backfill", Need::Submit),
    ("/tidewheel.v1.Schedules/Preview", Need::Look),
    ("/tidewheel.v1.Schedules/Next", Need::Look),
    ("/tidewheel.v1.Schedules/ListFirings", Need::Look),
    ("/tidewheel.v1.Schedules/CreateMany", Need::Submit),
    ("/tidewheel.v1.DeadLetters/List", Need::Look),
    ("/tidewheel.v1.DeadLetters/Replay", Need::Manage),
    ("/tidewheel.v1.DeadLetters/ReplayMany", Need::Manage),
    ("/tidewheel.v1.DeadLetters/Discard", Need::Manage),
    ("/tidewheel.v1.DeadLetters/DiscardMany", Need::Manage),
    ("/tidewheel.v1.Calendars/List", Need::Look),
    ("/tidewheel.v1.Calendars/Get", Need::Look),
    ("/tidewheel.v1.Calendars/Put", Need::Submit),
    ("/tidewheel.v1.Calendars/Delete", Need::Submit),
    ("/tidewheel.v1.Worker/Work", Need::Work),
    ("/database.scheduler.v1.SchedulerDispatcher/ClaimTriggers", Need::Work),
    ("/database.scheduler.v1.SchedulerDispatcher/UpdateAttemptStatus", Need::Work),
    ("/grpc.health.v1.Health/Check", Need::Nothing),
    ("/grpc.health.v1.Health/Watch", Need::Nothing),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Need::Nothing),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Need::Nothing),
];

/// Every call, for those who go through them.
#[cfg(test)]
pub(crate) const fn rules() -> &'static [(&'static str, Need)] {
    RULES
}

/// What a call needs; `None` for one that has no rule.
pub(crate) fn need_of(call: &str) -> Option<Need> {
    RULES.iter().find(|(known, _)| *known == call).map(|(_, need)| *need)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;
    use prost_types::FileDescriptorSet;
    use tidewheel_api::proto::DESCRIPTORS;

    use super::*;

    /// Every method the descriptors have, as it is called.
    fn methods(descriptors: &[u8]) -> BTreeSet<String> {
        let set = FileDescriptorSet::decode(descriptors).unwrap();
        let mut found = BTreeSet::new();
        for file in &set.file {
            for service in &file.service {
                for method in &service.method {
                    found.insert(format!("/{}.{}/{}", file.package(), service.name(), method.name()));
                }
            }
        }
        found
    }

    #[test]
    fn every_route_and_every_method_has_its_rule_and_no_rule_is_left_over() {
        let mut served: BTreeSet<String> =
            crate::http::all_routes().into_iter().map(|(method, path)| format!("{method} {path}")).collect();
        served.extend(methods(DESCRIPTORS));
        served.extend(methods(tonic_health::pb::FILE_DESCRIPTOR_SET));
        served.extend(methods(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET));
        served.extend(methods(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET));
        let ruled: BTreeSet<String> = RULES.iter().map(|(call, _)| (*call).to_owned()).collect();
        assert_eq!(ruled.len(), RULES.len(), "a call has two rules");
        assert_eq!(served, ruled);
        assert!(served.len() > 80);
    }

    #[test]
    fn only_what_tells_nothing_is_open() {
        let open: Vec<_> =
            RULES.iter().filter(|(_, need)| *need == Need::Nothing).map(|(call, _)| *call).collect();
        let expected = [
            // Whoever signs in shows a key there, and whoever signs out the session.
            "post /v1/session",
            "delete /v1/session",
            "get /healthz",
            "get /readyz",
            "get /openapi.json",
            "get /docs",
            "get /docs/errors",
            "/grpc.health.v1.Health/Check",
            "/grpc.health.v1.Health/Watch",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        ];
        assert_eq!(open, expected);
    }

    #[test]
    fn roles_may_what_they_are_for_and_no_more() {
        use Need::{Administer, Key, Look, Manage, Nothing, Submit, Work};
        for (role, allowed) in [
            (Role::Admin, vec![Nothing, Key, Look, Submit, Manage, Work, Administer]),
            (Role::Operator, vec![Nothing, Key, Look, Submit, Manage, Work]),
            (Role::Producer, vec![Nothing, Key, Look, Submit]),
            (Role::Worker, vec![Nothing, Key, Work]),
            (Role::Viewer, vec![Nothing, Key, Look]),
        ] {
            for need in [Nothing, Key, Look, Submit, Manage, Work, Administer] {
                assert_eq!(need.is_met_by(role), allowed.contains(&need), "{role:?} {need:?}");
            }
        }
    }
}

//! What of each call is recorded. It is read off the table of calls ([`crate::access`]), so that a call that changes
//! something cannot be forgotten: whatever is not said here to be otherwise is recorded, one record to a call.

use std::sync::Arc;

use crate::access::Need;

/// What of a call is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trail {
    /// Nothing: it changes nothing, or it is another call in disguise, which is recorded.
    Nothing,
    /// The call, under this action.
    Act(Arc<str>),
    /// How many such calls there were in a second, under this action: what became of the jobs is recorded by itself.
    Sum(Arc<str>),
}

/// Calls that change nothing although their method says otherwise.
const READS: [&str; 1] = ["post /v1/schedules/preview"];

/// The path of jobs, where a record for each call would cost a write for each job.
const SUMMED: [&str; 8] = [
    "post /v1/jobs",
    "post /v1/jobs/batch",
    "post /v1/queues/{queue}/take",
    "post /v1/jobs/{id}/heartbeat",
    "post /v1/jobs/{id}/outcome",
    "/tidewheel.v1.Worker/Work",
    "/database.scheduler.v1.SchedulerDispatcher/ClaimTriggers",
    "/database.scheduler.v1.SchedulerDispatcher/UpdateAttemptStatus",
];

/// Services whose methods are calls of the HTTP API from within.
const BRIDGED: [&str; 4] = [
    "/tidewheel.v1.Jobs/",
    "/tidewheel.v1.Schedules/",
    "/tidewheel.v1.DeadLetters/",
    "/tidewheel.v1.Calendars/",
];

/// What of a call is recorded.
pub(crate) fn trail_of(call: &str, need: Need) -> Trail {
    let looks = matches!(need, Need::Nothing | Need::Look);
    if READS.contains(&call) || call.starts_with("get ") {
        return Trail::Nothing;
    }
    if SUMMED.contains(&call) {
        return Trail::Sum(action_of(call));
    }
    // Of gRPC methods only the table says which of them look.
    if call.starts_with('/') && (looks || BRIDGED.iter().any(|service| call.starts_with(service))) {
        return Trail::Nothing;
    }
    Trail::Act(action_of(call))
}

/// `post /v1/schedules/{id}/pause` is `schedules.pause`, `delete /v1/keys/{id}` is `keys.delete`. The noun is the last
/// one in the path; the verb is what follows it, or the method's.
pub(crate) fn action_of(call: &str) -> Arc<str> {
    let Some((method, path)) = call.split_once(' ') else {
        let method = call.trim_start_matches('/').rsplit_once('.').map_or(call, |(_, name)| name);
        return method.replace('/', ".").into();
    };
    let mut words: Vec<&str> = path.split('/').filter(|part| is_word(part)).collect();
    let ends_in_word = path.rsplit('/').next().is_some_and(is_word);
    // Nouns are plural, verbs are not.
    let is_verb = |word: &&str| method == "post" && ends_in_word && !word.ends_with('s');
    let verb = match words.last().copied().filter(is_verb).filter(|_| words.len() > 1) {
        Some(verb) => {
            words.pop();
            verb
        }
        None => match method {
            "post" => "create",
            other => other,
        },
    };
    let noun = words.last().copied().unwrap_or("calls");
    format!("{noun}.{verb}").into()
}

fn is_word(part: &str) -> bool {
    !part.is_empty() && !part.starts_with('{') && !["v1", "by-name"].contains(&part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::rules;

    /// Whatever may change something leaves a trace; what does not is known by name.
    #[test]
    fn every_call_that_changes_something_is_recorded() {
        let mut acts = 0;
        for (call, need) in rules() {
            let trail = trail_of(call, *need);
            let is_read = call.starts_with("get ") || READS.contains(call);
            let is_look = call.starts_with('/') && matches!(need, Need::Look | Need::Nothing);
            let is_bridged = BRIDGED.iter().any(|service| call.starts_with(service));
            if is_read || is_look || is_bridged {
                assert_eq!(trail, Trail::Nothing, "{call}");
            } else {
                assert_ne!(trail, Trail::Nothing, "{call}");
                acts += usize::from(matches!(trail, Trail::Act(_)));
            }
        }
        assert!(acts > 25);
        let known = |call: &&str| rules().iter().any(|(known, _)| known == call);
        assert!(READS.iter().chain(&SUMMED).all(known), "no call is named here that is not served");
    }

    #[test]
    fn a_call_that_nobody_thought_of_is_recorded() {
        assert_eq!(trail_of("put /v1/things/{id}", Need::Manage), Trail::Act("things.put".into()));
        assert_eq!(trail_of("/tidewheel.v1.Things/Put", Need::Manage), Trail::Act("Things.Put".into()));
    }

    #[test]
    fn actions_are_named_after_their_calls() {
        for (call, action) in [
            ("post /v1/keys", "keys.create"),
            ("delete /v1/keys/{id}", "keys.delete"),
            ("put /v1/tenants/{id}", "tenants.put"),
            ("post /v1/tenants/{id}/webhook-secrets", "webhook-secrets.create"),
            ("delete /v1/tenants/{id}/webhook-secrets/{secret}", "webhook-secrets.delete"),
            ("post /v1/schedules/{id}/pause", "schedules.pause"),
            ("put /v1/schedules/by-name/{name}", "schedules.put"),
            ("post /v1/schedules/batch", "schedules.batch"),
            ("patch /v1/jobs/{id}", "jobs.patch"),
            ("post /v1/jobs/{id}/cancel", "jobs.cancel"),
            ("post /v1/jobs/cancel", "jobs.cancel"),
            ("post /v1/jobs", "jobs.create"),
            ("post /v1/queues/{queue}/take", "queues.take"),
            ("delete /v1/dead-letters", "dead-letters.delete"),
            ("post /v1/dead-letters/{id}/replay", "dead-letters.replay"),
            ("put /v1/calendars/{name}", "calendars.put"),
            ("/tidewheel.v1.Worker/Work", "Worker.Work"),
        ] {
            assert_eq!(&*action_of(call), action, "{call}");
        }
    }
}

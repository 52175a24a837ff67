//! The job each occurrence is, as callers write it: the fields a single job has, too.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::job::{Destination, Priority};
use tidewheel_core::names::{check_queue, check_type};
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::schedule::Template;

use super::settle;
use crate::wire::fault::{At, Code, Faults};
use crate::wire::job_request::{
    LeftOut, PAYLOAD_DEFAULT, QUEUE_DEFAULT, TargetFields, TargetRules, named, read_labels, read_payload,
    read_priority, read_retry, read_target, read_timeout,
};
use crate::wire::read::{Field, entries};

/// The fields of the job each occurrence is.
pub(crate) struct TemplateFields<'a> {
    pub(crate) kind: Option<Field<'a>>,
    pub(crate) payload: Option<Field<'a>>,
    pub(crate) queue: Option<Field<'a>>,
    pub(crate) target: Option<Field<'a>>,
    pub(crate) target_url: Option<Field<'a>>,
    pub(crate) priority: Option<Field<'a>>,
    pub(crate) retry: Option<Field<'a>>,
    pub(crate) max_attempts: Option<Field<'a>>,
    pub(crate) timeout: Option<Field<'a>>,
    pub(crate) labels: Option<Field<'a>>,
}

impl TemplateFields<'_> {
    /// What is not said of a new schedule's jobs.
    pub(crate) fn left_out(&self) -> LeftOut {
        let [queue, target, target_url] = [self.queue, self.target, self.target_url].map(said);
        let [retry, max_attempts] = [self.retry, self.max_attempts].map(said);
        let of_target = target.is_some_and(|target| names_timeout(&target));
        LeftOut {
            destination: queue.or(target).or(target_url).is_none(),
            priority: said(self.priority).is_none(),
            retry: retry.is_none(),
            max_attempts: retry.or(max_attempts).is_none(),
            timeout: said(self.timeout).is_none() && !of_target,
        }
    }

    /// Reads a template, on top of the one there was before.
    pub(crate) fn read<R: TargetRules>(
        &self,
        base: Option<&Template>,
        kind_default: &Arc<str>,
        rules: &R,
        at: &At<'_>,
        faults: &mut Faults,
    ) -> Option<Template> {
        let kind = settle(
            self.kind,
            base.map(|base| Arc::clone(&base.kind)),
            || Arc::clone(kind_default),
            |field| read_kind(field, at, faults),
        );
        let payload = settle(
            self.payload,
            base.map(|base| base.payload.clone()),
            || Bytes::from_static(PAYLOAD_DEFAULT),
            |field| read_payload(field, at, faults),
        );
        let (destination, target_timeout) = self.destination(base, rules, at, faults)?;
        let timeout_ms = self.timeout(base, target_timeout, at, faults);
        let priority = settle(self.priority, base.map(|base| base.priority), Priority::default, |field| {
            read_priority(field, at, faults)
        });
        let retry = self.retry(base, at, faults);
        let labels = settle(self.labels, base.map(|base| base.labels.clone()), Vec::new, |field| {
            read_labels(field, at, faults)
        });
        Some(Template { kind, payload, destination, priority, retry, timeout_ms, labels })
    }

    /// Where occurrences go, and the timeout their target names.
    fn destination<R: TargetRules>(
        &self,
        base: Option<&Template>,
        rules: &R,
        at: &At<'_>,
        faults: &mut Faults,
    ) -> Option<(Destination, Option<i64>)> {
        let [queue, target, target_url] = [self.queue, self.target, self.target_url].map(said);
        if let (Some(queue), Some(target)) = (queue, target.or(target_url)) {
            let detail =
                format!("`queue` and `{}` exclude each other: a job is pulled or pushed", target.name());
            queue.refuse(Code::ConflictingFields, at, faults, detail);
            return None;
        }
        if target.is_some() || target_url.is_some() {
            let (target, timeout_ms) = read_target(&TargetFields { target, target_url }, rules, at, faults)?;
            return Some((Destination::Target(Arc::new(target)), timeout_ms));
        }
        let field = self.queue.or(self.target).or(self.target_url);
        let kept = base.map(|base| base.destination.clone());
        let destination = settle(
            field,
            kept,
            || Destination::Queue(Arc::from(QUEUE_DEFAULT)),
            |field| {
                let queue = field.text(at, faults)?;
                named(check_queue(&queue), field, at, faults)?;
                Some(Destination::Queue(Arc::from(queue)))
            },
        );
        Some((destination, None))
    }

    fn timeout(
        &self,
        base: Option<&Template>,
        of_target: Option<i64>,
        at: &At<'_>,
        faults: &mut Faults,
    ) -> i64 {
        match base.filter(|_| self.timeout.is_none() && of_target.is_none()) {
            Some(base) => base.timeout_ms,
            None => read_timeout(said(self.timeout), of_target, at, faults),
        }
    }

    /// `retry` is replaced as a whole; `max_attempts` alone changes nothing else.
    fn retry(&self, base: Option<&Template>, at: &At<'_>, faults: &mut Faults) -> RetryPolicy {
        let read = read_retry(said(self.retry), said(self.max_attempts), at, faults);
        match base.filter(|_| self.retry.is_none()) {
            Some(base) if self.max_attempts.is_some() => {
                RetryPolicy { max_attempts: read.max_attempts, ..base.retry }
            }
            Some(base) => base.retry,
            None => read,
        }
    }
}

/// A field that says something: one that is `null` does not.
fn said(field: Option<Field<'_>>) -> Option<Field<'_>> {
    field.filter(|field| !field.is_null())
}

/// Whether a target says how long an attempt may take.
fn names_timeout(target: &Field<'_>) -> bool {
    let fields = entries(target.raw()).unwrap_or_default();
    fields.iter().any(|(name, value)| name == "timeout" && *value != "null")
}

fn read_kind(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Arc<str>> {
    let text = field.text(at, faults)?;
    named(check_type(&text), field, at, faults)?;
    Some(Arc::from(text))
}

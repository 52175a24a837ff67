//! What a notification says, as JSON.

use std::sync::Arc;

use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::job::Job;
use tidewheel_core::time::{Timestamp, format_duration};

use super::digest::Gathered;
use crate::engine::{LaneView, Tiding};

/// What of a host's name goes into a key.
const SUBJECT_BYTES_MAX: usize = 128;

/// One thing that happened.
#[derive(Debug, Clone)]
pub(super) struct Item {
    at: Timestamp,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Happened(Tiding),
    Lag { lane: LaneView, lag_ms: i64, budget_ms: i64 },
}

impl Item {
    pub(super) const fn of(tiding: Tiding, at: Timestamp) -> Self {
        Self { at, what: What::Happened(tiding) }
    }

    pub(super) fn lag(lane: &LaneView, now: Timestamp, budget_ms: i64) -> Self {
        let lag_ms = now.since_ms(lane.oldest);
        Self { at: now, what: What::Lag { lane: lane.clone(), lag_ms, budget_ms } }
    }

    /// What tells it from any other of its kind.
    pub(super) fn subject(&self) -> String {
        match &self.what {
            What::Happened(Tiding::Dead(job)) => format!("{}:{}", job.id, job.status.token.as_u64()),
            What::Happened(Tiding::Missed { job, .. }) => job.id.to_string(),
            What::Happened(Tiding::TargetDown { host, at, .. }) => {
                // Of a long name the beginning is enough: a key has its bound.
                format!("{}@{at}", host.get(..SUBJECT_BYTES_MAX).unwrap_or(host))
            }
            What::Lag { lane, .. } => lane.oldest.to_string(),
        }
    }

    fn write(&self, out: &mut JsonWriter) {
        out.object(|out| match &self.what {
            What::Happened(Tiding::Dead(job)) => dead(out, job),
            What::Happened(Tiding::Missed { job, made_up }) => missed(out, job, *made_up),
            What::Happened(Tiding::TargetDown { host, reason, at, .. }) => {
                out.key("host").text(host);
                out.key("reason").text(reason);
                out.key("since").plain(at);
            }
            What::Lag { lane, lag_ms, budget_ms } => {
                out.key(if lane.is_queue { "queue" } else { "host" }).text(&lane.name);
                out.key("lag").text(&format_duration(*lag_ms));
                out.key("budget").text(&format_duration(*budget_ms));
                out.key("waits_for").text_or_null(lane.reason);
                out.key("since").plain(lane.oldest);
            }
        });
    }
}

fn dead(out: &mut JsonWriter, job: &Arc<Job>) {
    let last = job.status.attempts.last();
    out.key("job").plain(job.id);
    out.key("type").text(&job.spec.kind);
    out.key("attempt").number(job.status.attempt);
    out.key("error").text_or_null(last.map(|attempt| &*attempt.detail));
    out.key("reason").text_or_null(job.status.reason.as_deref());
    out.key("at").time(job.status.finished_at);
}

fn missed(out: &mut JsonWriter, job: &Arc<Job>, made_up: bool) {
    let occurrence = job.spec.occurrence.as_ref();
    out.key("schedule")
        .text_or_null(occurrence.map(|occurrence| occurrence.schedule_id.to_string()).as_deref());
    out.key("fire_at").time(occurrence.map(|occurrence| occurrence.fire_at));
    out.key("job").plain(job.id);
    out.key("made_up").boolean(made_up);
    out.key("reason").text_or_null(job.status.reason.as_deref());
}

/// The payload of a notification.
pub(super) fn write(gathered: &Gathered, now: Timestamp) -> Vec<u8> {
    let mut out = JsonWriter::with_capacity(1_024);
    let at = gathered.items.first().map_or(now, |item| item.at);
    out.object(|out| {
        out.key("event").text(gathered.event.as_str());
        out.key("tenant").text(gathered.tenant.as_str());
        out.key("at").plain(at);
        out.key("count").number(gathered.count);
        out.key("items").array(|out| gathered.items.iter().for_each(|item| item.write(out)));
    });
    out.into_bytes()
}

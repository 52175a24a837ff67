//! The audit trail: what was done and what became of jobs, page by page or as one long export.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use serde::Serialize;
use tidewheel_api::wire::audit::{ChangeLine, Line};
use tidewheel_api::wire::audit_ends::Tally;
use tidewheel_api::wire::audit_query::{AuditRequest, audit_cursor};
use tidewheel_api::wire::fault::{Code, Faults};
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::audit::{Change, Changes, Kind, Link, Record, Walk, chain_of};
use tidewheel_core::id::JobId;
use tidewheel_core::limits::{AUDIT_PAGE_CHANGES_COUNT_MAX, AUDIT_READ_COUNT_MAX, AUDIT_SCAN_COUNT_MAX};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{AuditOrder, AuditQuery, Error, Store};

use super::answer;
use super::app::App;
use super::caller::Caller;
use super::problem::{Problem, refuse_faults};
use super::serve::LongAnswer;

/// The action under which changes of jobs are found.
const CHANGES_ACTION: &str = "jobs.state";
const LINES: &str = "application/x-ndjson";

/// `GET /v1/audit`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let mut faults = Faults::default();
    let request = AuditRequest::read(text.as_deref().unwrap_or_default(), &mut faults);
    refuse_faults(faults)?;
    let store = Arc::clone(app.engine.store());
    let filter = Filter::of(&request, &caller, store.layout().shards)?;
    // What this server has counted and not yet written is part of what happened.
    app.access.auditor().flush().await?;
    let asks_for_lines = headers.get(ACCEPT).is_some_and(|kind| kind == LINES);
    if request.lines || asks_for_lines {
        export(store, filter, &request).await
    } else {
        let _turn = app.answers.turn().await;
        page(&*store, &filter, &request).await
    }
}

/// `GET /v1/audit/chains`
pub(super) async fn chains(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    app.access.auditor().flush().await?;
    let ends = app.engine.store().audit_chains().await?;
    let mut items = JsonWriter::with_capacity(ends.len() * 320);
    let link = |out: &mut JsonWriter, link: &Link| {
        out.object(|out| {
            out.key("seq").number(link.seq);
            out.key("at").time((link.seq > 0).then_some(link.at));
            out.key("hash").text(&link.hash.to_string());
        });
    };
    for ends in &ends {
        items.object(|out| {
            out.key("chain").number(ends.chain);
            link(out.key("anchor"), &ends.anchor);
            link(out.key("head"), &ends.head);
        });
    }
    Ok(answer::list(items, None))
}

/// Which records are shown, and what of them.
struct Filter {
    tenant: Option<Tenant>,
    shards: u16,
    actor: Option<String>,
    action: Option<String>,
    object: Option<String>,
    job: Option<JobId>,
}

impl Filter {
    /// An admin sees all, or what concerns the tenant that is asked for; anybody else their own.
    fn of(request: &AuditRequest, caller: &Caller, shards: u16) -> Result<Self, Problem> {
        let named = request.tenant.clone().or_else(|| caller.named.clone());
        let tenant = if caller.identity.is_admin() {
            named
        } else if named.as_ref().is_none_or(|named| *named == caller.tenant) {
            Some(caller.tenant.clone())
        } else {
            let detail = "the key belongs to another tenant than the one asked for";
            return Err(Problem::new(Code::Forbidden, detail));
        };
        let object = request.object.clone();
        let job = object.as_deref().and_then(|object| object.parse().ok());
        let (actor, action) = (request.actor.clone(), request.action.clone());
        Ok(Self { tenant, shards, actor, action, object, job })
    }

    fn is_action(&self, found: &str) -> bool {
        self.action.as_deref().is_none_or(|wanted| {
            found.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// What is shown of a record, if anything is.
    fn line(&self, record: &Record) -> Option<Line> {
        if self.tenant.as_ref().is_some_and(|tenant| chain_of(tenant, self.shards) != record.chain) {
            return None;
        }
        let line = match record.kind {
            Kind::Act => self.act(record)?,
            Kind::Changes => self.changes(record)?,
        };
        let is_choosy = self.tenant.is_some() || self.object.is_some();
        (line.unreadable.is_none() || !is_choosy).then_some(line)
    }

    fn act(&self, record: &Record) -> Option<Line> {
        let line = Line::of(record);
        let Some(act) = &line.act else { return Some(line) };
        let is_shown = self.tenant.as_ref().is_none_or(|tenant| act.tenant == tenant.as_str())
            && self.actor.as_ref().is_none_or(|actor| act.actor == *actor)
            && self.object.as_ref().is_none_or(|object| act.object.as_ref() == Some(object))
            && self.is_action(&act.action);
        is_shown.then_some(line)
    }

    fn changes(&self, record: &Record) -> Option<Line> {
        if self.actor.is_some()
            || !self.is_action(CHANGES_ACTION)
            || (self.object.is_some() && self.job.is_none())
        {
            return None;
        }
        if self.tenant.is_none() && self.job.is_none() {
            return Some(Line::of(record));
        }
        let is_shown = |change: &Change| {
            self.tenant.as_ref().is_none_or(|tenant| change.tenant == *tenant)
                && self.job.is_none_or(|job| change.step.id == job)
        };
        let (mut shown, mut left_out) = (Vec::new(), false);
        for change in Changes::of(&record.content) {
            match change {
                Ok(change) if is_shown(&change) => shown.push(ChangeLine::from(&change)),
                Ok(_) | Err(_) => left_out = true,
            }
        }
        if shown.is_empty() {
            return None;
        }
        let bare = Record { content: Bytes::new(), ..record.clone() };
        Some(Line { changes: Some(shown), unreadable: None, partial: left_out, ..Line::of(&bare) })
    }
}

fn query(request: &AuditRequest, order: AuditOrder) -> AuditQuery {
    AuditQuery {
        kind: request.kind,
        from: request.from.unwrap_or(Timestamp::from_ms(0)),
        until: request.to.unwrap_or(Timestamp::MAX),
        after: request.cursor,
        order,
        count_max: AUDIT_READ_COUNT_MAX,
    }
}

const fn order(oldest_first: bool) -> AuditOrder {
    if oldest_first { AuditOrder::OldestFirst } else { AuditOrder::NewestFirst }
}

async fn page(store: &dyn Store, filter: &Filter, request: &AuditRequest) -> Result<Response, Problem> {
    let mut query = query(request, order(request.oldest_first.unwrap_or(false)));
    let mut items = JsonWriter::with_capacity(4_096);
    let (mut count, mut changes, mut looked_at) = (0, 0, 0);
    let mut next = None;
    'pages: loop {
        let records = store.audit_records(query).await?;
        for record in &records {
            if let Some(line) = filter.line(record) {
                items.raw(&json(&line));
                count += 1;
                changes += line.changes.map_or(0, |changes| changes.len());
            }
            looked_at += 1;
            next = Some(record.place());
            let is_full = count >= request.page_limit() || changes >= AUDIT_PAGE_CHANGES_COUNT_MAX;
            if is_full || looked_at >= AUDIT_SCAN_COUNT_MAX {
                break 'pages;
            }
        }
        if records.len() < query.count_max {
            next = None;
            break;
        }
        query.after = next;
    }
    Ok(answer::list(items, next.map(audit_cursor).as_deref()))
}

/// An export under way.
struct Export {
    store: Arc<dyn Store>,
    filter: Filter,
    query: AuditQuery,
    /// Knows how far the chains went when it began: what is exported then has no holes.
    walk: Walk,
    /// What it holds so far, for its last line.
    tally: Tally,
    left: usize,
    is_over: bool,
}

async fn export(store: Arc<dyn Store>, filter: Filter, request: &AuditRequest) -> Result<Response, Problem> {
    let walk = Walk::between(&store.audit_chains().await?);
    let query = query(request, order(request.oldest_first.unwrap_or(true)));
    let left = request.limit.unwrap_or(usize::MAX);
    let begun = Export { store, filter, query, walk, tally: Tally::default(), left, is_over: false };
    let lines = stream::unfold(begun, |mut export| async move {
        if export.is_over {
            return None;
        }
        let some = export.next().await.inspect_err(|error| tracing::warn!(%error, "an export broke off"));
        export.is_over |= some.is_err();
        Some((some, export))
    });
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(LINES));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.extensions_mut().insert(LongAnswer);
    Ok(response)
}

impl Export {
    /// The lines of the next records.
    async fn next(&mut self) -> Result<Bytes, Error> {
        let records = self.store.audit_records(self.query).await?;
        let mut lines = Vec::new();
        for record in records.iter().filter(|record| !self.walk.is_beyond(record)) {
            let Some(line) = self.filter.line(record) else { continue };
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            self.tally.note(&line);
            lines.extend_from_slice(&json(&line));
            lines.push(b'\n');
        }
        self.query.after = records.last().map(Record::place).or(self.query.after);
        self.is_over = records.len() < self.query.count_max || self.left == 0;
        if self.is_over {
            lines.extend_from_slice(&json(&self.tally.end_line()));
            lines.push(b'\n');
        }
        Ok(lines.into())
    }
}

fn json(line: &impl Serialize) -> Vec<u8> {
    // Texts and numbers are always JSON.
    serde_json::to_vec(line).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_found_by_its_noun_too() {
        let filter = |action: &str| Filter {
            tenant: None,
            shards: 1,
            actor: None,
            action: Some(action.to_owned()),
            object: None,
            job: None,
        };
        assert!(filter("keys").is_action("keys.create"));
        assert!(filter("keys.create").is_action("keys.create"));
        assert!(!filter("key").is_action("keys.create"));
        assert!(!filter("keys.create").is_action("keys.delete"));
    }
}

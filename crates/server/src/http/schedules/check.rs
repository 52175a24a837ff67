//! What only the tenant's limits and calendars can tell of a schedule.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewheel_api::wire::fault::{At, Code, Faults};
use tidewheel_api::wire::schedule_request::ScheduleRequest;
use tidewheel_core::schedule::{self, Dates, Definition, Fault, FaultKind, Rule, Template};
use tidewheel_core::time::Timestamp;

use crate::http::admission::objection;
use crate::http::app::App;
use crate::http::caller::Caller;
use crate::http::problem::Problem;
use crate::http::registered::Registered;

/// Fields that decide when a schedule fires.
const RULE_FIELDS: &[&str] =
    &["cron_expr", "every", "dst.gap", "start_at", "end_at", "exclude", "exclude.dates", "exclude.calendar"];

/// Checks schedules of one tenant. Calendars are read once for all of them.
pub(crate) struct Checker<'a> {
    app: &'a App,
    caller: &'a Caller,
    now: Timestamp,
    calendars: BTreeMap<Arc<str>, Option<Arc<Dates>>>,
    /// What the field of a cron expression is called.
    cron_field: &'static str,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(app: &'a App, caller: &'a Caller, now: Timestamp) -> Self {
        Self { app, caller, now, calendars: BTreeMap::new(), cron_field: "cron_expr" }
    }

    /// For requests in which the cron expression's field has this name.
    pub(crate) fn with_cron_field(self, cron_field: &'static str) -> Self {
        Self { cron_field, ..self }
    }

    /// The dates of the calendar a rule names, itself or in an object; notes a fault if there is none of that name.
    pub(super) async fn calendar(
        &mut self,
        rule: &Rule,
        is_by_object: bool,
        at: &At<'_>,
        faults: &mut Faults,
    ) -> Result<Option<Arc<Dates>>, Problem> {
        let Some(name) = &rule.exclude.calendar else { return Ok(None) };
        if !self.calendars.contains_key(name) {
            let dates = self.app.engine.store().calendar(&self.caller.tenant, name).await?;
            self.calendars.insert(Arc::clone(name), dates.map(Arc::new));
        }
        let dates = self.calendars.get(name).cloned().flatten();
        if dates.is_none() {
            let detail = format!("there is no calendar {name:?}; create it first");
            let exclude = at.field("exclude");
            let place = if is_by_object { exclude.field("calendar") } else { exclude };
            faults.add(Code::UnknownCalendar, &place, detail);
        }
        Ok(dates)
    }

    /// Notes what is wrong with what is asked for in the place of `current`. What was so before is not
    /// held against it: limits may have changed, and instants have passed.
    pub(crate) async fn check(
        &mut self,
        request: &ScheduleRequest,
        current: Option<&Definition>,
        at: &At<'_>,
        faults: &mut Faults,
    ) -> Result<(), Problem> {
        let definition = &request.definition;
        let calendar = self.calendar(&definition.rule, request.excludes_by_object, at, faults).await?;
        self.check_limits(definition, current, at, faults);
        let interval_ms_min = self.app.min_interval_ms(&self.caller.tenant);
        let keeps_rule = current.is_some_and(|current| current.rule == definition.rule);
        for fault in schedule::check(definition, calendar.as_deref(), interval_ms_min, self.now) {
            if keeps_rule && RULE_FIELDS.contains(&fault.field) {
                continue;
            }
            self.note(fault, at, faults);
        }
        Ok(())
    }

    /// Notes a fault of a definition.
    pub(super) fn note(&self, fault: Fault, at: &At<'_>, faults: &mut Faults) {
        let code = match fault.kind {
            // An interval that is too long has been refused before.
            FaultKind::Interval => Code::IntervalTooShort,
            FaultKind::Never => Code::InvalidCron,
            FaultKind::Value => Code::InvalidValue,
        };
        let field = if fault.field == "cron_expr" { self.cron_field } else { fault.field };
        // The part before a dot is what was sent for certain: short forms have no more.
        let field = field.split('.').next().unwrap_or(field);
        faults.add(code, &at.field(field), fault.detail);
    }

    /// Notes what the caller's key and the tenant's limits have against it.
    fn check_limits(
        &self,
        definition: &Definition,
        current: Option<&Definition>,
        at: &At<'_>,
        faults: &mut Faults,
    ) {
        let settings = self.app.access.directory().tenant(&self.caller.tenant).settings;
        let Template { kind, destination, payload, .. } = &definition.template;
        let against = objection(&self.caller.identity, &settings, kind, destination, payload.len());
        let keeps_template = current.is_some_and(|current| current.template == definition.template);
        if let Some((code, field, detail)) = against {
            faults.add(code, &at.field(field), detail);
        } else if !keeps_template {
            Registered::of(self.app, self.caller).check(kind, payload, at, faults);
        }
    }
}

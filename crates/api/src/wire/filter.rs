//! Which jobs are meant: the same filter in a list's query and in a bulk call's body.

use std::sync::Arc;

use tidewheel_core::job::{Job, State};
use tidewheel_core::schedule::ScheduleId;
use tidewheel_core::time::Timestamp;

use super::fault::{At, Code, Faults, nearest, shown};
use super::job_request::read_labels;
use super::read::Field;
use crate::known_fields;

/// A state as it is shown: `ready` is derived, the others are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownState {
    /// Waiting, and due.
    Ready,
    /// In this state, and not ready.
    Stored(State),
}

impl ShownState {
    /// All of them, in the order of a job's life.
    pub const ALL: [Self; 9] = [
        Self::Stored(State::Scheduled),
        Self::Ready,
        Self::Stored(State::Running),
        Self::Stored(State::Retrying),
        Self::Stored(State::Succeeded),
        Self::Stored(State::Dead),
        Self::Stored(State::Cancelled),
        Self::Stored(State::Skipped),
        Self::Stored(State::Expired),
    ];

    /// The state `job` is shown in at `now`.
    #[must_use]
    pub fn of(job: &Job, now: Timestamp) -> Self {
        if job.armed_at().is_some_and(|at| at <= now) { Self::Ready } else { Self::Stored(job.status.state) }
    }

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Stored(state) => state.as_str(),
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        if name == Self::Ready.as_str() {
            Some(Self::Ready)
        } else {
            State::from_name(name).map(Self::Stored)
        }
    }

    fn names() -> [&'static str; 9] {
        Self::ALL.map(Self::as_str)
    }
}

/// What is said of a name that is not that of a state.
pub(super) fn no_state(name: &str, known: &[&str]) -> String {
    let hint = match nearest(name, known) {
        Some(near) => format!("the nearest is `{near}`"),
        None => format!("write one of {}", known.join(", ")),
    };
    format!("{:?} is not a state; {hint}", shown(name))
}

/// Which jobs are meant; an empty filter means all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFilter {
    /// Shown in one of these states.
    pub states: Vec<ShownState>,
    /// Of this type.
    pub kind: Option<Arc<str>>,
    /// For this queue.
    pub queue: Option<Arc<str>>,
    /// Made by this schedule.
    pub schedule: Option<ScheduleId>,
    /// With all of these labels.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// First set for this instant or later.
    pub from: Option<Timestamp>,
    /// First set for before this instant.
    pub to: Option<Timestamp>,
}

impl JobFilter {
    /// Whether it names more than states.
    #[must_use]
    pub fn is_only_states(&self) -> bool {
        *self == Self { states: self.states.clone(), ..Self::default() }
    }

    /// Adds states from a text such as `ready,running`.
    pub(super) fn add_states(&mut self, text: &str) -> Result<(), String> {
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let Some(state) = ShownState::from_name(name) else {
                return Err(no_state(name, &ShownState::names()));
            };
            if !self.states.contains(&state) {
                self.states.push(state);
            }
        }
        Ok(())
    }
}

known_fields!(FilterFields {
    state = "state",
    kind = "type",
    queue = "queue",
    schedule = "schedule",
    labels = "labels",
    from = "from",
    to = "to",
});

/// Reads a filter from a body's field.
pub(super) fn read_filter(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<JobFilter> {
    let fields: FilterFields<'_> = field.object(at, faults)?;
    let at = at.field(field.name());
    let mut filter = JobFilter::default();
    if let Some(state) = fields.state {
        read_states(&mut filter, &state, &at, faults);
    }
    let mut name = |field: Option<Field<'_>>| {
        field.and_then(|field| field.text(&at, faults)).map(|text| Arc::from(text.as_ref()))
    };
    filter.kind = name(fields.kind);
    filter.queue = name(fields.queue);
    filter.schedule = fields.schedule.and_then(|field| {
        let id = field.text(&at, faults)?.parse::<ScheduleId>();
        id.map_err(|fault| field.refuse(Code::InvalidValue, &at, faults, fault.to_string())).ok()
    });
    filter.labels = fields.labels.and_then(|field| read_labels(&field, &at, faults)).unwrap_or_default();
    filter.from = fields.from.and_then(|field| field.time(&at, faults));
    filter.to = fields.to.and_then(|field| field.time(&at, faults));
    Some(filter)
}

/// A state, several with commas, or an array of them.
fn read_states(filter: &mut JobFilter, field: &Field<'_>, at: &At<'_>, faults: &mut Faults) {
    let texts = if field.raw().starts_with('[') {
        let Some(items) = field.items(at, faults) else { return };
        let at = at.field(field.name());
        items
            .into_iter()
            .enumerate()
            .filter_map(|(i, raw)| Field::item(raw).text(&at.item(i), faults))
            .collect()
    } else {
        Vec::from_iter(field.text(at, faults))
    };
    for text in texts {
        if let Err(detail) = filter.add_states(&text) {
            field.refuse(Code::InvalidValue, at, faults, detail);
        }
    }
}

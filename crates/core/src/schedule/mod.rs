//! Recurring schedules: what they are asked to do ([`Definition`]), where they stand ([`Schedule`]), and the
//! pure functions that decide what becomes of each nominal instant.
//!
//! A schedule has one occurrence in the store at a time: the job of its first undecided instant. Claiming
//! that job is what moves the schedule on. [`on_claim`] says whether the occurrence fires, waits or is
//! dropped, what comes next, and what the ledger says of every instant in between; the store writes all of it
//! in the batch of the claim. Edits are functions of the same kind, so whichever of two is applied first, the
//! other sees its result: an instant is decided once, by the definition that held when it came.
//!
//! ```text
//!  decided ◄──┤ decided_until      next (waits in the store)
//!  ───x──x──x─┼──────────────────────o──────o──────o──► nominal instants
//!             └ late beyond window and grace: the misfire policy decides before it goes on
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `definition` | what a user says of a schedule |
//! | `exclude` | dates it does not fire on |
//! | `check` | what of that is refused, and for which field |
//! | `nominal` | the instants a rule gives, in either direction |
//! | `occurrence` | the job an instant becomes: its id, key and place in the window; previews |
//! | `plan` | which instant is next, and what the misfire policy makes of those that were missed |
//! | `claim` | what a claim and the end of a run decide |
//! | `edit` | create, update, pause, resume, delete, trigger |
//! | `upkeep` | new zone rules, changed calendars, broken chains |
//! | `set_back` | intervals, when the clock is set back |
//! | `wall_clock` | what the clock has shown, and shows again when it gets other rules |
//! | `ledger` | what became of each instant |

mod check;
mod claim;
mod definition;
mod edit;
mod exclude;
mod id;
mod ledger;
mod nominal;
mod occurrence;
mod plan;
mod set_back;
mod upcoming;
mod upkeep;
mod wall_clock;

use std::sync::Arc;

use smallvec::SmallVec;

pub use check::{Fault, FaultKind, check, check_beat, check_interval, check_name};
pub use claim::{Decision, Finish, Verdict, on_claim, on_finish};
pub use definition::{Definition, Misfire, MisfirePolicy, Overlap, Rule, Template, Timing, Zone};
pub use edit::{
    Change, Edit, NewSchedule, Removal, amend, anchored, create, delete, pause, resume, trigger, update,
};
pub use exclude::{Dates, Exclude, Roll};
pub use id::{InvalidScheduleId, ScheduleId};
pub use ledger::{Entry, Outcome, Reason};
pub use nominal::{Nominal, Note, next_nominal, nominals, prev_nominal};
pub use occurrence::{
    Preview, backfill, backfill_job, occurrence_id, occurrence_job, occurrence_spec, preview,
    window_offset_ms,
};
pub use set_back::set_back;
pub use upcoming::Upcoming;
pub use upkeep::{calendar_changed, repair, retime};

use crate::id::JobId;
use crate::names::Tenant;
use crate::time::Timestamp;

/// A schedule and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Its id.
    pub id: ScheduleId,
    /// Whose it is.
    pub tenant: Tenant,
    /// Its name, unique for its tenant.
    pub name: Option<Arc<str>>,
    /// Rises with every edit, never with a fire.
    pub version: u64,
    /// What was asked for.
    pub definition: Arc<Definition>,
    /// Whether it goes on.
    pub state: State,
    /// The occurrence that waits in the store; none while paused or ended.
    pub next: Option<Next>,
    /// An occurrence that fired, but waits for an earlier run to end.
    pub held: Option<JobId>,
    /// Every nominal instant up to here has its entry in the ledger, or came before the schedule did. Rises, unless the clock
    /// was set back under an interval, whose instants are others from then on.
    pub decided_until: Timestamp,
    /// The last instant that fired.
    pub last_fire: Option<LastFire>,
    /// Jobs that may not be over yet, oldest first; looked at only where the overlap policy asks.
    pub active: SmallVec<[JobId; 1]>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last edited.
    pub updated_at: Timestamp,
}

/// Whether a schedule goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It fires.
    Active,
    /// It does not fire until it is resumed.
    Paused,
    /// It has no instants left.
    Ended,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Active, Self::Paused, Self::Ended];

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Ended => "ended",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// The occurrence that waits in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// Its nominal time.
    pub fire_at: Timestamp,
    /// When it is due.
    pub run_at: Timestamp,
    /// Its job.
    pub job_id: JobId,
    /// It was missed, and is fired to make up for it, however late that gets.
    pub catch_up: bool,
    /// Once it is decided, so is everything up to here. Its own `fire_at`, but for an occurrence that was due
    /// when the rule was changed: then the time of the change, from which on the new rule holds, or the
    /// millisecond after it if the change came in that of the occurrence.
    pub covers_until: Timestamp,
}

impl Next {
    /// Whether it is an instant of a rule that has been replaced since.
    fn is_of_old_rule(&self) -> bool {
        self.covers_until > self.fire_at
    }
}

/// The last instant that fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastFire {
    /// Its nominal time.
    pub fire_at: Timestamp,
    /// How far the zone was ahead of UTC, in seconds, by the rules it had then, or those by which what the
    /// clock was moved past has been settled. What its wall clock showed must not come again when the zone
    /// gets other rules.
    pub utc_offset_s: i32,
}

impl Schedule {
    /// The occurrence that waits, if its rule has been replaced.
    fn owed(&self) -> Option<Next> {
        self.next.filter(Next::is_of_old_rule)
    }

    /// From here on, the instants of the current rule are undecided, whatever the clock shows at them.
    fn undecided_after(&self) -> Timestamp {
        self.owed().map_or(self.decided_until, |owed| owed.covers_until.max(self.decided_until))
    }

    fn decided(&mut self, until: Timestamp) {
        self.decided_until = self.decided_until.max(until);
    }
}

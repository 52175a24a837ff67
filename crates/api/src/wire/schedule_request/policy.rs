//! What a schedule does about missed instants and about runs that overlap, as callers write it.

use tidewheel_core::limits::{
    MISFIRE_CAP_COUNT_DEFAULT, MISFIRE_CAP_COUNT_MAX, MISFIRE_GRACE_MS_DEFAULT, MISFIRE_GRACE_MS_MAX,
    MISFIRE_GRACE_MS_MIN,
};
use tidewheel_core::schedule::{Misfire, MisfirePolicy, Overlap};

use super::{ScheduleFields, settle};
use crate::wire::fault::{At, Code, Faults};
use crate::wire::read::Field;

const POLICIES: [(&str, MisfirePolicy); 3] = [
    ("fire_all", MisfirePolicy::FIRE_ALL),
    ("fire_latest", MisfirePolicy::FireLatest),
    ("skip", MisfirePolicy::Skip),
];

pub(super) fn read_misfire(
    fields: &ScheduleFields<'_>,
    base: Option<Misfire>,
    at: &At<'_>,
    faults: &mut Faults,
) -> Misfire {
    let policy = settle(fields.misfire, base.map(|base| base.policy), MisfirePolicy::default, |field| {
        let parse = |text: &str| POLICIES.iter().find(|(name, _)| *name == text).map(|(_, policy)| *policy);
        field.one_of(&POLICIES.map(|(name, _)| name), parse, at, faults)
    });
    let policy = match (policy, fields.misfire_cap) {
        // A cap that is not spoken of stays, also when the policy it belongs to is named again.
        (MisfirePolicy::FireAll { .. }, None) => capped_before(base).unwrap_or(policy),
        (MisfirePolicy::FireLatest | MisfirePolicy::Skip, None) => policy,
        (MisfirePolicy::FireAll { .. }, Some(field)) if field.is_null() => MisfirePolicy::FIRE_ALL,
        (MisfirePolicy::FireAll { .. }, Some(field)) => {
            MisfirePolicy::FireAll { cap: read_cap(&field, at, faults).unwrap_or(MISFIRE_CAP_COUNT_DEFAULT) }
        }
        (MisfirePolicy::FireLatest | MisfirePolicy::Skip, Some(field)) => {
            if !field.is_null() {
                let detail = "`misfire_cap` is for `misfire: fire_all` only";
                field.refuse(Code::ConflictingFields, at, faults, detail);
            }
            policy
        }
    };
    let grace_ms = settle(
        fields.misfire_grace,
        base.map(|base| base.grace_ms),
        || MISFIRE_GRACE_MS_DEFAULT,
        |field| field.duration_within(MISFIRE_GRACE_MS_MIN, MISFIRE_GRACE_MS_MAX, at, faults),
    );
    Misfire { policy, grace_ms }
}

/// What there was before, if it has a cap.
fn capped_before(base: Option<Misfire>) -> Option<MisfirePolicy> {
    base.map(|base| base.policy).filter(|policy| matches!(policy, MisfirePolicy::FireAll { .. }))
}

fn read_cap(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<u32> {
    let cap = field.whole(1, u64::from(MISFIRE_CAP_COUNT_MAX), at, faults)?;
    u32::try_from(cap).ok()
}

/// `overlap`, or its short form.
pub(super) fn read_overlap(
    fields: &ScheduleFields<'_>,
    base: Option<Overlap>,
    at: &At<'_>,
    faults: &mut Faults,
) -> Overlap {
    let short = fields.allow_overlap.filter(|field| !field.is_null());
    if let (Some(short), Some(_)) = (short, fields.overlap.filter(|field| !field.is_null())) {
        let detail = "`overlap` and `allow_overlap` exclude each other; give one of them";
        short.refuse(Code::ConflictingFields, at, faults, detail);
    }
    if let Some(allowed) = short.and_then(|field| field.boolean(at, faults)) {
        return if allowed { Overlap::Allow } else { Overlap::Skip };
    }
    settle(fields.overlap.or(fields.allow_overlap), base, Overlap::default, |field| {
        field.one_of(&Overlap::ALL.map(Overlap::as_str), Overlap::from_name, at, faults)
    })
}

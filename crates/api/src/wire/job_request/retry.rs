//! When to try again, as callers write it.

use tidewheel_core::limits::{ATTEMPTS_COUNT_MAX, RETRY_DELAY_MS_MAX};
use tidewheel_core::retry::{Backoff, RetryPolicy};

use crate::known_fields;
use crate::wire::fault::{At, Code, Faults};
use crate::wire::read::Field;

const MULTIPLIER_MIN: f64 = 1.0;
const MULTIPLIER_MAX: f64 = 100.0;

const POLICIES: [(&str, Backoff); 3] = [
    ("fixed", Backoff::Fixed),
    ("exponential", Backoff::Exponential),
    ("exponential_jitter", Backoff::ExponentialJitter),
];

known_fields!(RetryFields {
    max_attempts = "max_attempts",
    policy = "policy",
    base = "base",
    multiplier = "multiplier",
    max = "max",
});

/// The wire's name of a policy.
pub(crate) fn policy_name(backoff: Backoff) -> &'static str {
    POLICIES.iter().find(|(_, policy)| *policy == backoff).map_or("exponential_jitter", |(name, _)| name)
}

/// Reads `retry`, or `max_attempts` alone.
pub(crate) fn read_retry(
    retry: Option<Field<'_>>,
    max_attempts: Option<Field<'_>>,
    at: &At<'_>,
    faults: &mut Faults,
) -> RetryPolicy {
    let mut policy = RetryPolicy::default();
    if let Some(count) = max_attempts.and_then(|field| read_count(&field, at, faults)) {
        policy.max_attempts = count;
    }
    let Some(retry) = retry else { return policy };
    let Some(fields) = retry.object::<RetryFields<'_>>(at, faults) else { return policy };
    let inner = at.field(retry.name());
    if let (Some(field), Some(_)) = (fields.max_attempts, max_attempts) {
        let detail = "`max_attempts` is given at the top level too; give one of them";
        field.refuse(Code::ConflictingFields, &inner, faults, detail);
    }
    if let Some(count) = fields.max_attempts.and_then(|field| read_count(&field, &inner, faults)) {
        policy.max_attempts = count;
    }
    let names = POLICIES.map(|(name, _)| name);
    let parse = |text: &str| POLICIES.iter().find(|(name, _)| *name == text).map(|(_, policy)| *policy);
    if let Some(backoff) = fields.policy.and_then(|field| field.one_of(&names, parse, &inner, faults)) {
        policy.backoff = backoff;
    }
    let mut wait = |field: Option<Field<'_>>| {
        field.and_then(|field| field.duration_within(0, RETRY_DELAY_MS_MAX, &inner, faults))
    };
    let (base, max) = (wait(fields.base), wait(fields.max));
    policy.base_ms = base.unwrap_or(policy.base_ms);
    // A base above the usual ceiling, without a word about the ceiling, means the base.
    policy.max_ms = max.unwrap_or(policy.max_ms.max(policy.base_ms));
    if let Some(field) = fields.max
        && policy.max_ms < policy.base_ms
    {
        field.refuse(
            Code::InvalidValue,
            &inner,
            faults,
            "`max`, the longest wait, is shorter than `base`, the first",
        );
    }
    if let Some(multiplier) =
        fields.multiplier.and_then(|field| field.number(MULTIPLIER_MIN, MULTIPLIER_MAX, &inner, faults))
    {
        policy.multiplier = multiplier;
    }
    policy
}

fn read_count(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<u32> {
    field.whole(1, u64::from(ATTEMPTS_COUNT_MAX), at, faults).and_then(|count| u32::try_from(count).ok())
}

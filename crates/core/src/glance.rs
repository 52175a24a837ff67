//! Looking at a handful of things before dealing with them one by one.
//!
//! What no cache holds takes a processor as long to fetch as hundreds of instructions take; but it fetches a dozen such
//! things at once, as long as finding one does not depend on having dealt with another. Whoever goes through jobs, finds
//! each by way of tables and pointers, and changes something before the next, waits for every one of them. So a handful
//! is looked at first, and nothing changed: what was looked at is at hand when its turn comes.

use std::hint::black_box;
use std::sync::Arc;

use crate::job::Job;

/// So few that all of it is still at hand in the end.
pub const HANDFUL: usize = 64;

/// What a processor fetches at once.
const CACHE_LINE_BYTES: usize = 64;
/// Of a payload.
const PAYLOAD_LINES: usize = 4;

/// Looks. What is seen does not matter.
#[inline]
pub fn over(looks: impl Iterator<Item = bool>) {
    black_box(looks.fold(false, |seen, look| seen ^ look));
}

/// Hands out one by one what was looked at by the handful.
#[inline]
pub fn each<T>(things: Vec<T>, look: impl Fn(&T) -> bool) -> impl Iterator<Item = T> {
    let (mut things, mut looked_at) = (things.into_iter(), 0_usize);
    std::iter::from_fn(move || {
        if looked_at == 0 {
            over(things.as_slice().iter().take(HANDFUL).map(&look));
            looked_at = HANDFUL;
        }
        looked_at -= 1;
        things.next()
    })
}

/// A look at all that changing a job takes.
#[inline]
#[must_use]
pub fn job(job: &Arc<Job>) -> bool {
    let spec = &job.spec;
    status(job) ^ (Arc::strong_count(spec) > 1) ^ spec.payload.is_empty() ^ (spec.created_at.as_ms() > 0)
}

/// A look at what has become of a job, and at nothing of what it asks for.
#[inline]
#[must_use]
pub fn status(job: &Arc<Job>) -> bool {
    let status = &job.status;
    (Arc::strong_count(job) > 1)
        ^ (status.attempt > 0)
        ^ status.attempts.is_empty()
        ^ status.finished_at.is_some()
}

/// A look at the payload of a job that was looked at, as far as a few hundred bytes go: what is longer comes by itself.
#[inline]
#[must_use]
pub fn payload(job: &Arc<Job>) -> bool {
    job.spec
        .payload
        .iter()
        .step_by(CACHE_LINE_BYTES)
        .take(PAYLOAD_LINES)
        .fold(false, |seen, byte| seen ^ (*byte > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn every_thing_is_looked_at_once_and_before_it_is_handed_out() {
        for count in [0, 1, HANDFUL, HANDFUL + 1, 3 * HANDFUL - 1] {
            let seen = RefCell::new(Vec::new());
            let things: Vec<usize> = (0..count).collect();
            let look = |thing: &usize| {
                seen.borrow_mut().push(*thing);
                true
            };
            let mut handed_out = Vec::new();
            for thing in each(things.clone(), look) {
                assert!(seen.borrow().contains(&thing));
                handed_out.push(thing);
            }
            assert_eq!((&handed_out, &*seen.borrow()), (&things, &things));
        }
    }
}

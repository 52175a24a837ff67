//! Gathers what happens to a tenant, event by event: what happens within a moment is told together, and between two
//! notifications of the same event there is a pause, in which what happens is counted. Pure; time is monotonic.

use std::collections::BTreeMap;

use tidewheel_core::limits::{NOTIFICATION_ITEMS_COUNT_MAX, NOTIFICATION_PAUSE_MS, SECOND_MS};
use tidewheel_core::names::Tenant;

use super::message::Item;
use crate::directory::Event;

/// How long what happens together is waited for.
const MOMENT_MS: i64 = SECOND_MS;

/// What one notification tells.
#[derive(Debug, Clone)]
pub(super) struct Gathered {
    pub(super) tenant: Tenant,
    pub(super) event: Event,
    /// How often it happened.
    pub(super) count: u64,
    /// The first few.
    pub(super) items: Vec<Item>,
}

impl Gathered {
    /// The same for the same event, whoever tells of it and however often.
    pub(super) fn key(&self) -> String {
        let subject = self.items.first().map(Item::subject).unwrap_or_default();
        format!("{}:{}:{subject}", super::NOTIFICATION_TYPE, self.event.as_str())
    }
}

#[derive(Debug)]
struct Pending {
    gathered: Option<Gathered>,
    /// Not sent before this.
    not_before_ms: i64,
}

/// What is gathered, of all tenants.
#[derive(Debug, Default)]
pub(super) struct Digest(BTreeMap<(Tenant, Event), Pending>);

impl Digest {
    pub(super) fn note(&mut self, tenant: Tenant, event: Event, item: Item, monotonic_ms: i64) {
        let fresh = || Pending { gathered: None, not_before_ms: monotonic_ms.saturating_add(MOMENT_MS) };
        let pending = self.0.entry((tenant.clone(), event)).or_insert_with(fresh);
        if pending.gathered.is_none() {
            pending.not_before_ms = pending.not_before_ms.max(monotonic_ms.saturating_add(MOMENT_MS));
        }
        let empty = || Gathered { tenant, event, count: 0, items: Vec::new() };
        let gathered = pending.gathered.get_or_insert_with(empty);
        gathered.count += 1;
        if gathered.items.len() < NOTIFICATION_ITEMS_COUNT_MAX {
            gathered.items.push(item);
        }
    }

    /// What is to be sent now.
    pub(super) fn due(&mut self, monotonic_ms: i64) -> Vec<Gathered> {
        let mut due = Vec::new();
        self.0.retain(|_, pending| {
            if pending.not_before_ms > monotonic_ms {
                return true;
            }
            match pending.gathered.take() {
                Some(gathered) => {
                    due.push(gathered);
                    pending.not_before_ms = monotonic_ms.saturating_add(NOTIFICATION_PAUSE_MS);
                    true
                }
                // The pause is over and nothing has happened.
                None => false,
            }
        });
        due
    }

    /// It could not be sent: what happens meanwhile is told along with it.
    pub(super) fn put_back(&mut self, earlier: Gathered, monotonic_ms: i64) {
        let key = (earlier.tenant.clone(), earlier.event);
        let not_before_ms = monotonic_ms.saturating_add(MOMENT_MS);
        let pending = self.0.entry(key).or_insert(Pending { gathered: None, not_before_ms });
        pending.not_before_ms = not_before_ms;
        let mut whole = earlier;
        if let Some(later) = pending.gathered.take() {
            whole.count += later.count;
            whole.items.extend(later.items);
            whole.items.truncate(NOTIFICATION_ITEMS_COUNT_MAX);
        }
        pending.gathered = Some(whole);
    }
}

#[cfg(test)]
mod tests {
    use tidewheel_core::time::Timestamp;

    use super::*;
    use crate::engine::Tiding;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    fn item(number: usize) -> Item {
        let host = format!("http://h{number}").into();
        let at = Timestamp::from_ms(7);
        Item::of(Tiding::TargetDown { tenant: tenant("a"), host, reason: "down".into(), at }, at)
    }

    #[test]
    fn a_flood_makes_few_notifications_and_each_event_is_counted() {
        let mut digest = Digest::default();
        let (mut sent, mut told) = (0, 0);
        for ms in 0..10 * NOTIFICATION_PAUSE_MS {
            if ms < 5 * NOTIFICATION_PAUSE_MS {
                digest.note(tenant("a"), Event::DeadLetter, item(1), ms);
            }
            for gathered in digest.due(ms) {
                sent += 1;
                told += gathered.count;
                assert!(gathered.items.len() <= NOTIFICATION_ITEMS_COUNT_MAX);
            }
        }
        assert_eq!(told, u64::try_from(5 * NOTIFICATION_PAUSE_MS).unwrap());
        assert!((5..=7).contains(&sent), "{sent}");
        assert!(digest.0.is_empty(), "nothing is kept once it is quiet");
    }

    #[test]
    fn tenants_and_events_do_not_wait_for_each_other() {
        let mut digest = Digest::default();
        digest.note(tenant("a"), Event::DeadLetter, item(1), 0);
        assert!(digest.due(MOMENT_MS - 1).is_empty());
        assert_eq!(digest.due(MOMENT_MS).len(), 1);
        digest.note(tenant("a"), Event::BreakerOpen, item(1), MOMENT_MS);
        digest.note(tenant("b"), Event::DeadLetter, item(1), MOMENT_MS);
        digest.note(tenant("a"), Event::DeadLetter, item(1), MOMENT_MS);
        assert_eq!(digest.due(2 * MOMENT_MS).len(), 2, "the third has been told of just now");
    }

    #[test]
    fn what_could_not_be_sent_is_told_with_what_follows_under_the_same_key() {
        let mut digest = Digest::default();
        digest.note(tenant("a"), Event::BreakerOpen, item(1), 0);
        let first = digest.due(MOMENT_MS).remove(0);
        digest.note(tenant("a"), Event::BreakerOpen, item(2), MOMENT_MS);
        digest.put_back(first.clone(), MOMENT_MS);
        let again = digest.due(2 * MOMENT_MS).remove(0);
        assert_eq!((again.count, again.key()), (2, first.key()));
        assert_eq!(again.key(), "tidewheel.notification:breaker_open:http://h1@1970-01-01T00:00:00.007Z");
    }
}

//! Slows down whoever guesses keys. Each address may fail a few times, then once a second; what comes from it beyond that is
//! refused unread, unless it shows a key that has worked from there before: others behind the same address go on.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::directory::KeyDigest;

/// Failures an address has free.
const FAILURES_FREE: f64 = 20.0;
/// Failures that are forgotten per second.
const FORGOTTEN_PER_S: f64 = 1.0;
/// Time in which one is.
const ONE_FORGOTTEN_S: u32 = 1;
/// Addresses remembered.
const ADDRESSES_COUNT_MAX: usize = 10_000;
/// Keys remembered with an address they have worked from.
const TRUSTED_COUNT_MAX: usize = 10_000;

/// An address as it is counted: of IPv6 its first half, as that is what one customer gets.
type Place = u128;

#[derive(Clone, Copy)]
struct Account {
    left: f64,
    at_ms: i64,
}

impl Account {
    fn at(self, now_ms: i64) -> Self {
        let passed_ms = u32::try_from(now_ms.saturating_sub(self.at_ms)).unwrap_or(u32::MAX);
        let left = (self.left + f64::from(passed_ms) / 1_000.0 * FORGOTTEN_PER_S).min(FAILURES_FREE);
        Self { left, at_ms: now_ms }
    }
}

/// Who has failed lately.
#[derive(Default)]
pub(super) struct Penalties {
    accounts: Mutex<FxHashMap<Place, Account>>,
    /// How many there are, so that the usual request need not look.
    count: AtomicUsize,
    trusted: RwLock<FxHashSet<(KeyDigest, Place)>>,
}

impl Penalties {
    /// Seconds until the address may try a key again that has not worked from there before; `None` if it may now.
    pub(super) fn wait_s(&self, address: IpAddr, now_ms: i64) -> Option<u32> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let account = accounts.get(&place(address))?.at(now_ms);
        (account.left < 1.0).then_some(ONE_FORGOTTEN_S)
    }

    /// The address showed a key that is none.
    pub(super) fn failed(&self, address: IpAddr, now_ms: i64) {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if accounts.len() >= ADDRESSES_COUNT_MAX {
            accounts.retain(|_, account| account.at(now_ms).left < FAILURES_FREE);
        }
        if accounts.len() >= ADDRESSES_COUNT_MAX {
            // Whoever has this many addresses is not slowed by any bound on memory.
            accounts.clear();
        }
        let fresh = Account { left: FAILURES_FREE, at_ms: now_ms };
        let account = accounts.entry(place(address)).or_insert(fresh);
        *account = account.at(now_ms);
        account.left = (account.left - 1.0).max(0.0);
        self.count.store(accounts.len(), Ordering::Relaxed);
    }

    /// The key worked from this address.
    pub(super) fn worked(&self, key: &KeyDigest, address: IpAddr) {
        if self.is_trusted(key, address) {
            return;
        }
        let mut trusted = self.trusted.write().unwrap_or_else(PoisonError::into_inner);
        if trusted.len() >= TRUSTED_COUNT_MAX {
            trusted.clear();
        }
        trusted.insert((*key, place(address)));
    }

    /// Whether the key has worked from this address before.
    pub(super) fn is_trusted(&self, key: &KeyDigest, address: IpAddr) -> bool {
        self.trusted.read().unwrap_or_else(PoisonError::into_inner).contains(&(*key, place(address)))
    }
}

fn place(address: IpAddr) -> Place {
    match address.to_canonical() {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits() >> 64 << 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_that_fails_again_and_again_is_slowed_and_others_are_not() {
        let penalties = Penalties::default();
        let (guesser, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
        for _ in 0..20 {
            assert_eq!(penalties.wait_s(guesser, 0), None);
            penalties.failed(guesser, 0);
        }
        assert_eq!(penalties.wait_s(guesser, 0), Some(1));
        assert_eq!(penalties.wait_s(other, 0), None);
        assert_eq!(penalties.wait_s(guesser, 999), Some(1));
        assert_eq!(penalties.wait_s(guesser, 1_000), None, "once a second");
        penalties.failed(guesser, 1_000);
        assert_eq!(penalties.wait_s(guesser, 1_000), Some(1));
        assert_eq!(penalties.wait_s(guesser, 60_000), None, "forgotten");
    }

    #[test]
    fn all_addresses_of_one_ipv6_customer_are_one() {
        let penalties = Penalties::default();
        for n in 0..20 {
            penalties.failed(ip(&format!("2001:db8:1:2::{n}")), 0);
        }
        assert_eq!(penalties.wait_s(ip("2001:db8:1:2:ffff::1"), 0), Some(1));
        assert_eq!(penalties.wait_s(ip("2001:db8:1:3::1"), 0), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let penalties = Penalties::default();
        for n in 0..25_000_u32 {
            penalties.failed(IpAddr::V4(n.into()), 0);
            penalties.worked(&KeyDigest::of(&n.to_string()), ip("192.0.2.1"));
        }
        assert!(penalties.accounts.lock().unwrap().len() <= ADDRESSES_COUNT_MAX);
        assert!(penalties.trusted.read().unwrap().len() <= TRUSTED_COUNT_MAX);
    }
}

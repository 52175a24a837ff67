//! The changes of many jobs, packed into the content of few records: 18 bytes a change, mostly.
//!
//! ```text
//! content  run …
//! run      length of the tenant's name u8 | name | number of changes u16 | change …
//! change   id (16) | state before, state after (4 bits each; 15 for none) | attempt, LEB128
//! ```

use std::collections::BTreeMap;

use super::{Chain, chain_of};
use crate::id::JobId;
use crate::job::State;
use crate::limits::{ATTEMPTS_LIFETIME_COUNT_MAX, AUDIT_CHANGES_PER_RECORD_COUNT_MAX};
use crate::names::Tenant;

const NO_STATE: u8 = 15;

/// What one commit made of a tenant's job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Whose job.
    pub tenant: Tenant,
    /// What became of it.
    pub step: Step,
}

/// What one commit made of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Which job.
    pub id: JobId,
    /// Its state before; none if it is new.
    pub from: Option<State>,
    /// Its state after; none if it is gone. The same as before where something else about it changed.
    pub to: Option<State>,
    /// The attempt it is at; 0 before the first, and of a job that is gone.
    pub attempt: u32,
}

/// Contents of records, being packed.
#[derive(Debug, Default)]
pub struct Packed {
    contents: Vec<(Chain, Vec<u8>)>,
    /// Where the last content of each chain is, how much it holds, and where its last run counts.
    open: BTreeMap<Chain, Open>,
    /// Whose change came last, and its chain: mostly the next one's too.
    last: Option<(Tenant, Chain)>,
}

#[derive(Debug)]
struct Open {
    content: usize,
    count: usize,
    tenant: Tenant,
    /// Where the number of changes of the last run stands.
    counter_at: usize,
    run_count: u16,
}

impl Packed {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    /// Adds a change behind those of its chain.
    pub fn add(&mut self, shards: u16, tenant: &Tenant, step: Step) {
        let chain = match &self.last {
            Some((last, chain)) if last == tenant => *chain,
            Some(_) | None => {
                let chain = chain_of(tenant, shards);
                self.last = Some((tenant.clone(), chain));
                chain
            }
        };
        let contents = &mut self.contents;
        let mut begin = || {
            contents.push((chain, Vec::new()));
            Open {
                content: contents.len() - 1,
                count: 0,
                tenant: tenant.clone(),
                counter_at: 0,
                run_count: 0,
            }
        };
        let open = self.open.entry(chain).or_insert_with(&mut begin);
        if open.count >= AUDIT_CHANGES_PER_RECORD_COUNT_MAX {
            *open = begin();
        }
        let Some((_, bytes)) = self.contents.get_mut(open.content) else { return };
        if open.run_count == 0 || open.tenant != *tenant {
            let name = tenant.as_str().as_bytes();
            bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            bytes.extend_from_slice(name);
            open.tenant = tenant.clone();
            open.counter_at = bytes.len();
            open.run_count = 0;
            bytes.extend_from_slice(&[0, 0]);
        }
        open.run_count += 1;
        open.count += 1;
        if let Some(counter) = bytes.get_mut(open.counter_at..open.counter_at + 2) {
            counter.copy_from_slice(&open.run_count.to_be_bytes());
        }
        bytes.extend_from_slice(step.id.as_bytes());
        bytes.push(nibble(step.from) << 4 | nibble(step.to));
        push_number(bytes, step.attempt);
    }

    /// The contents, those of one chain in order.
    #[must_use]
    pub fn into_contents(self) -> Vec<(Chain, Vec<u8>)> {
        self.contents
    }
}

fn nibble(state: Option<State>) -> u8 {
    state.map_or(NO_STATE, |state| state as u8)
}

fn state(nibble: u8) -> Option<Option<State>> {
    match nibble {
        NO_STATE => Some(None),
        index => State::ALL.get(usize::from(index)).copied().map(Some),
    }
}

fn push_number(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        // The low seven bits of each byte, the top one says that more follow.
        bytes.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap_or(0));
}

/// The changes in a record's content, one after the other.
#[derive(Debug, Clone)]
pub struct Changes<'a> {
    rest: &'a [u8],
    run: Option<(Tenant, u16)>,
}

impl<'a> Changes<'a> {
    /// Those in this content.
    #[must_use]
    pub const fn of(content: &'a [u8]) -> Self {
        Self { rest: content, run: None }
    }

    /// Packs changes again as they were; as many as one record holds.
    #[must_use]
    pub fn pack(changes: &[Change]) -> Vec<u8> {
        let mut packed = Packed::default();
        for change in changes.iter().take(AUDIT_CHANGES_PER_RECORD_COUNT_MAX) {
            packed.add(1, &change.tenant, change.step);
        }
        packed.contents.pop().map(|(_, content)| content).unwrap_or_default()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    fn begin_run(&mut self) -> Option<(Tenant, u16)> {
        let [length] = self.take()?;
        let (name, rest) = self.rest.split_at_checked(usize::from(length))?;
        self.rest = rest;
        let tenant = Tenant::new(std::str::from_utf8(name).ok()?).ok()?;
        let count = u16::from_be_bytes(self.take()?);
        (count > 0).then_some((tenant, count))
    }

    fn number(&mut self) -> Option<u32> {
        let mut number = 0;
        for shift in [0, 7, 14, 21] {
            let [byte] = self.take()?;
            number |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return (number <= ATTEMPTS_LIFETIME_COUNT_MAX).then_some(number);
            }
        }
        None
    }

    fn change(&mut self) -> Option<Change> {
        let (tenant, left) = match self.run.take() {
            Some(run) => run,
            None => self.begin_run()?,
        };
        let id = JobId::from_bytes(self.take()?);
        let [states] = self.take()?;
        let (from, to) = (state(states >> 4)?, state(states & 15)?);
        let attempt = self.number()?;
        if left > 1 {
            self.run = Some((tenant.clone(), left - 1));
        }
        Some(Change { tenant, step: Step { id, from, to, attempt } })
    }
}

/// Content that makes no sense ends with an error.
impl Iterator for Changes<'_> {
    type Item = Result<Change, Unpackable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() && self.run.is_none() {
            return None;
        }
        let change = self.change().ok_or(Unpackable);
        if change.is_err() {
            (self.rest, self.run) = (&[], None);
        }
        Some(change)
    }
}

/// Content that holds no changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record's changes cannot be read")]
pub struct Unpackable;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::time::Timestamp;

    fn change(tenant: &str, n: u128, from: Option<State>, to: Option<State>, attempt: u32) -> Change {
        let id = JobId::new(Timestamp::from_ms(1_000), n);
        Change { tenant: Tenant::new(tenant).unwrap(), step: Step { id, from, to, attempt } }
    }

    fn read(content: &[u8]) -> Vec<Change> {
        Changes::of(content).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn changes_go_to_the_chains_of_their_tenants_in_order() {
        let mut packed = Packed::default();
        let all: Vec<_> = (0..2_000_u128)
            .map(|n| {
                let tenant = if n % 3 == 0 { "a" } else { "b" };
                change(tenant, n, None, Some(State::Scheduled), 0)
            })
            .collect();
        all.iter().for_each(|change| packed.add(64, &change.tenant, change.step));
        let contents = packed.into_contents();
        for tenant in ["a", "b"].map(|name| Tenant::new(name).unwrap()) {
            let chain = chain_of(&tenant, 64);
            let own = contents.iter().filter(|(of, _)| *of == chain).map(|(_, content)| read(content));
            let own: Vec<_> = own.collect();
            assert!(own.iter().all(|changes| changes.len() <= AUDIT_CHANGES_PER_RECORD_COUNT_MAX));
            let found: Vec<_> = own.into_iter().flatten().collect();
            let wanted: Vec<_> =
                all.iter().filter(|change| chain_of(&change.tenant, 64) == chain).cloned().collect();
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn a_change_takes_few_bytes() {
        let content = Changes::pack(&[
            change("acme", 1, Some(State::Running), Some(State::Succeeded), 1),
            change("acme", 2, Some(State::Dead), None, 1),
        ]);
        assert_eq!(content.len(), 1 + 4 + 2 + 2 * 18);
    }

    fn some_state() -> impl Strategy<Value = Option<State>> {
        prop_oneof![Just(None), (0..State::ALL.len()).prop_map(|n| State::ALL.get(n).copied())]
    }

    proptest! {
        #[test]
        fn what_is_packed_can_be_read_and_packed_again(
            changes in proptest::collection::vec(
                ("[a-c]{1,2}", any::<u128>(), some_state(), some_state(), 0..=ATTEMPTS_LIFETIME_COUNT_MAX), 0..40),
        ) {
            let changes: Vec<_> = changes.into_iter()
                .map(|(tenant, n, from, to, attempt)| change(&tenant, n, from, to, attempt))
                .collect();
            let content = Changes::pack(&changes);
            prop_assert_eq!(&read(&content), &changes);
            prop_assert_eq!(Changes::pack(&read(&content)), content);
        }

        #[test]
        fn no_bytes_make_it_panic_or_go_on_for_ever(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Changes::of(&bytes).count() <= bytes.len());
        }
    }
}

//! Going along chains, all of them at once, and finding where one is broken.

use std::collections::BTreeMap;

use super::{Chain, ChainEnds, Digest, Link, Record};

/// The first thing that is wrong with a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// What a record says is not what its hash was made of.
    #[error("chain {chain}: record {seq} was altered: its hash is not that of what it says")]
    Altered {
        /// In which chain.
        chain: Chain,
        /// Its number.
        seq: u64,
    },
    /// A record is linked to another than the one before it.
    #[error(
        "chain {chain}: record {seq} is not linked to the one before it: that was altered, or put in its place"
    )]
    Unlinked {
        /// In which chain.
        chain: Chain,
        /// Its number.
        seq: u64,
    },
    /// A record is not there.
    #[error("chain {chain}: record {seq} is missing; the next one there is {next}")]
    Missing {
        /// In which chain.
        chain: Chain,
        /// The first that is missing.
        seq: u64,
        /// The one found in its place.
        next: u64,
    },
    /// A chain ends before its newest record.
    #[error("chain {chain}: record {seq} is missing; the chain ends with {head}")]
    CutOff {
        /// In which chain.
        chain: Chain,
        /// The first that is missing.
        seq: u64,
        /// The newest one there was.
        head: u64,
    },
    /// A record is there twice, or after a later one.
    #[error("chain {chain}: record {seq} comes out of its order")]
    OutOfOrder {
        /// In which chain.
        chain: Chain,
        /// Its number.
        seq: u64,
    },
    /// A record that nobody added: the chain does not go so far.
    #[error("chain {chain}: there is a record {seq}, and the chain ends before it")]
    PutIn {
        /// In which chain.
        chain: Chain,
        /// Its number.
        seq: u64,
    },
}

/// Goes along all chains at once, as their records come by time.
#[derive(Debug, Default)]
pub struct Walk {
    /// How far each has been followed, and its newest record when the walk began.
    chains: BTreeMap<Chain, (Reached, Option<Link>)>,
    /// Whether a chain may begin anywhere: nothing is known of their ends.
    from_anywhere: bool,
    checked: u64,
    /// The last record met of each chain that is newer than the walk.
    beyond: BTreeMap<Chain, u64>,
}

#[derive(Debug, Clone, Copy)]
struct Reached {
    seq: u64,
    hash: Digest,
}

impl Walk {
    /// From one end of each chain to the other. What was added since these were looked up is left out.
    #[must_use]
    pub fn between(ends: &[ChainEnds]) -> Self {
        let chains = ends.iter().map(|ends| {
            let ChainEnds { chain, anchor, head } = *ends;
            (chain, (Reached { seq: anchor.seq, hash: anchor.hash }, Some(head)))
        });
        Self { chains: chains.collect(), ..Self::default() }
    }

    /// From the first record there is of each chain to the last.
    #[must_use]
    pub fn from_anywhere() -> Self {
        Self { from_anywhere: true, ..Self::default() }
    }

    /// How many records were checked.
    #[must_use]
    pub const fn checked(&self) -> u64 {
        self.checked
    }

    /// How many chains there are.
    #[must_use]
    pub fn chains(&self) -> usize {
        self.chains.len()
    }

    /// Whether a record is newer than the walk.
    #[must_use]
    pub fn is_beyond(&self, record: &Record) -> bool {
        match self.chains.get(&record.chain) {
            Some((_, head)) => head.is_some_and(|head| record.seq > head.seq),
            // A chain that has begun since.
            None => !self.from_anywhere && record.seq >= 1,
        }
    }

    /// Checks the next record; one that is newer than the walk is only noted ([`Self::confirm`]).
    ///
    /// # Errors
    /// When the chain is broken there.
    pub fn check(&mut self, record: &Record) -> Result<(), Broken> {
        let (chain, seq) = (record.chain, record.seq);
        if self.is_beyond(record) {
            let last = self.beyond.entry(chain).or_default();
            *last = seq.max(*last);
            return Ok(());
        }
        let Some((reached, _)) = self.chains.get_mut(&chain) else { return self.begin(record) };
        if seq <= reached.seq {
            return Err(Broken::OutOfOrder { chain, seq });
        }
        if seq > reached.seq + 1 {
            return Err(Broken::Missing { chain, seq: reached.seq + 1, next: seq });
        }
        if !record.is_sound() {
            return Err(Broken::Altered { chain, seq });
        }
        if record.previous != reached.hash {
            return Err(Broken::Unlinked { chain, seq });
        }
        *reached = Reached { seq, hash: record.hash };
        self.checked += 1;
        Ok(())
    }

    fn begin(&mut self, record: &Record) -> Result<(), Broken> {
        let (chain, seq) = (record.chain, record.seq);
        if !record.is_sound() {
            return Err(Broken::Altered { chain, seq });
        }
        if seq == 1 && record.previous != Digest::ZERO {
            return Err(Broken::Unlinked { chain, seq });
        }
        self.chains.insert(chain, (Reached { seq, hash: record.hash }, None));
        self.checked += 1;
        Ok(())
    }

    /// Says whether what was newer than the walk belongs there, going by the ends that chains have since.
    ///
    /// # Errors
    /// When a record lies beyond the end of its chain.
    pub fn confirm(&self, ends: &[ChainEnds]) -> Result<(), Broken> {
        for (chain, seq) in &self.beyond {
            let head = ends.iter().find(|ends| ends.chain == *chain).map_or(0, |ends| ends.head.seq);
            if *seq > head {
                return Err(Broken::PutIn { chain: *chain, seq: *seq });
            }
        }
        Ok(())
    }

    /// Says whether every chain was there to its end.
    ///
    /// # Errors
    /// When one was not, or ends in another record than it should.
    pub fn end(&self) -> Result<(), Broken> {
        for (chain, (reached, head)) in &self.chains {
            let Some(head) = head else { continue };
            if reached.seq < head.seq {
                return Err(Broken::CutOff { chain: *chain, seq: reached.seq + 1, head: head.seq });
            }
            if reached.hash != head.hash {
                return Err(Broken::Altered { chain: *chain, seq: head.seq });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::Kind;
    use super::*;
    use crate::time::Timestamp;

    fn chain(chain: Chain, count: u64) -> (Vec<Record>, ChainEnds) {
        let mut head = Link::START;
        let records = (0..count).map(|n| {
            head.append(
                chain,
                Timestamp::from_ms(i64::try_from(n).unwrap_or(0)),
                Kind::Act,
                Bytes::from(n.to_string()),
            )
        });
        let records = records.collect();
        (records, ChainEnds { chain, anchor: Link::START, head })
    }

    fn walk(records: &[Record], ends: ChainEnds) -> Result<u64, Broken> {
        let mut walk = Walk::between(&[ends]);
        records.iter().try_for_each(|record| walk.check(record))?;
        walk.end().map(|()| walk.checked())
    }

    #[test]
    fn a_whole_chain_is_sound() {
        let (records, ends) = chain(7, 5);
        assert_eq!(walk(&records, ends), Ok(5));
        let mut anywhere = Walk::from_anywhere();
        assert_eq!(records.iter().skip(2).try_for_each(|record| anywhere.check(record)), Ok(()));
        assert_eq!((anywhere.checked(), anywhere.end()), (3, Ok(())));
    }

    #[test]
    fn a_chain_whose_beginning_was_dropped_is_sound_from_its_anchor() {
        let (records, ends) = chain(7, 5);
        let [_, dropped, ..] = records.as_slice() else { panic!("five") };
        let anchor = Link { seq: 2, at: dropped.at, hash: dropped.hash };
        let kept = records.get(2..).unwrap_or_default();
        assert_eq!(walk(kept, ChainEnds { anchor, ..ends }), Ok(3));
        assert_eq!(walk(kept, ends), Err(Broken::Missing { chain: 7, seq: 1, next: 3 }));
        let forged = Link { hash: Digest::ZERO, ..anchor };
        assert_eq!(
            walk(kept, ChainEnds { anchor: forged, ..ends }),
            Err(Broken::Unlinked { chain: 7, seq: 3 })
        );
    }

    #[test]
    fn every_kind_of_damage_is_found_where_it_is() {
        let (whole, ends) = chain(7, 5);
        let mut records = whole.clone();
        records[2].content = Bytes::from_static(b"other");
        assert_eq!(walk(&records, ends), Err(Broken::Altered { chain: 7, seq: 3 }));
        let mut records = whole.clone();
        records.remove(2);
        assert_eq!(walk(&records, ends), Err(Broken::Missing { chain: 7, seq: 3, next: 4 }));
        let mut records = whole.clone();
        records.truncate(3);
        assert_eq!(walk(&records, ends), Err(Broken::CutOff { chain: 7, seq: 4, head: 5 }));
        let mut records = whole.clone();
        records.swap(1, 2);
        assert_eq!(walk(&records, ends), Err(Broken::Missing { chain: 7, seq: 2, next: 3 }));
        let mut records = whole.clone();
        records.insert(2, records[1].clone());
        assert_eq!(walk(&records, ends), Err(Broken::OutOfOrder { chain: 7, seq: 2 }));
        // One that was made anew, hash and all, does not fit its neighbour.
        let mut records = whole.clone();
        let mut before = Link { seq: 2, at: whole[1].at, hash: whole[1].hash };
        records[2] = before.append(7, whole[2].at, Kind::Act, Bytes::from_static(b"other"));
        assert_eq!(walk(&records, ends), Err(Broken::Unlinked { chain: 7, seq: 4 }));
        // And the last one, so made, is not the newest there was.
        let mut records = whole;
        let mut before = Link { seq: 4, at: records[3].at, hash: records[3].hash };
        records[4] = before.append(7, records[4].at, Kind::Act, Bytes::from_static(b"other"));
        assert_eq!(walk(&records, ends), Err(Broken::Altered { chain: 7, seq: 5 }));
    }

    #[test]
    fn what_was_added_since_is_left_out() {
        let (records, ends) = chain(7, 5);
        let third = &records[2];
        let then = ChainEnds { head: Link { seq: 3, at: third.at, hash: third.hash }, ..ends };
        let mut walk = Walk::between(&[then]);
        assert!(!walk.is_beyond(third) && walk.is_beyond(&records[3]));
        for record in &records {
            assert_eq!(walk.check(record), Ok(()));
        }
        assert_eq!((walk.checked(), walk.end(), walk.confirm(&[ends])), (3, Ok(()), Ok(())));
        assert_eq!(walk.confirm(&[then]), Err(Broken::PutIn { chain: 7, seq: 5 }), "nobody added these");
        let (other, _) = chain(8, 1);
        assert_eq!(walk.check(&other[0]), Ok(()));
        assert_eq!(walk.confirm(&[ends]), Err(Broken::PutIn { chain: 8, seq: 1 }));
    }
}

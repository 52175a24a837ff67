//! The last line of an export of the audit trail: where it begins and ends in each chain. Links show what is missing between two
//! records; that the first or the last are missing, or all, only shows in comparison with this.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::audit::Line;

/// The form that is written.
const VERSION: u32 = 1;

/// The line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndLine {
    /// What it says.
    pub end: Ends,
}

/// What an export holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// The form of this line.
    pub version: u32,
    /// How many records there are.
    pub records: u64,
    /// The chains they are of.
    pub chains: Vec<Span>,
}

/// From where to where an export has records of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The chain.
    pub chain: u16,
    /// Its first record.
    pub first: SpanEnd,
    /// Its last record.
    pub last: SpanEnd,
}

/// A record at an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanEnd {
    /// Its number.
    pub seq: u64,
    /// Its hash.
    pub hash: String,
}

/// What an export holds so far.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    records: u64,
    chains: BTreeMap<u16, Span>,
}

/// How what is there differs from what an export should hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// The line is of a later version.
    #[error("the export's end line has the form {0}, which is not known here; check it with a newer version")]
    Unknown(u32),
    /// A chain is not there, or only in part.
    #[error("chain {chain}: the export should have {should}, and has {has}")]
    Differs {
        /// The chain.
        chain: u16,
        /// The records there should be.
        should: Shown,
        /// Those there are.
        has: Shown,
    },
    /// There are more or fewer records.
    #[error("the export should have {should} records, and has {has}")]
    Count {
        /// The records there should be.
        should: u64,
        /// Those there are.
        has: u64,
    },
}

/// The ends of a chain in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown(Option<Box<Span>>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_deref() {
            Some(Span { first, last, .. }) => {
                write!(f, "records {} ({}) to {} ({})", first.seq, first.hash, last.seq, last.hash)
            }
            None => f.write_str("none of it"),
        }
    }
}

impl Tally {
    /// Counts a line that is exported.
    pub fn note(&mut self, line: &Line) {
        self.records += 1;
        let end = SpanEnd { seq: line.seq, hash: line.hash.clone() };
        let span = self.chains.entry(line.chain).or_insert_with(|| Span {
            chain: line.chain,
            first: end.clone(),
            last: end.clone(),
        });
        if end.seq < span.first.seq {
            span.first = end;
        } else if end.seq > span.last.seq {
            span.last = end;
        }
    }

    /// The line that ends the export.
    #[must_use]
    pub fn end_line(&self) -> EndLine {
        let chains = self.chains.values().cloned().collect();
        EndLine { end: Ends { version: VERSION, records: self.records, chains } }
    }

    /// Says whether this is all that an export should hold.
    ///
    /// # Errors
    /// With the first difference, when it is not.
    pub fn compare(&self, should: &Ends) -> Result<(), Incomplete> {
        if should.version != VERSION {
            return Err(Incomplete::Unknown(should.version));
        }
        let stated: BTreeMap<u16, &Span> = should.chains.iter().map(|span| (span.chain, span)).collect();
        let mut chains: Vec<u16> = stated.keys().chain(self.chains.keys()).copied().collect();
        chains.sort_unstable();
        for chain in chains {
            let (should, has) = (stated.get(&chain).copied(), self.chains.get(&chain));
            if should != has {
                let shown = |span: Option<&Span>| Shown(span.cloned().map(Box::new));
                return Err(Incomplete::Differs { chain, should: shown(should), has: shown(has) });
            }
        }
        if should.records == self.records {
            Ok(())
        } else {
            Err(Incomplete::Count { should: should.records, has: self.records })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(chain: u16, seq: u64) -> Line {
        Line {
            chain,
            seq,
            at: String::new(),
            kind: "act".to_owned(),
            act: None,
            changes: None,
            unreadable: None,
            partial: false,
            previous: String::new(),
            hash: format!("h{seq}"),
        }
    }

    fn tally(lines: &[(u16, u64)]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|(chain, seq)| tally.note(&line(*chain, *seq)));
        tally
    }

    #[test]
    fn what_is_missing_at_an_end_shows() {
        let whole = [(1, 4), (2, 7), (1, 5), (1, 6)];
        let end = tally(&whole).end_line().end;
        assert_eq!(tally(&whole).compare(&end), Ok(()));
        for missing in [0, 1, 3] {
            let mut lines = whole.to_vec();
            lines.remove(missing);
            assert!(matches!(tally(&lines).compare(&end), Err(Incomplete::Differs { .. })), "{missing}");
        }
        assert_eq!(
            tally(&[(1, 4), (2, 7), (1, 6)]).compare(&end),
            Err(Incomplete::Count { should: 4, has: 3 })
        );
        assert!(tally(&[]).compare(&end).is_err());
        let newer = Ends { version: 2, ..end };
        assert_eq!(tally(&whole).compare(&newer), Err(Incomplete::Unknown(2)));
    }

    /// Exports outlive the program.
    #[test]
    fn the_line_stays_what_it_is() {
        let text = r#"{"end":{"version":1,"records":2,"chains":[{"chain":3,"first":{"seq":1,"hash":"h1"},"last":{"seq":2,"hash":"h2"}}]}}"#;
        let end = tally(&[(3, 1), (3, 2)]).end_line();
        assert_eq!(serde_json::to_string(&end).unwrap(), text);
        assert_eq!(serde_json::from_str::<EndLine>(text).unwrap(), end);
    }
}

//! Job ids. An id says where the job lives: 48 bits of its first `run_at` in milliseconds, then an 80-bit
//! tail. With the tenant it is the whole key, so a lookup needs no second index.
//!
//! A job outside its tenant's home shard says so in the last 24 bits of its tail: a mark, then four bits for the
//! sub-shard. No other id ends like this, so an id alone says which it is, whatever its tenant is spread over by now.

use std::fmt;
use std::str::FromStr;

use crate::limits::RUN_AT_MS_MAX;
use crate::place::SubShard;
use crate::time::Timestamp;

/// A job id: 16 bytes, ordered by the job's first `run_at`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId([u8; 16]);

/// Bytes of an id after its time.
pub const TAIL_BYTES: usize = 10;
const TAIL_BITS: u32 = 80;
/// Ends the tails of jobs outside their home shard, before the bits of the sub-shard. Long enough that the rest of the tail
/// still tells a million jobs of one instant apart.
const MARK: u128 = 0x5B_D1E0;
const MARK_MASK: u128 = 0xFF_FFF0;
const SUB_SHARD_MASK: u128 = 0xF;
/// Differs from the mark in one bit.
const NO_MARK_BIT: u128 = 0x80_0000;

/// What stands before the digits.
const PREFIX: &str = "job_";
/// Crockford's base 32: no I, L, O, U.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const DIGITS_COUNT: usize = 26;
const NO_DIGIT: u8 = u8::MAX;
/// What each byte is worth as a digit, in either case.
#[expect(clippy::indexing_slicing, reason = "made by the compiler, which would not build it")]
const VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut digit = 0_u8;
    while digit < 32 {
        let byte = DIGITS[digit as usize];
        values[byte as usize] = digit;
        values[byte.to_ascii_lowercase() as usize] = digit;
        digit += 1;
    }
    values
};

impl JobId {
    /// An id for a job first due at `run_at`, told apart from others of that instant by the low 80 bits of
    /// `tail`. Instants outside 48 bits are brought to its ends. The job is in its tenant's home shard.
    #[must_use]
    pub fn new(run_at: Timestamp, tail: u128) -> Self {
        let is_marked = tail & MARK_MASK == MARK;
        Self::of(run_at, if is_marked { tail ^ NO_MARK_BIT } else { tail })
    }

    /// The same for a job in a sub-shard.
    #[must_use]
    pub fn in_sub_shard(run_at: Timestamp, tail: u128, sub_shard: SubShard) -> Self {
        if sub_shard == SubShard::HOME {
            return Self::new(run_at, tail);
        }
        let tail = tail & !(MARK_MASK | SUB_SHARD_MASK);
        Self::of(run_at, tail | MARK | u128::from(sub_shard.number()))
    }

    fn of(run_at: Timestamp, tail: u128) -> Self {
        let ms = run_at.as_ms().clamp(0, RUN_AT_MS_MAX).unsigned_abs();
        let mask = (1_u128 << TAIL_BITS) - 1;
        Self(((u128::from(ms) << TAIL_BITS) | (tail & mask)).to_be_bytes())
    }

    /// Which of its tenant's sub-shards the job is in.
    #[must_use]
    pub fn sub_shard(&self) -> SubShard {
        let tail = u128::from_be_bytes(self.0);
        if tail & MARK_MASK != MARK {
            return SubShard::HOME;
        }
        u8::try_from(tail & SUB_SHARD_MASK).ok().and_then(SubShard::new).unwrap_or(SubShard::HOME)
    }

    /// The id with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, time first.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The instant the job was first set for.
    #[must_use]
    pub fn run_at(&self) -> Timestamp {
        let ms = u128::from_be_bytes(self.0) >> TAIL_BITS;
        Timestamp::from_ms(i64::try_from(ms).unwrap_or(RUN_AT_MS_MAX))
    }

    /// A number that spreads ids evenly: the low bits of the tail.
    #[must_use]
    pub fn spread(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        write_digits(f, u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a job id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a job id: job ids look like job_01JDQ5M8ZK0000000000000000")]
pub struct InvalidJobId;

impl FromStr for JobId {
    type Err = InvalidJobId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.strip_prefix(PREFIX).and_then(read_digits).ok_or(InvalidJobId)?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// Writes the 26 digits of an id.
pub(crate) fn write_digits(f: &mut fmt::Formatter<'_>, number: u128) -> fmt::Result {
    let mut text = [b'0'; DIGITS_COUNT];
    for (place, byte) in text.iter_mut().rev().enumerate() {
        let digit = usize::try_from((number >> (place * 5)) & 31).unwrap_or(0);
        *byte = DIGITS.get(digit).copied().unwrap_or(b'0');
    }
    f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
}

/// Reads what [`write_digits`] wrote, in either case.
pub(crate) fn read_digits(digits: &str) -> Option<u128> {
    if digits.len() != DIGITS_COUNT {
        return None;
    }
    let mut number: u128 = 0;
    for (place, byte) in digits.bytes().enumerate() {
        let digit = VALUES.get(usize::from(byte)).copied().filter(|digit| *digit != NO_DIGIT)?;
        // 26 digits hold 130 bits; the two that do not fit must be zero.
        if place == 0 && digit > 7 {
            return None;
        }
        number = (number << 5) | u128::from(digit);
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_survive_the_round_trip_and_sort_by_time(a in any::<u128>(), b in any::<u128>()) {
            let (a, b) = (JobId::from_bytes(a.to_be_bytes()), JobId::from_bytes(b.to_be_bytes()));
            prop_assert_eq!(a.to_string().parse::<JobId>(), Ok(a));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
            if a.run_at() < b.run_at() {
                prop_assert!(a < b);
            }
        }

        #[test]
        fn an_id_says_which_sub_shard_it_is_in(tail in any::<u128>(), number in 0_u8..16, ms in 0..=RUN_AT_MS_MAX) {
            let (at, sub_shard) = (Timestamp::from_ms(ms), SubShard::new(number).unwrap());
            let id = JobId::in_sub_shard(at, tail, sub_shard);
            prop_assert_eq!((id.run_at(), id.sub_shard()), (at, sub_shard));
            let marked = (tail & !(MARK_MASK | SUB_SHARD_MASK)) | MARK | u128::from(number);
            for tail in [tail, marked] {
                prop_assert_eq!(JobId::new(at, tail).sub_shard(), SubShard::HOME);
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
            drop(text.parse::<JobId>());
        }
    }

    #[test]
    fn an_id_carries_its_time() {
        let id = JobId::new(Timestamp::from_ms(1_796_118_896_000), 7);
        assert_eq!(id.run_at(), Timestamp::from_ms(1_796_118_896_000));
        assert_eq!(id.spread(), 7);
        assert!("job_8ZZZZZZZZZZZZZZZZZZZZZZZZZ".parse::<JobId>().is_err());
    }
}

//! Schedule ids: 128 random bits, written like a job's but with `sch_` in front.

use std::fmt;
use std::str::FromStr;

use crate::id::{read_digits, write_digits};

/// A schedule's id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleId([u8; 16]);

/// What stands before the digits.
const PREFIX: &str = "sch_";

impl ScheduleId {
    /// The id with these bytes. A new schedule's are random.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The id that is stored as its bytes, or as its text.
    #[must_use]
    pub fn from_bytes_or_text(stored: &[u8]) -> Option<Self> {
        match <[u8; 16]>::try_from(stored) {
            Ok(bytes) => Some(Self(bytes)),
            Err(_) => std::str::from_utf8(stored).ok()?.parse().ok(),
        }
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        write_digits(f, u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a schedule id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a schedule id: schedule ids look like sch_01JDQ5M8ZK0000000000000000")]
pub struct InvalidScheduleId;

impl FromStr for ScheduleId {
    type Err = InvalidScheduleId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.strip_prefix(PREFIX).and_then(read_digits).ok_or(InvalidScheduleId)?;
        Ok(Self(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_survive_the_round_trip(number in any::<u128>()) {
            let id = ScheduleId::from_bytes(number.to_be_bytes());
            prop_assert_eq!(id.to_string().parse::<ScheduleId>(), Ok(id));
            prop_assert_eq!(id.to_string().to_lowercase().parse::<ScheduleId>(), Ok(id));
        }
    }

    #[test]
    fn a_job_id_is_no_schedule_id() {
        assert!("job_01JDQ5M8ZK0000000000000000".parse::<ScheduleId>().is_err());
        assert!("sch_8ZZZZZZZZZZZZZZZZZZZZZZZZZ".parse::<ScheduleId>().is_err());
        assert!("sch_".parse::<ScheduleId>().is_err());
    }
}

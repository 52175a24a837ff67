//! Jobs whose rows cannot be read: damaged, or written by a later version. Where many are read, such a one is passed over, and
//! the log is told: it costs no other job anything, nobody changes it, and it is there again once it can be read.

use tidewheel_core::id::JobId;
use tidewheel_core::schedule::ScheduleId;
use tidewheel_store::Error;

use crate::fault::Trouble;

/// So many are told of one by one in a call; of those beyond, how many they are.
const TOLD_COUNT_MAX: usize = 20;

/// Tells that a row cannot be read, which concerns it alone, from all other trouble.
pub(crate) fn or_unreadable<T>(read: Result<T, Trouble>) -> Result<Result<T, String>, Trouble> {
    match read {
        Ok(read) => Ok(Ok(read)),
        Err(Trouble::Failed(Error::Corrupt(reason)) | Trouble::Own(Error::Corrupt(reason))) => {
            Ok(Err(reason))
        }
        Err(trouble) => Err(trouble),
    }
}

/// What the log was told of in one call.
pub(crate) struct Told {
    what: &'static str,
    count: usize,
}

impl Told {
    /// For a read that goes on without them.
    pub(crate) const fn of_reads() -> Self {
        Self { what: "a job cannot be read, and is passed over", count: 0 }
    }

    /// For orders, which are refused.
    pub(crate) const fn of_orders() -> Self {
        Self { what: "an order is refused: what it goes by cannot be read", count: 0 }
    }

    pub(crate) fn tell(&mut self, tenant: &str, id: JobId, reason: &str) {
        self.count += 1;
        if self.count <= TOLD_COUNT_MAX {
            tracing::error!(tenant, job_id = %id, reason, "{}", self.what);
        }
    }

    /// The same of a schedule; the reason names the job.
    pub(crate) fn tell_of_schedule(&mut self, tenant: &str, id: ScheduleId, reason: &str) {
        self.count += 1;
        if self.count <= TOLD_COUNT_MAX {
            tracing::error!(tenant, schedule = %id, reason, "{}", self.what);
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let left = self.count.saturating_sub(TOLD_COUNT_MAX);
        if left > 0 {
            tracing::error!(count = left, "the same is so for more: {}", self.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Unreadable;

    #[test]
    fn only_what_cannot_be_read_is_the_rows_own() {
        let unreadable: Result<(), Trouble> = Err(Unreadable::Version(9).into());
        assert!(matches!(or_unreadable(unreadable), Ok(Err(reason)) if reason.contains("version 9")));
        assert!(matches!(or_unreadable(Ok(7)), Ok(Ok(7))));
        let away = Trouble::Failed(Error::Unavailable("away".to_owned()));
        for trouble in [Trouble::Raced, away, Trouble::Own(Error::Closed)] {
            assert!(or_unreadable::<()>(Err(trouble)).is_err());
        }
    }
}

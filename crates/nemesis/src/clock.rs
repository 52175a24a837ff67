//! The observer's clock: everything that is seen is stamped with it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the wall clock shows, in milliseconds. It is the clock of the machine the database runs on, too.
#[expect(clippy::disallowed_methods, reason = "the one door to it here")]
#[must_use]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Now, on the clock that is never set.
#[expect(clippy::disallowed_methods, reason = "the one door to it here")]
#[must_use]
pub fn instant() -> Instant {
    Instant::now()
}

/// Waits: for processes that can only be asked again, or between two requests of a load.
#[expect(clippy::disallowed_methods, reason = "the one door to it here")]
pub fn pause(length: Duration) {
    std::thread::sleep(length);
}

/// Asks again until there is an answer, or the time is over.
pub fn until<T>(most: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let started = instant();
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if started.elapsed() >= most {
            return None;
        }
        pause(Duration::from_millis(20));
    }
}

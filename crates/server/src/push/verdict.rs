//! What an answer means for the job: the status decides, two headers refine it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{HeaderMap, RETRY_AFTER};
use http::{HeaderName, StatusCode};
use tidewheel_core::limits::{LEASE_MS_DEFAULT, LEASE_MS_MAX, LEASE_MS_MIN, RETRY_DELAY_MS_MAX};
use tidewheel_core::time::{Timestamp, parse_duration};

/// How a target that answers 202 says for how long it will be busy.
const LEASE: HeaderName = HeaderName::from_static("tidewheel-lease");

/// What came of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Any 2xx: the target did the work.
    Done,
    /// 202 with a `Tidewheel-Lease` header: the target works on it and will call back.
    Accepted {
        /// For how long the target may be silent, within the limits of a lease.
        lease: Duration,
    },
    /// 408, 425, 429, 5xx, or no answer at all: another attempt may do better.
    Retry {
        /// The wait the target asked for, bounded and never zero.
        after: Option<Duration>,
    },
    /// 3xx, 410 and any other 4xx: another attempt would be answered the same way.
    Dead,
    /// Nothing was sent: the target is not one a push may reach.
    Refused,
}

/// Judges the head of an answer. `now` turns a `Retry-After` date into a wait.
pub(super) fn judge(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Verdict {
    match status.as_u16() {
        202 => accepted_lease(headers).map_or(Verdict::Done, |lease| Verdict::Accepted { lease }),
        200..=299 => Verdict::Done,
        408 | 425 | 429 => Verdict::Retry { after: retry_after(headers, now) },
        300..=499 => Verdict::Dead,
        // 5xx, and numbers HTTP gives no meaning to: a broken server is one that may be mended.
        _ => Verdict::Retry { after: retry_after(headers, now) },
    }
}

/// A lease that cannot be read still says "I am working on it": taking it for success would lose the work if the target
/// then fails, so it gets the default lease.
fn accepted_lease(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(LEASE)?;
    let asked_ms = value.to_str().ok().and_then(|text| parse_duration(text).ok());
    let lease_ms = asked_ms.unwrap_or(LEASE_MS_DEFAULT).clamp(LEASE_MS_MIN, LEASE_MS_MAX);
    Some(Duration::from_millis(lease_ms.unsigned_abs()))
}

/// Reads seconds or an HTTP date. A wait that is over, or that cannot be read, is no wait.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // Too many digits to read is still a wish to wait long.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let at = httpdate::parse_http_date(text).ok()?;
        at.duration_since(wall_clock(now)?).ok()?
    };
    let bounded = wait.min(Duration::from_millis(RETRY_DELAY_MS_MAX.unsigned_abs()));
    (!bounded.is_zero()).then_some(bounded)
}

fn wall_clock(now: Timestamp) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(now.as_ms()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const NOW: Timestamp = Timestamp::from_ms(784_111_777_000);

    fn verdict(status: u16, header: Option<(&'static str, &str)>) -> Verdict {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        judge(StatusCode::from_u16(status).unwrap(), &headers, NOW)
    }

    fn retry(after_ms: u64) -> Verdict {
        Verdict::Retry { after: Some(Duration::from_millis(after_ms)) }
    }

    #[test]
    fn every_status_has_its_verdict() {
        for status in 100..1000 {
            let expected = match status {
                200..=299 => Verdict::Done,
                408 | 425 | 429 | 500..=599 => Verdict::Retry { after: None },
                300..=499 => Verdict::Dead,
                _ => Verdict::Retry { after: None },
            };
            assert_eq!(verdict(status, None), expected, "{status}");
        }
    }

    #[test]
    fn a_lease_counts_on_202_only_and_is_bounded() {
        let lease = |text: &str| {
            let verdict = verdict(202, Some(("tidewheel-lease", text)));
            let Verdict::Accepted { lease } = verdict else { panic!("{text}: {verdict:?}") };
            i64::try_from(lease.as_millis()).unwrap()
        };
        for (text, ms) in [("10m", 600_000), ("90", 90_000), ("PT90S", 90_000), ("1h30m", 5_400_000)] {
            assert_eq!(lease(text), ms, "{text}");
        }
        assert_eq!(lease("0s"), LEASE_MS_MIN);
        assert_eq!(lease("9999d"), LEASE_MS_MAX);
        for unreadable in ["", "soon", "-5s", "\u{fc}", "1h1h"] {
            assert_eq!(lease(unreadable), LEASE_MS_DEFAULT, "{unreadable}");
        }
        assert_eq!(verdict(200, Some(("tidewheel-lease", "10m"))), Verdict::Done);
    }

    #[test]
    fn retry_after_is_read_in_both_forms_and_bounded() {
        let after = |text: &str| verdict(429, Some(("retry-after", text)));
        assert_eq!(after("7"), retry(7_000));
        assert_eq!(after(" 7 "), retry(7_000));
        assert_eq!(after("Sun, 06 Nov 1994 08:50:37 GMT"), retry(60_000));
        assert_eq!(after("Sunday, 06-Nov-94 08:50:37 GMT"), retry(60_000));
        let most = retry(RETRY_DELAY_MS_MAX.unsigned_abs());
        assert_eq!(after("999999999"), most);
        assert_eq!(after("99999999999999999999999999"), most);
        assert_eq!(after("Sat, 06 Nov 2094 08:49:37 GMT"), most);
        for none in
            ["0", "", "-1", "1.5", "soon", "Sun, 06 Nov 1994 08:49:37 GMT", "Tue, 06 Nov 1990 08:49:37 GMT"]
        {
            assert_eq!(after(none), Verdict::Retry { after: None }, "{none}");
        }
        assert_eq!(verdict(503, Some(("retry-after", "5"))), retry(5_000));
        assert_eq!(verdict(404, Some(("retry-after", "5"))), Verdict::Dead);
    }
}

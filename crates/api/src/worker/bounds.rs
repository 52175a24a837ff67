//! What a server takes of what a handler came to. What goes beyond it is cut, or becomes a failure that says so, before it
//! is sent: an outcome that is refused would leave its job to be run again.

use std::time::Duration;

use tidewheel_core::limits::RETRY_DELAY_MS_MAX;

use super::failure::Failure;
use crate::wire::worker_request::{check_small_json, error_excerpt};

/// The longest a job is put off.
const WAIT_MAX: Duration = Duration::from_millis(RETRY_DELAY_MS_MAX.unsigned_abs());

/// What is kept of an error: its beginning.
pub(super) fn excerpt(mut error: String) -> String {
    error.truncate(error_excerpt(&error).len());
    // It may wait for a while to be reported, and may have been megabytes.
    error.shrink_to_fit();
    error
}

/// How long a job is put off.
pub(super) fn wait(wanted: Duration) -> Option<prost_types::Duration> {
    prost_types::Duration::try_from(wanted.min(WAIT_MAX)).ok()
}

/// Checks a result or a progress, as the server will.
///
/// # Errors
/// [`Failure::Final`], as another attempt would come to the same.
pub(super) fn check_json(what: &str, json: &[u8]) -> Result<(), Failure> {
    match check_small_json(json) {
        Ok(_) => Ok(()),
        Err((_, detail)) => Err(Failure::Final(format!("{what} cannot be kept: {detail}"))),
    }
}

#[cfg(test)]
mod tests {
    use tidewheel_core::limits::{EXCERPT_BYTES_MAX, PAYLOAD_DEPTH_MAX, RESULT_BYTES_MAX};

    use super::*;

    #[test]
    fn an_error_is_cut_between_two_characters() {
        let long = excerpt("é".repeat(4 << 20));
        assert_eq!(long.len(), EXCERPT_BYTES_MAX);
        let odd = excerpt(format!("x{}", "é".repeat(EXCERPT_BYTES_MAX)));
        assert_eq!(odd.len(), EXCERPT_BYTES_MAX - 1, "half a character is none");
        assert_eq!(excerpt("short".to_owned()), "short");
    }

    #[test]
    fn a_wait_is_at_most_as_long_as_a_server_takes() {
        let seconds = |wanted| wait(wanted).map(|it| it.seconds);
        assert_eq!(seconds(Duration::from_secs(90)), Some(90));
        assert_eq!(seconds(Duration::from_secs(40 * 86_400)), Some(7 * 86_400));
        assert_eq!(seconds(Duration::MAX), Some(7 * 86_400));
    }

    #[test]
    fn json_is_checked_as_the_server_checks_it() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        let texted = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2)).into_bytes();
        for good in [Vec::new(), b"null".to_vec(), nested(PAYLOAD_DEPTH_MAX), texted(RESULT_BYTES_MAX)] {
            assert_eq!(check_json("it", &good), Ok(()));
        }
        for (bad, why) in [
            (nested(PAYLOAD_DEPTH_MAX + 1), "nests deeper"),
            (texted(RESULT_BYTES_MAX + 1), "8193 bytes"),
            (b"{".to_vec(), "not JSON"),
            (vec![0xff], "not UTF-8"),
        ] {
            let refused = check_json("it", &bad);
            assert!(
                matches!(&refused, Err(Failure::Final(text)) if text.contains(why)),
                "{refused:?} does not say {why:?}"
            );
        }
    }
}

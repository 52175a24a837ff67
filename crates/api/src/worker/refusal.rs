//! Outcomes that the server refuses: either the attempt is over, or what was said of it cannot be meant.

use super::bounds;
use crate::proto::v1::{Failed, OutcomeAnswer, outcome};
use crate::wire::fault::Code;

/// What to report instead, where what was said is at fault and not the attempt: that it failed for good, and why. Another
/// attempt would most likely come to the same.
pub(super) fn instead(answer: &OutcomeAnswer) -> Option<outcome::Result> {
    if !is_of_content(&answer.code) {
        return None;
    }
    let error = format!("the server refused what came of it: {} ({})", answer.detail, answer.code);
    Some(outcome::Result::Failed(Failed { error: bounds::excerpt(error), r#final: true, retry_after: None }))
}

/// Whether something else may be taken. Of a code that is not known here, nothing can be said.
fn is_of_content(code: &str) -> bool {
    Code::ALL.iter().any(|known| known.as_str() == code && matches!(known.status(), 400 | 413 | 422))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_said_can_be_said_otherwise() {
        let failure = |code: &str| {
            let detail = "it nests too deep".to_owned();
            instead(&OutcomeAnswer { code: code.to_owned(), detail, ..OutcomeAnswer::default() })
        };
        for code in ["invalid_value", "payload_too_large", "payload_too_deep", "malformed_json"] {
            let Some(outcome::Result::Failed(failed)) = failure(code) else { panic!("{code} is not told") };
            assert!(failed.r#final && failed.error.contains("it nests too deep"), "{failed:?}");
        }
        for code in ["accepted", "already", "stale_token", "job_not_found", "store_unavailable", "unheard_of"]
        {
            assert_eq!(failure(code), None, "{code}");
        }
    }
}

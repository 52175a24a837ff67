//! Every error as a gRPC status: the words of the HTTP API, its stable code in the trailer `tidewheel-code`, and the whole
//! problem document in `tidewheel-problem-bin`.

use tidewheel_api::wire::fault::Code;
use tonic::metadata::{BinaryMetadataValue, MetadataMap, MetadataValue};
use tonic::{Code as GrpcCode, Status};

use crate::http::Problem;

/// Where the stable code is.
const CODE_KEY: &str = "tidewheel-code";
/// Where the problem document is.
const PROBLEM_KEY: &str = "tidewheel-problem-bin";
/// When to come back, in seconds.
const RETRY_AFTER_KEY: &str = "retry-after";
/// A problem document larger than this would not fit into trailers; its code and detail always do.
const PROBLEM_BYTES_MAX: usize = 4_096;
/// Characters kept of the words.
const DETAIL_CHARS_MAX: usize = 1_024;

impl From<Problem> for Status {
    fn from(problem: Problem) -> Self {
        let document = problem.document();
        let refused =
            refusal(problem.code().as_str(), problem.status().as_u16(), problem.detail(), &document);
        retry_after(refused, problem.retry_after_s())
    }
}

/// An error of the HTTP API.
pub(super) fn refusal(code: &str, http_status: u16, detail: &str, document: &[u8]) -> Status {
    let mut metadata = MetadataMap::new();
    if let Ok(value) = MetadataValue::try_from(code) {
        metadata.insert(CODE_KEY, value);
    }
    if document.len() <= PROBLEM_BYTES_MAX {
        metadata.insert_bin(PROBLEM_KEY, BinaryMetadataValue::from_bytes(document));
    }
    let detail: String = detail.chars().take(DETAIL_CHARS_MAX).collect();
    Status::with_metadata(grpc_code(code, http_status), detail, metadata)
}

/// Says when to come back, in seconds.
pub(super) fn retry_after(mut refused: Status, seconds: Option<u32>) -> Status {
    if let Some(seconds) = seconds {
        refused.metadata_mut().insert(RETRY_AFTER_KEY, MetadataValue::from(seconds));
    }
    refused
}

/// An error of this API alone.
pub(super) fn status(code: Code, detail: impl Into<String>) -> Status {
    Problem::new(code, detail).into()
}

fn grpc_code(code: &str, http_status: u16) -> GrpcCode {
    match http_status {
        401 => GrpcCode::Unauthenticated,
        403 => GrpcCode::PermissionDenied,
        404 => GrpcCode::NotFound,
        405 | 415 => GrpcCode::Unimplemented,
        408 => GrpcCode::DeadlineExceeded,
        409 if code == Code::IdempotencyConflict.as_str() || code == Code::NameTaken.as_str() => {
            GrpcCode::AlreadyExists
        }
        409 => GrpcCode::FailedPrecondition,
        412 => GrpcCode::Aborted,
        429 => GrpcCode::ResourceExhausted,
        503 => GrpcCode::Unavailable,
        400..=499 => GrpcCode::InvalidArgument,
        _ => GrpcCode::Internal,
    }
}

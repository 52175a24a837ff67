//! The messages and services of the gRPC API, made from `proto/` and kept in `generated/`, so that a build
//! needs no compiler of protocol buffers; a test compares them (`tests/it/generated.rs`).

pub mod codec;
pub mod job_batch;
mod json;

/// `tidewheel.v1`: workers, jobs and schedules.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    clippy::wildcard_enum_match_arm,
    reason = "generated"
)]
pub mod v1 {
    include!("generated/tidewheel.v1.rs");
}

/// `database.scheduler.v1`: claiming and reporting in two calls.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    clippy::wildcard_enum_match_arm,
    reason = "generated"
)]
pub mod dispatcher {
    include!("generated/database.scheduler.v1.rs");
}

/// Descriptors of every file, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

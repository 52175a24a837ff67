//! The messages and services of the gRPC API, made from `proto/` when the crate is built.

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
    tonic::include_proto!("tidewheel.v1");
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
    tonic::include_proto!("database.scheduler.v1");
}

/// Descriptors of every file, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

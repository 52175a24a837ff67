//! Makes the gRPC messages and services from `proto/`, without `protoc`.

use std::path::Path;

use prost::Message as _;

/// Every service, one file each.
const PROTOS: [&str; 6] = [
    "tidewheel/v1/worker.proto",
    "tidewheel/v1/jobs.proto",
    "tidewheel/v1/schedules.proto",
    "tidewheel/v1/dead_letters.proto",
    "tidewheel/v1/calendars.proto",
    "database/scheduler/v1/scheduler.proto",
];

/// Messages that are parts of requests of the HTTP API too. What is left out of them is left out of the JSON.
const ASKED: [&str; 14] = [
    "NewJob",
    "Target",
    "Retry",
    "RetryJobRequest",
    "PatchJobRequest",
    "ScheduleSpec",
    "DstRule",
    "Exclude",
    "BackfillScheduleRequest",
    "PreviewScheduleRequest",
    "JobFilter",
    "CancelJobsRequest",
    "RetryJobsRequest",
    "ReplayDeadLetterRequest",
];

/// Messages that are answers of the HTTP API too, or parts of them.
const ANSWERED: [&str; 23] = [
    "SubmitResponse",
    "SubmitBatchAnswer",
    "SubmitAnswer",
    "Problem",
    "Job",
    "ListJobsResponse",
    "CountJobsResponse",
    "JobExplanation",
    "ListAttemptsResponse",
    "JobAttempt",
    "Schedule",
    "ListSchedulesResponse",
    "TriggerScheduleResponse",
    "BackfillScheduleResponse",
    "Fires",
    "Fire",
    "Firing",
    "BulkAnswer",
    "BulkItem",
    "CreateSchedulesResponse",
    "CreatedSchedule",
    "Calendar",
    "ListCalendarsResponse",
];

const TIMES: [&str; 24] = [
    "run_at",
    "expires_at",
    "created_at",
    "started_at",
    "finished_at",
    "lease_until",
    "fire_at",
    "expected_start",
    "now",
    "start_at",
    "end_at",
    "next_fire_at",
    "next_run_at",
    "last_fire_at",
    "updated_at",
    "last_run_at",
    "next_from",
    "coalesced_into",
    "decided_at",
    "BackfillScheduleRequest.from",
    "BackfillScheduleRequest.to",
    "PreviewScheduleRequest.from",
    "JobFilter.from",
    "JobFilter.to",
];
const DURATIONS: [&str; 8] = ["delay", "timeout", "base", "max", "every", "window", "misfire_grace", "lag"];

/// Makes the code of the files in `protos`, and their descriptors, in the folder `out`.
pub(crate) fn run(protos: &Path, out: &Path) {
    let descriptors = protox::compile(PROTOS, [protos]).unwrap_or_else(|fault| panic!("{fault:?}"));
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec()).unwrap();
    let mut config = tonic_prost_build::configure()
        .out_dir(out)
        .bytes(".")
        .codec_path("crate::proto::codec::LeanCodec")
        .extern_path(".tidewheel.v1.JobBatch", "crate::proto::job_batch::JobBatch");
    let both = ASKED.iter().chain(&ANSWERED).chain(&["ListFiringsResponse"]);
    for message in both {
        let path = format!(".tidewheel.v1.{message}");
        config = config
            .type_attribute(&path, "#[derive(serde::Serialize, serde::Deserialize)] #[serde(default)]")
            .field_attribute(&path, r#"#[serde(skip_serializing_if = "crate::proto::json::is_default")]"#);
        let field = |name: &str| match name.split_once('.') {
            Some((of, name)) if of == *message => Some(format!("{path}.{name}")),
            Some(_) => None,
            None => Some(format!("{path}.{name}")),
        };
        for name in TIMES.iter().filter_map(|name| field(name)) {
            config = config.field_attribute(name, r#"#[serde(with = "crate::proto::json::time")]"#);
        }
        for name in DURATIONS.iter().filter_map(|name| field(name)) {
            config = config.field_attribute(name, r#"#[serde(with = "crate::proto::json::duration")]"#);
        }
        config = config
            .field_attribute(format!("{path}.payload"), r#"#[serde(with = "crate::proto::json::raw")]"#)
            .field_attribute(
                format!("{path}.result"),
                r#"#[serde(with = "crate::proto::json::raw_or_null")]"#,
            )
            .field_attribute(
                format!("{path}.progress"),
                r#"#[serde(with = "crate::proto::json::raw_or_null")]"#,
            );
    }
    // The id is a part of the address.
    for request in
        ["RetryJobRequest", "PatchJobRequest", "BackfillScheduleRequest", "ReplayDeadLetterRequest"]
    {
        config = config.field_attribute(format!(".tidewheel.v1.{request}.id"), "#[serde(skip_serializing)]");
    }
    config = config.field_attribute(".tidewheel.v1.JobFilter.states", r#"#[serde(rename = "state")]"#);
    config.compile_fds(descriptors).expect("the messages can be made");
}

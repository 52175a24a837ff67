//! Every operation on job types, one row each.

use tidewheel_api::wire::fault::Code;

use super::paths::{PLAIN, READ};
use super::{Body, Operation};

const TYPES: &str = "types";

const PAGE: &[&str] = &["Tenant", "Limit", "Cursor"];
const ONE: &[&str] = &["Tenant", "TypeName"];
const CHANGE: &[&str] = &["Tenant", "TypeName", "IfMatch", "CallKey"];

const READ_ONE: &[Code] = &[Code::TypeNotFound, Code::StoreUnavailable];
const DELETE: &[Code] = &[
    Code::MalformedRequest,
    Code::CrossSite,
    Code::TypeNotFound,
    Code::IdempotencyConflict,
    Code::StaleVersion,
    Code::StoreUnavailable,
];
const PUT: &[Code] = &[
    Code::MalformedJson,
    Code::CrossSite,
    Code::TypeNotFound,
    Code::RequestTimeout,
    Code::IdempotencyConflict,
    Code::LimitReached,
    Code::StaleVersion,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidSchema,
    Code::StoreUnavailable,
];

const PUT_NOTE: &str = "\
Replaces what is registered; what is left out goes back to its default. From then on payloads of jobs and schedules that are \
submitted with the type must match the schema (422 `invalid_payload`, with pointers into the payload), only the submitters \
may submit it (403), and the defaults stand in for what a request leaves out. What was taken in before stays as it is. A \
repeat under its idempotency key is a 404 if the type was forgotten since.\n\n\
A schema is JSON Schema 2020-12 (2019-09 and draft 7 if `$schema` says so). References stay within it; it may not refer to \
itself. Patterns are matched in linear time: no lookaround, no backreferences. `unevaluatedProperties`, \
`unevaluatedItems` and `$dynamicRef` are refused. Formats are checked.";

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        path: "/v1/types",
        tag: TYPES,
        id: "listTypes",
        summary: "List the job types that are registered, by name",
        parameters: PAGE,
        answers: &[(200, "A page.", Some("JobTypePage"))],
        problems: READ,
        ..PLAIN
    },
    Operation {
        path: "/v1/types/{type}",
        tag: TYPES,
        id: "getType",
        summary: "What is registered for a job type",
        parameters: ONE,
        answers: &[(200, "What is registered. `ETag` is its version.", Some("JobType"))],
        problems: READ_ONE,
        ..PLAIN
    },
    Operation {
        method: "put",
        path: "/v1/types/{type}",
        tag: TYPES,
        id: "putType",
        summary: "Register a job type: its schema, who may submit it, its defaults",
        description: PUT_NOTE,
        parameters: CHANGE,
        body: Body::Required("NewJobType"),
        answers: &[
            (200, "Replaced. `ETag` is its version.", Some("JobType")),
            (201, "Registered. `ETag` is its version.", Some("JobType")),
        ],
        problems: PUT,
    },
    Operation {
        method: "delete",
        path: "/v1/types/{type}",
        tag: TYPES,
        id: "deleteType",
        summary: "Forget what is registered for a job type",
        description: "Jobs of the type are then submitted as those of any other.",
        parameters: CHANGE,
        answers: &[(204, "Nothing is registered any more.", None)],
        problems: DELETE,
        ..PLAIN
    },
];

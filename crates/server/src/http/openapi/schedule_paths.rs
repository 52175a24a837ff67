//! Every operation on schedules and calendars, one row each.

use tidewheel_api::wire::fault::Code;

use super::paths::{PLAIN, READ, SUBMIT, WRITE, WRITE_MANY};
use super::{Body, Operation};

const SCHEDULES: &str = "schedules";

const ONE: &[&str] = &["Tenant", "ScheduleId"];
const CHANGE: &[&str] = &["Tenant", "ScheduleId", "IfMatch", "CallKey"];

const READ_ONE: &[Code] = &[Code::InvalidParameter, Code::ScheduleNotFound, Code::StoreUnavailable];
const CHANGE_ONE: &[Code] = &[
    Code::MalformedJson,
    Code::CrossSite,
    Code::ScheduleNotFound,
    Code::RequestTimeout,
    Code::NameTaken,
    Code::StaleVersion,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidRequest,
    Code::StoreUnavailable,
];

/// A change of one schedule that answers with the schedule.
const ON_ONE: Operation = Operation {
    method: "post",
    tag: SCHEDULES,
    parameters: CHANGE,
    answers: &[(200, "The schedule as it is now. `ETag` is its version.", Some("Schedule"))],
    problems: CHANGE_ONE,
    ..PLAIN
};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        method: "post",
        path: "/v1/schedules",
        tag: SCHEDULES,
        id: "createSchedule",
        summary: "Create a schedule",
        description: "Answered once the schedule and its first occurrence are on disk. With an idempotency key, the same \
                      request again within 24 h is answered with the first schedule, and a different one is a conflict.",
        parameters: &["Tenant", "IdempotencyKey"],
        body: Body::Required("NewSchedule"),
        answers: &[
            (200, "The key was used by the same request: the first schedule.", Some("Schedule")),
            (201, "Created.", Some("Schedule")),
        ],
        problems: SUBMIT,
    },
    Operation {
        method: "post",
        path: "/v1/schedules/batch",
        tag: SCHEDULES,
        id: "createSchedules",
        summary: "Create up to 10,000 schedules",
        description: "All or none are created, unless `partial=true`: what the call has made is taken back if a name or a \
                      key turns out to be taken. Pointers to faults count schedules from 0. With `partial=true` each item \
                      of `schedules` is what became of one: its id, or `error`; if none was created the status is 200.",
        parameters: &["Tenant", "IdempotencyKey", "Partial"],
        body: Body::Batch { shape: "ScheduleBatch", item: "NewSchedule" },
        answers: &[
            (200, "With `partial=true`: none was created.", Some("CreatedSchedules")),
            (201, "Created, in the order sent.", Some("CreatedSchedules")),
        ],
        problems: SUBMIT,
    },
    Operation {
        method: "post",
        path: "/v1/schedules/preview",
        tag: SCHEDULES,
        id: "previewSchedule",
        summary: "Say when a schedule would fire",
        description: "Nothing is created, and no minimum interval applies unless `limits=true`. An impossible expression is \
                      `422 invalid_cron`, an unknown zone `422 invalid_timezone`. `run_at` is where in its window the \
                      `schedule` that is named would start; without one it is the beginning of the window, for the place in \
                      it is the schedule's own.",
        parameters: &["Tenant", "Limits"],
        body: Body::Required("Preview"),
        answers: &[(200, "The fires to come.", Some("Fires"))],
        problems: WRITE,
    },
    Operation {
        path: "/v1/schedules",
        tag: SCHEDULES,
        id: "listSchedules",
        summary: "List schedules",
        description: "In the order of their ids. Pages are stable while schedules change.",
        parameters: &[
            "Tenant",
            "ScheduleState",
            "OfType",
            "OfName",
            "OfCalendar",
            "Limit",
            "Cursor",
            "SchedulePayload",
        ],
        answers: &[(200, "A page.", Some("SchedulePage"))],
        problems: READ,
        ..PLAIN
    },
    Operation {
        path: "/v1/schedules/{id}",
        tag: SCHEDULES,
        id: "getSchedule",
        summary: "Get a schedule",
        parameters: ONE,
        answers: &[(200, "The schedule. `ETag` is its version.", Some("Schedule"))],
        problems: READ_ONE,
        ..PLAIN
    },
    Operation {
        method: "patch",
        path: "/v1/schedules/{id}",
        id: "changeSchedule",
        summary: "Change a schedule",
        description: "What is left out stays; a field that is `null` goes back to its default; objects are replaced as a \
                      whole. Instants up to the change belong to what the schedule was, later ones to what it is. With \
                      `If-Match`, a schedule that was changed meanwhile is `412 stale_version`. The key of the call is the one in \
                      the header; `idempotency_key` is the schedule's.",
        body: Body::Required("SchedulePatch"),
        ..ON_ONE
    },
    Operation {
        method: "delete",
        path: "/v1/schedules/{id}",
        id: "deleteSchedule",
        summary: "Delete a schedule",
        description: "Its ledger goes with it, and so does the occurrence that waits. Jobs that have started go on, and so do those made \
                      by hand: by a trigger or a backfill.",
        answers: &[(204, "It is gone.", None)],
        ..ON_ONE
    },
    Operation {
        method: "put",
        path: "/v1/schedules/by-name/{name}",
        tag: SCHEDULES,
        id: "putSchedule",
        summary: "Create the schedule of that name, or make it what the body says",
        description: "The same body again changes nothing. A schedule that was paused stays so unless `paused` says \
                      otherwise. `If-None-Match: *` only creates. The key of the call is the one in the header; \
                      `idempotency_key` is the schedule's.",
        parameters: &["Tenant", "Name", "IfMatch", "CallKey"],
        body: Body::Required("NewSchedule"),
        answers: &[
            (200, "The schedule as it is now.", Some("Schedule")),
            (201, "Created.", Some("Schedule")),
        ],
        problems: CHANGE_ONE,
    },
    Operation {
        path: "/v1/schedules/{id}/pause",
        id: "pauseSchedule",
        summary: "Pause a schedule",
        description: "What was due and had not started does not start. Pausing again changes nothing.",
        body: Body::Optional("KeyOnly"),
        ..ON_ONE
    },
    Operation {
        path: "/v1/schedules/{id}/resume",
        id: "resumeSchedule",
        summary: "Let a paused schedule go on",
        description: "What passed meanwhile is skipped.",
        body: Body::Optional("KeyOnly"),
        ..ON_ONE
    },
    Operation {
        path: "/v1/schedules/{id}/trigger",
        id: "triggerSchedule",
        summary: "Run a schedule's job now",
        description: "Outside the chain, whatever the schedule's state and overlap policy; its next fire stays where it is. \
                      Under the same key it is the same job.",
        body: Body::Optional("KeyOnly"),
        answers: &[(201, "The job.", Some("Triggered"))],
        ..ON_ONE
    },
    Operation {
        path: "/v1/schedules/{id}/backfill",
        id: "backfillSchedule",
        summary: "Make up for a stretch of instants",
        description: "Makes a job with `catch_up` for every nominal instant from `from` to `to`, by the rule as it is now, \
                      whatever became of them before. At most 10,000 in one call; while there are more, `next_from` says \
                      where the next call goes on. Asked for again, an instant that was made up for is not run again.",
        parameters: &["Tenant", "ScheduleId", "CallKey"],
        body: Body::Required("Backfill"),
        answers: &[(200, "How many.", Some("Backfilled"))],
        ..ON_ONE
    },
    Operation {
        path: "/v1/schedules/{id}/firings",
        tag: SCHEDULES,
        id: "listFirings",
        summary: "List what became of each instant, newest first",
        description: "Every nominal instant ends in exactly one of `fired`, `coalesced`, `skipped` and `missed`; runs asked \
                      for by hand are `triggered` and `backfilled`.",
        parameters: &["Tenant", "ScheduleId", "Limit", "Cursor"],
        answers: &[(200, "A page.", Some("FiringPage"))],
        problems: READ_ONE,
        ..PLAIN
    },
    Operation {
        path: "/v1/schedules/{id}/next",
        tag: SCHEDULES,
        id: "nextFires",
        summary: "Say when a schedule fires next",
        description: "With the effective time of each fire, its place in the window included. A schedule that is paused or \
                      has ended has none.",
        parameters: &["Tenant", "ScheduleId", "Count"],
        answers: &[(200, "The fires to come.", Some("Fires"))],
        problems: READ_ONE,
        ..PLAIN
    },
    Operation {
        path: "/v1/calendars",
        tag: SCHEDULES,
        id: "listCalendars",
        summary: "List calendars by name",
        parameters: &["Tenant", "Limit", "Cursor"],
        answers: &[(200, "A page.", Some("CalendarPage"))],
        problems: READ,
        ..PLAIN
    },
    Operation {
        path: "/v1/calendars/{name}",
        tag: SCHEDULES,
        id: "getCalendar",
        summary: "Get a calendar",
        parameters: &["Tenant", "Name"],
        answers: &[(200, "The calendar.", Some("Calendar"))],
        problems: &[Code::CalendarNotFound, Code::StoreUnavailable],
        ..PLAIN
    },
    Operation {
        method: "put",
        path: "/v1/calendars/{name}",
        tag: SCHEDULES,
        id: "putCalendar",
        summary: "Create a calendar, or give it other dates",
        description: "The schedules that name it go by the new dates from now on.",
        parameters: &["Tenant", "Name", "CallKey"],
        body: Body::Required("NewCalendar"),
        answers: &[
            (200, "The calendar as it is now.", Some("Calendar")),
            (201, "Created.", Some("Calendar")),
        ],
        problems: WRITE_MANY,
    },
    Operation {
        method: "delete",
        path: "/v1/calendars/{name}",
        tag: SCHEDULES,
        id: "deleteCalendar",
        summary: "Delete a calendar",
        description: "Refused while a schedule names it.",
        parameters: &["Tenant", "Name", "CallKey"],
        answers: &[(204, "It is gone.", None)],
        problems: &[Code::CrossSite, Code::CalendarNotFound, Code::CalendarInUse, Code::StoreUnavailable],
        ..PLAIN
    },
];

//! The API's own description: OpenAPI 3.1, built from one table of operations (`paths`) and the shapes they use
//! (`shapes`). Tests hold it to the routes and to a golden file.

mod admin_paths;
mod admin_shapes;
mod audit_paths;
mod audit_shapes;
mod cluster_shapes;
mod overview_shapes;
mod parameters;
mod paths;
mod schedule_paths;
mod schedule_shapes;
mod session_paths;
mod shapes;
mod target_shapes;
mod type_paths;
mod type_shapes;

use serde_json::{Map, Value, json};
use tidewheel_api::wire::fault::Code;

use crate::access::{COOKIE_NAME, Need, need_of};

/// One operation.
struct Operation {
    method: &'static str,
    path: &'static str,
    tag: &'static str,
    id: &'static str,
    summary: &'static str,
    description: &'static str,
    /// Names of parameters in `parameters`.
    parameters: &'static [&'static str],
    body: Body,
    /// Status, what it means, and the shape of its body.
    answers: &'static [(u16, &'static str, Option<&'static str>)],
    /// What else it may be answered with.
    problems: &'static [Code],
}

/// What an operation reads.
#[derive(Clone, Copy)]
enum Body {
    None,
    Optional(&'static str),
    Required(&'static str),
    /// A JSON array, an object around one, or one item per line.
    Batch {
        shape: &'static str,
        item: &'static str,
    },
}

/// The whole document.
pub(super) fn document() -> Value {
    let mut paths = Map::new();
    let operations = paths::OPERATIONS.iter().chain(schedule_paths::OPERATIONS);
    let operations = operations.chain(admin_paths::OPERATIONS).chain(audit_paths::OPERATIONS);
    for operation in operations.chain(session_paths::OPERATIONS).chain(type_paths::OPERATIONS) {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(operation.method.to_owned(), operation.to_json());
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidewheel",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Runs work later: now, at an instant, after a delay, again and again.",
            "description": CONVENTIONS,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This server. Everything under /v1 answers under /api/v1 too."}],
        "tags": [
            {"name": "jobs", "description": "Submitting, watching and changing jobs."},
            {"name": "schedules", "description": "Jobs that recur: cron expressions and intervals, with explicit time semantics."},
            {"name": "workers", "description": "Pulling jobs from queues, and reporting on attempts."},
            {"name": "dead letters", "description": "Jobs that were given up."},
            {"name": "types", "description": "What is registered for job types: schemas of payloads, submitters, defaults."},
            {"name": "tenants and keys", "description": "Who may do what, and how much of it."},
            {"name": "audit", "description": "Who did what, and what became of jobs."},
            {"name": "server", "description": "The server itself."},
        ],
        "paths": paths,
        "components": {"schemas": shapes::all(), "parameters": parameters::all(), "responses": responses(), "securitySchemes": {
            "key": {"type": "http", "scheme": "bearer", "description": "A key, `twk_…`. Not asked for by a server that runs without keys."},
            "session": {"type": "apiKey", "in": "cookie", "name": COOKIE_NAME, "description": "What `POST /v1/session` sets, for the web pages. Changes also need the session's token, in the header `Tidewheel-CSRF`."},
        }},
    })
}

const CONVENTIONS: &str = "\
Times are RFC 3339 in UTC with milliseconds. Durations are texts such as `90s`, `5m`, `1h30m` or `PT90S`, or numbers of \
seconds; they are written in the first form. Unknown fields and parameters are refused, naming the nearest known one. A \
field that is `null` counts as left out, a payload excepted.\n\n\
Errors are problem documents (RFC 9457) with a stable `code`; `errors` says where in the body each fault is, as a JSON \
pointer. 400 is malformed, 422 well-formed but not valid.\n\n\
A key belongs to a tenant and acts for it; an admin's key acts for any that the header `Tidewheel-Tenant` names. What belongs \
to another tenant looks as if it were not there. A server without keys is open to its own machine: the header names \
any tenant, `default` without it.\n\n`ready` is derived: a job that waits and is due is \
shown as `ready`, and counted under the state it is stored in.";

impl Operation {
    fn to_json(&self) -> Value {
        let mut responses = Map::new();
        for (status, description, shape) in self.answers {
            let mut response = json!({"description": description});
            if let (Some(shape), Some(response)) = (shape, response.as_object_mut()) {
                response.insert("content".to_owned(), content(shape));
            }
            responses.insert(status.to_string(), response);
        }
        let is_open = need_of(&format!("{} {}", self.method, self.path)) == Some(Need::Nothing);
        let for_keys: &[Code] =
            if is_open { &[] } else { &[Code::Unauthorized, Code::Forbidden, Code::TooManyWrongKeys] };
        for code in self.problems.iter().chain(for_keys) {
            let status = code.status().to_string();
            let name = format!("Problem{status}");
            responses
                .entry(status)
                .or_insert_with(|| json!({"$ref": format!("#/components/responses/{name}")}));
        }
        let mut operation = json!({
            "tags": [self.tag],
            "operationId": self.id,
            "summary": self.summary,
            "responses": responses,
        });
        if let Some(operation) = operation.as_object_mut() {
            if !is_open {
                operation.insert("security".to_owned(), json!([{"key": []}, {"session": []}]));
            }
            if !self.description.is_empty() {
                operation.insert("description".to_owned(), self.description.into());
            }
            if !self.parameters.is_empty() {
                let names = self.parameters.iter();
                let refs = names.map(|name| json!({"$ref": format!("#/components/parameters/{name}")}));
                operation.insert("parameters".to_owned(), refs.collect());
            }
            if let Some(body) = self.body.to_json() {
                operation.insert("requestBody".to_owned(), body);
            }
        }
        operation
    }
}

impl Body {
    fn to_json(self) -> Option<Value> {
        match self {
            Self::None => None,
            Self::Optional(shape) => Some(json!({"required": false, "content": content(shape)})),
            Self::Required(shape) => Some(json!({"required": true, "content": content(shape)})),
            Self::Batch { shape, item } => Some(json!({"required": true, "content": {
                "application/json": {"schema": reference(shape)},
                "application/x-ndjson": {
                    "schema": {"type": "string", "description": format!("One item (`{item}`) per line; blank lines are skipped.")},
                },
            }})),
        }
    }
}

/// Bodies by their type. Shapes with a dot are types of their own.
fn content(shape: &str) -> Value {
    match shape {
        ".metrics" => json!({"application/openmetrics-text": {"schema": {"type": "string"}}}),
        ".html" => json!({"text/html": {"schema": {"type": "string"}}}),
        ".any" => json!({"application/json": {"schema": {"type": "object"}}}),
        shape => json!({"application/json": {"schema": reference(shape)}}),
    }
}

fn reference(shape: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{shape}")})
}

/// One response for each status an error can have, naming the codes it stands for.
fn responses() -> Value {
    let mut responses = Map::new();
    for code in Code::ALL {
        let name = format!("Problem{}", code.status());
        if responses.contains_key(&name) {
            continue;
        }
        let alike = Code::ALL.iter().filter(|other| other.status() == code.status());
        let names: Vec<_> = alike.map(|code| format!("`{}`", code.as_str())).collect();
        let mut response = json!({
            "description": format!("A problem: {}.", names.join(", ")),
            "content": {"application/problem+json": {"schema": reference("Problem")}},
        });
        if matches!(code.status(), 429 | 503)
            && let Some(response) = response.as_object_mut()
        {
            let header = json!({"description": "Seconds to wait.", "schema": {"type": "integer"}});
            response.insert("headers".to_owned(), json!({"Retry-After": header}));
        }
        responses.insert(name, response);
    }
    Value::Object(responses)
}

#[cfg(test)]
mod tests;

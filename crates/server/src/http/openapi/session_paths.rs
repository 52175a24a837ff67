//! Signing in and out, and who one is: the operations and their shapes.

use serde_json::{Value, json};
use tidewheel_api::wire::fault::Code;
use tidewheel_api::wire::key_request::ROLES;

use super::paths::{PLAIN, TENANT};
use super::shapes::{described, keyed, open, or_null};
use super::{Body, Operation, reference};

const ADMIN: &str = "tenants and keys";

const SIGN_IN: &[Code] = &[
    Code::MalformedJson,
    Code::Unauthorized,
    Code::CrossSite,
    Code::RequestTimeout,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidRequest,
    Code::TooManyWrongKeys,
];
const SIGN_OUT: &[Code] = &[Code::CrossSite, Code::StoreUnavailable];

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        method: "post",
        path: "/v1/session",
        tag: ADMIN,
        id: "signIn",
        summary: "Sign in to the web pages",
        description: "Takes a key, as `Authorization: Bearer twk_…` or in the body, and sets a cookie that no script can read. \
                      It holds at every node, for twelve hours, until it is ended, and no longer than the key. Changes made by it \
                      need the header `Tidewheel-CSRF` with the session's token.",
        body: Body::Optional("NewSession"),
        answers: &[(201, "Who is signed in.", Some("Me"))],
        problems: SIGN_IN,
        ..PLAIN
    },
    Operation {
        method: "delete",
        path: "/v1/session",
        tag: ADMIN,
        id: "signOut",
        summary: "Sign out of the web pages",
        description: "Ends the session of the cookie, which then holds nowhere any more. Without one, nothing happens.",
        answers: &[(204, "Nobody is signed in.", None)],
        problems: SIGN_OUT,
        ..PLAIN
    },
    Operation {
        path: "/v1/me",
        tag: ADMIN,
        id: "whoAmI",
        summary: "Who calls, and what they may do",
        parameters: TENANT,
        answers: &[(200, "Who calls.", Some("Me"))],
        problems: &[],
        ..PLAIN
    },
];

pub(super) fn shapes() -> Value {
    json!({
        "NewSession": keyed(&[], json!({"key": {"type": "string", "description": "`twk_…`"}})),
        "Me": open(json!({
            "tenant": {"type": "string", "description": "The tenant acted for."},
            "roles": {"type": "array", "items": {"type": "string", "enum": ROLES}, "description": "`admin` where no keys are asked for."},
            "may": {"type": "array", "items": {"type": "string", "enum": ["look", "submit", "manage", "work", "administer"]}, "description": "What the roles allow."},
            "key_id": or_null(json!({"type": "string"})),
            "key_name": or_null(json!({"type": "string"})),
            "expires_at": or_null(described("Time", "When the key ends.")),
            "keys_required": {"type": "boolean", "description": "False while the server runs without keys."},
            "session": or_null(open(json!({
                "expires_at": reference("Time"),
                "csrf_token": {"type": "string", "description": "What changes are sent with, in the header `Tidewheel-CSRF`."},
            }))),
        })),
    })
}

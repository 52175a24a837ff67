//! Every operation on tenants and keys, one row each.

use tidewheel_api::wire::fault::Code;

use super::paths::{PLAIN, READ};
use super::{Body, Operation};

const ADMIN: &str = "tenants and keys";

const OF_TENANT: &[&str] = &["TenantId"];
const CHANGE_OF_TENANT: &[&str] = &["TenantId", "CallKey"];
const PUT_TENANT: &[&str] = &["TenantId", "IfMatch", "CallKey"];
const ONE_SECRET: &[&str] = &["TenantId", "SecretId"];
const PAGE: &[&str] = &["Tenant", "Limit", "Cursor"];
const ONE_KEY: &[&str] = &["Tenant", "KeyId"];

const NO_TENANT: &[Code] = &[Code::TenantNotFound, Code::StoreUnavailable];
const PUT: &[Code] = &[
    Code::MalformedJson,
    Code::TenantNotFound,
    Code::RequestTimeout,
    Code::IdempotencyConflict,
    Code::StaleVersion,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidRequest,
    Code::StoreUnavailable,
];
const CHANGE_SECRETS: &[Code] = &[
    Code::MalformedJson,
    Code::TenantNotFound,
    Code::SecretConflict,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidRequest,
    Code::StoreUnavailable,
];
const ONE_SECRET_PROBLEMS: &[Code] = &[Code::SecretNotFound, Code::SecretConflict, Code::StoreUnavailable];
const ONE_KEY_PROBLEMS: &[Code] = &[Code::KeyNotFound, Code::StoreUnavailable];
const REMOVE_SECRET: &[Code] =
    &[Code::MalformedRequest, Code::SecretNotFound, Code::SecretConflict, Code::StoreUnavailable];
const REVOKE_KEY: &[Code] =
    &[Code::MalformedRequest, Code::KeyNotFound, Code::IdempotencyConflict, Code::StoreUnavailable];
const MAKE_KEY: &[Code] = &[
    Code::MalformedJson,
    Code::CrossSite,
    Code::KeyNotFound,
    Code::RequestTimeout,
    Code::IdempotencyConflict,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidRequest,
    Code::StoreUnavailable,
];

const PUT_NOTIFICATIONS: &[Code] = &[
    Code::MalformedJson,
    Code::TenantNotFound,
    Code::RequestTimeout,
    Code::IdempotencyConflict,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidRequest,
    Code::StoreUnavailable,
];

const NOTIFICATIONS_NOTE: &str = "\
Each notification is a job of the tenant, of type `tidewheel.notification`, pushed to the URL and signed as any other. Of one \
event there is at most one a minute, which says how often it happened.";

const SECRETS_NOTE: &str = "\
Pushes are signed with every secret in use (Standard Webhooks, `v1`). A tenant that has set none has one all the same, \
`default`. To replace a secret: add another, teach it to the receivers, remove the old one.";

const ADD_SECRET_NOTE: &str = "\
Pushes are signed with every secret in use (Standard Webhooks, `v1`). To replace a secret: add another, teach it to the \
receivers, remove the old one. Sent again under the same idempotency key, it adds no second one, and the secret is not shown \
again: remove one that was lost on the way, and add another under another idempotency key. Once the secret is removed, a \
repeat is a 404.";

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        path: "/v1/tenants",
        tag: ADMIN,
        id: "listTenants",
        summary: "List tenants with their weights and limits, by name",
        description: "An admin's key sees those for whom something was set or who have keys; any other sees its own.",
        parameters: PAGE,
        answers: &[(200, "A page.", Some("TenantPage"))],
        problems: READ,
        ..PLAIN
    },
    Operation {
        path: "/v1/tenants/{id}",
        tag: ADMIN,
        id: "getTenant",
        summary: "A tenant's weight and limits",
        parameters: OF_TENANT,
        answers: &[(200, "What holds for the tenant. `ETag` is its version.", Some("TenantSettings"))],
        problems: NO_TENANT,
        ..PLAIN
    },
    Operation {
        method: "put",
        path: "/v1/tenants/{id}",
        tag: ADMIN,
        id: "putTenant",
        summary: "Set a tenant's weight and limits",
        description: "Replaces all of them; what is left out goes back to its default. Holds at once.",
        parameters: PUT_TENANT,
        body: Body::Required("NewTenantSettings"),
        answers: &[(200, "What holds for the tenant now. `ETag` is its version.", Some("TenantSettings"))],
        problems: PUT,
    },
    Operation {
        path: "/v1/tenants/{id}/webhook-secrets",
        tag: ADMIN,
        id: "listWebhookSecrets",
        summary: "List the secrets a tenant's pushes are signed with, oldest first",
        description: SECRETS_NOTE,
        parameters: OF_TENANT,
        answers: &[(200, "All of them, without the secrets themselves.", Some("WebhookSecretPage"))],
        problems: NO_TENANT,
        ..PLAIN
    },
    Operation {
        method: "post",
        path: "/v1/tenants/{id}/webhook-secrets",
        tag: ADMIN,
        id: "addWebhookSecret",
        summary: "Add a secret to sign pushes with",
        description: ADD_SECRET_NOTE,
        parameters: CHANGE_OF_TENANT,
        body: Body::Optional("NewWebhookSecret"),
        answers: &[
            (201, "The secret. It is shown this once.", Some("WebhookSecret")),
            (
                200,
                "It was added before, under the same idempotency key. Without its `secret`.",
                Some("WebhookSecret"),
            ),
        ],
        problems: CHANGE_SECRETS,
    },
    Operation {
        path: "/v1/tenants/{id}/webhook-secrets/{secret}",
        tag: ADMIN,
        id: "getWebhookSecret",
        summary: "One of the secrets; `default` is shown",
        parameters: ONE_SECRET,
        answers: &[(200, "The secret, shown only if nobody has made it.", Some("WebhookSecret"))],
        problems: ONE_SECRET_PROBLEMS,
        ..PLAIN
    },
    Operation {
        method: "delete",
        path: "/v1/tenants/{id}/webhook-secrets/{secret}",
        tag: ADMIN,
        id: "removeWebhookSecret",
        summary: "Take a secret out of use",
        parameters: &["TenantId", "SecretId", "CallKey"],
        answers: &[(204, "It is no longer used.", None)],
        problems: REMOVE_SECRET,
        ..PLAIN
    },
    Operation {
        path: "/v1/tenants/{id}/notifications",
        tag: ADMIN,
        id: "getNotifications",
        summary: "Where a tenant is told of dead letters, missed runs, failing targets and lag",
        description: NOTIFICATIONS_NOTE,
        parameters: OF_TENANT,
        answers: &[(200, "What is set; `url` is null where nothing is.", Some("Notifications"))],
        problems: NO_TENANT,
        ..PLAIN
    },
    Operation {
        method: "put",
        path: "/v1/tenants/{id}/notifications",
        tag: ADMIN,
        id: "putNotifications",
        summary: "Set where a tenant is told of them, and of which",
        description: NOTIFICATIONS_NOTE,
        parameters: CHANGE_OF_TENANT,
        body: Body::Required("NewNotifications"),
        answers: &[(200, "What is set now.", Some("Notifications"))],
        problems: PUT_NOTIFICATIONS,
    },
    Operation {
        path: "/v1/keys",
        tag: ADMIN,
        id: "listKeys",
        summary: "List keys, by tenant and id",
        description: "Those of the tenant that `Tidewheel-Tenant` names, or of all.",
        parameters: PAGE,
        answers: &[(200, "A page, without the keys themselves.", Some("KeyPage"))],
        problems: READ,
        ..PLAIN
    },
    Operation {
        method: "post",
        path: "/v1/keys",
        tag: ADMIN,
        id: "makeKey",
        summary: "Make a key",
        description: "Sent again under the same idempotency key, it makes no second one. The secret is not shown again: \
                      revoke a key whose secret was lost on the way, and make another under another idempotency key. Once the \
                      key is revoked, a repeat is a 404.",
        parameters: &["Tenant", "CallKey"],
        body: Body::Required("NewKey"),
        answers: &[
            (201, "The key. Its `secret` is shown this once.", Some("Key")),
            (200, "It was made before, under the same idempotency key. Without its `secret`.", Some("Key")),
        ],
        problems: MAKE_KEY,
    },
    Operation {
        path: "/v1/keys/{id}",
        tag: ADMIN,
        id: "getKey",
        summary: "A key, without the key itself",
        parameters: ONE_KEY,
        answers: &[(200, "The key.", Some("Key"))],
        problems: ONE_KEY_PROBLEMS,
        ..PLAIN
    },
    Operation {
        method: "delete",
        path: "/v1/keys/{id}",
        tag: ADMIN,
        id: "revokeKey",
        summary: "Revoke a key",
        parameters: &["Tenant", "KeyId", "CallKey"],
        answers: &[(204, "It is refused from now on.", None)],
        problems: REVOKE_KEY,
        ..PLAIN
    },
];

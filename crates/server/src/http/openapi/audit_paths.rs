//! Every operation on the audit trail, one row each.

use super::Operation;
use super::paths::{PLAIN, READ};

const AUDIT: &str = "audit";

const LIST: &[&str] = &[
    "Tenant",
    "AuditTenant",
    "AuditActor",
    "AuditAction",
    "AuditObject",
    "AuditKind",
    "AuditFrom",
    "AuditTo",
    "AuditOrder",
    "AuditFormat",
    "Limit",
    "Cursor",
];

const NOTE: &str = "\
An admin sees everything, an operator what concerns its own tenant. With `format=ndjson`, or `Accept: \
application/x-ndjson`, the answer is one record a line, oldest first, to the end or to `limit`, and a last line \
`{\"end\": …}` that says from where to where it goes in each chain; without it the answer broke off. A record whose `partial` \
is true leaves out changes of other jobs than those asked for; only whole records can be checked.";

const CHAINS_NOTE: &str = "\
A record's `hash` is made of what it says and of the `hash` of the one before it in its chain. `anchor` is the last record \
dropped for its age, or the beginning; `head` is the newest. Keep heads elsewhere now and then: a chain that no longer \
leads to them was made anew.";

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        path: "/v1/audit",
        tag: AUDIT,
        id: "listAudit",
        summary: "Who did what, and what became of jobs, newest first",
        description: NOTE,
        parameters: LIST,
        answers: &[(200, "A page.", Some("AuditPage"))],
        problems: READ,
        ..PLAIN
    },
    Operation {
        path: "/v1/audit/chains",
        tag: AUDIT,
        id: "listAuditChains",
        summary: "The chains of the audit trail, with their ends",
        description: CHAINS_NOTE,
        parameters: &["Tenant"],
        answers: &[(200, "All of them.", Some("AuditChainPage"))],
        problems: READ,
        ..PLAIN
    },
];

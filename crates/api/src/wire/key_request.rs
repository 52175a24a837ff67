//! A key to be made.

use tidewheel_core::limits::{KEY_NAME_BYTES_MAX, KEY_NAMES_COUNT_MAX};
use tidewheel_core::names::{InvalidName, Tenant, check_queue, check_type};
use tidewheel_core::time::Timestamp;

use super::fault::{At, Code, Faults};
use super::job_request::named;
use super::read::{self, Field};
use crate::known_fields;

/// What a key can be for.
pub const ROLES: &[&str] = &["admin", "operator", "producer", "worker", "viewer"];

/// A key as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRequest {
    /// Whose it shall be; the caller's own tenant if not said.
    pub tenant: Option<Tenant>,
    /// What it is for: some of [`ROLES`], at least one.
    pub roles: Vec<&'static str>,
    /// Job types it is limited to.
    pub types: Option<Vec<Box<str>>>,
    /// Queues it is limited to.
    pub queues: Option<Vec<Box<str>>>,
    /// Who gets it, for people.
    pub name: Option<Box<str>>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

known_fields!(KeyFields {
    tenant = "tenant",
    role = "role",
    roles = "roles",
    types = "types",
    queues = "queues",
    name = "name",
    expires_at = "expires_at",
    expires_in = "expires_in",
    idempotency_key = "idempotency_key",
});

impl KeyRequest {
    /// Reads a key.
    pub fn read(text: &str, now: Timestamp, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: KeyFields<'_> = read::body(text, at, faults)?;
        let tenant = fields.tenant.and_then(|field| {
            let tenant = Tenant::new(&field.text(at, faults)?);
            tenant.map_err(|fault| field.refuse(Code::InvalidValue, at, faults, fault.to_string())).ok()
        });
        let roles = read_roles(&fields, at, faults);
        let types = fields.types.and_then(|field| names(&field, check_type, at, faults));
        let queues = fields.queues.and_then(|field| names(&field, check_queue, at, faults));
        let name = fields.name.and_then(|field| read_name(&field, at, faults));
        let expires_at = match (fields.expires_at, fields.expires_in) {
            (Some(field), None) => field.time(at, faults),
            (None, Some(field)) => field.duration(at, faults).map(|ms| now.plus_ms(ms)),
            (None, None) => None,
            (Some(_), Some(field)) => {
                field.refuse(Code::ConflictingFields, at, faults, "`expires_at` is given too");
                None
            }
        };
        if expires_at.is_some_and(|end| end <= now) {
            faults.add(Code::InvalidValue, &at.field("expires_at"), "the key would have ended already");
        }
        Some(Self { tenant, roles: roles?, types, queues, name, expires_at })
    }
}

fn read_roles(fields: &KeyFields<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Vec<&'static str>> {
    let role = |name: &str| ROLES.iter().copied().find(|role| *role == name);
    match (&fields.role, &fields.roles) {
        (Some(field), None) => field.one_of(ROLES, role, at, faults).map(|role| vec![role]),
        (None, Some(field)) => {
            let items = field.items(at, faults)?;
            let at = at.field("roles");
            let mut roles = Vec::new();
            for (index, raw) in items.into_iter().take(ROLES.len() * 2).enumerate() {
                roles.extend(Field::item(raw).one_of(ROLES, role, &at.item(index), faults));
            }
            roles.sort_unstable();
            roles.dedup();
            if roles.is_empty() {
                faults.add(Code::MissingField, &at, format!("a key has a role: {}", ROLES.join(", ")));
            }
            Some(roles)
        }
        (None, None) => {
            let detail = format!("a key has a role: {}", ROLES.join(", "));
            faults.add(Code::MissingField, &at.field("roles"), detail);
            None
        }
        (Some(field), Some(_)) => {
            field.refuse(Code::ConflictingFields, at, faults, "`roles` is given too");
            None
        }
    }
}

fn names(
    field: &Field<'_>,
    check: fn(&str) -> Result<(), InvalidName>,
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<Vec<Box<str>>> {
    let items = field.items(at, faults)?;
    if items.len() > KEY_NAMES_COUNT_MAX {
        field.refuse(Code::InvalidValue, at, faults, format!("at most {KEY_NAMES_COUNT_MAX} can be named"));
        return None;
    }
    let at = at.field(field.name());
    let mut names = Vec::with_capacity(items.len());
    for (index, raw) in items.into_iter().enumerate() {
        let (item, at) = (Field::item(raw), at.item(index));
        if let Some(text) = item.text(&at, faults)
            && named(check(&text), &item, &at, faults).is_some()
        {
            names.push(Box::from(&*text));
        }
    }
    names.sort_unstable();
    names.dedup();
    Some(names)
}

fn read_name(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Box<str>> {
    let text = field.text(at, faults)?;
    if text.len() > KEY_NAME_BYTES_MAX {
        field.refuse(Code::InvalidValue, at, faults, format!("at most {KEY_NAME_BYTES_MAX} bytes"));
        return None;
    }
    Some(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_000);

    fn read(text: &str) -> Result<KeyRequest, Vec<Code>> {
        let mut faults = Faults::default();
        let request = KeyRequest::read(text, NOW, &mut faults);
        if faults.is_empty() {
            Ok(request.unwrap())
        } else {
            Err(faults.into_list().into_iter().map(|fault| fault.code).collect())
        }
    }

    #[test]
    fn a_key_has_roles_and_perhaps_limits() {
        assert_eq!(read(r#"{"role": "viewer"}"#).unwrap().roles, ["viewer"]);
        let whole = read(
            r#"{"tenant": "acme", "roles": ["worker", "producer", "worker"], "types": ["b", "a"], "queues": [],
               "name": "mail", "expires_in": "1h"}"#,
        )
        .unwrap();
        assert_eq!(whole.roles, ["producer", "worker"]);
        assert_eq!(whole.types, Some(vec!["a".into(), "b".into()]));
        assert_eq!(whole.queues, Some(vec![]));
        assert_eq!(whole.expires_at, Some(NOW.plus_ms(3_600_000)));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for (text, code) in [
            ("{}", Code::MissingField),
            (r#"{"roles": []}"#, Code::MissingField),
            (r#"{"roles": ["root"]}"#, Code::InvalidValue),
            (r#"{"role": "viewer", "roles": ["viewer"]}"#, Code::ConflictingFields),
            (r#"{"role": "viewer", "expires_at": "2020-01-01T00:00:00Z"}"#, Code::InvalidValue),
            (
                r#"{"role": "viewer", "expires_at": "2030-01-01T00:00:00Z", "expires_in": "1h"}"#,
                Code::ConflictingFields,
            ),
            (r#"{"role": "viewer", "types": ["a b\n"]}"#, Code::ControlCharacter),
            (r#"{"role": "viewer", "queues": [""]}"#, Code::InvalidValue),
            (r#"{"role": "viewer", "tenant": ""}"#, Code::InvalidValue),
        ] {
            let codes = read(text).expect_err(text);
            assert!(codes.contains(&code), "{text}: {codes:?}");
        }
    }
}

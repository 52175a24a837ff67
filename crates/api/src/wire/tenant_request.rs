//! A tenant as an operator sets it, and the secrets its pushes are signed with.

use tidewheel_core::limits::{
    DAY_MS, PAYLOAD_BYTES_MAX, RETENTION_MS_MAX, RETENTION_MS_MIN, SCHEDULE_INTERVAL_MS_MIN,
    SUB_SHARDS_COUNT_MAX, TENANT_WEIGHT_DEFAULT, TENANT_WEIGHT_MAX,
};
use tidewheel_core::webhook::Secret;

use super::fault::{At, Code, Faults};
use super::read::{self, Field};
use crate::known_fields;

/// The largest rate, burst or count that can be set; beyond it, leave the limit out.
pub const LIMIT_MAX: u32 = 1_000_000_000;

/// A tenant as it is to be; what is `None` is without a limit, or the server's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRequest {
    /// The name in the body, if there is one; it must be that of the address.
    pub id: Option<String>,
    /// Its share beside others.
    pub weight: u32,
    /// Jobs submitted per second, over time.
    pub submit_rate: Option<u32>,
    /// Jobs submitted at once.
    pub submit_burst: Option<u32>,
    /// Jobs waiting.
    pub waiting: Option<u32>,
    /// Attempts under way.
    pub concurrency: Option<u32>,
    /// Attempts under way in one queue, or at one host.
    pub queue_concurrency: Option<u32>,
    /// Attempts started per second.
    pub rate_cap: Option<u32>,
    /// Schedules.
    pub schedules: Option<u32>,
    /// Time between two fires of a schedule.
    pub min_interval_ms: Option<i64>,
    /// Payload of one job.
    pub payload_bytes: Option<u32>,
    /// How long finished jobs are kept.
    pub retention_ms: Option<i64>,
    /// Shards its jobs are spread over.
    pub sub_shards: u8,
}

known_fields!(TenantFields {
    id = "id",
    weight = "weight",
    limits = "limits",
    sub_shards = "sub_shards",
    idempotency_key = "idempotency_key",
});

known_fields!(LimitFields {
    submit_rate = "submit_rate",
    submit_burst = "submit_burst",
    waiting = "waiting",
    concurrency = "concurrency",
    queue_concurrency = "queue_concurrency",
    rate_cap = "rate_cap",
    schedules = "schedules",
    min_interval = "min_interval",
    payload_bytes = "payload_bytes",
    retention = "retention",
});

impl TenantRequest {
    /// Reads a tenant.
    pub fn read(text: &str, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: TenantFields<'_> = read::body(text, at, faults)?;
        let id = fields.id.and_then(|field| field.text(at, faults)).map(String::from);
        let weight = fields.weight.and_then(|field| count(&field, 1, TENANT_WEIGHT_MAX, at, faults));
        let sub_shards = fields.sub_shards.and_then(|field| sub_shards(&field, at, faults)).unwrap_or(1);
        let limits: LimitFields<'_> = match fields.limits {
            Some(field) => field.object(at, faults)?,
            None => LimitFields::default(),
        };
        let at = &at.field("limits");
        let mut limit = |field: Option<Field<'_>>, min| count(&field?, min, LIMIT_MAX, at, faults);
        let submit_rate = limit(limits.submit_rate, 1);
        let submit_burst = limit(limits.submit_burst, 1);
        let waiting = limit(limits.waiting, 0);
        let concurrency = limit(limits.concurrency, 1);
        let queue_concurrency = limit(limits.queue_concurrency, 1);
        let rate_cap = limit(limits.rate_cap, 1);
        let schedules = limit(limits.schedules, 0);
        let caps =
            [("concurrency", concurrency), ("queue_concurrency", queue_concurrency), ("rate_cap", rate_cap)];
        check_caps(sub_shards, caps, at, faults);
        if submit_burst.is_some() && submit_rate.is_none() {
            let detail = "a burst is what may come at once under a rate; set `submit_rate` too";
            faults.add(Code::MissingField, &at.field("submit_rate"), detail);
        }
        let payload_max = u32::try_from(PAYLOAD_BYTES_MAX).unwrap_or(u32::MAX);
        let payload_bytes = limits.payload_bytes.and_then(|field| count(&field, 1, payload_max, at, faults));
        let min_interval_ms = limits
            .min_interval
            .and_then(|field| field.duration_within(SCHEDULE_INTERVAL_MS_MIN, DAY_MS, at, faults));
        let retention_ms = limits
            .retention
            .and_then(|field| field.duration_within(RETENTION_MS_MIN, RETENTION_MS_MAX, at, faults));
        Some(Self {
            id,
            weight: weight.unwrap_or(TENANT_WEIGHT_DEFAULT),
            submit_rate,
            submit_burst,
            waiting,
            concurrency,
            queue_concurrency,
            rate_cap,
            schedules,
            min_interval_ms,
            payload_bytes,
            retention_ms,
            sub_shards,
        })
    }
}

/// Spreads are halved and doubled, so that the shards of a narrow one are among those of a wider one.
fn sub_shards(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<u8> {
    let number = field.whole(1, SUB_SHARDS_COUNT_MAX.into(), at, faults)?;
    if !number.is_power_of_two() {
        let detail = format!("{number} is no power of two: 1, 2, 4, 8 or {SUB_SHARDS_COUNT_MAX}");
        field.refuse(Code::InvalidValue, at, faults, detail);
    }
    u8::try_from(number).ok()
}

/// Caps are split over the shards, and a shard without a part of one would never start anything.
fn check_caps(sub_shards: u8, caps: [(&str, Option<u32>); 3], at: &At<'_>, faults: &mut Faults) {
    for (name, cap) in caps {
        if let Some(cap) = cap.filter(|cap| *cap < u32::from(sub_shards)) {
            let detail =
                format!("{cap} is split over {sub_shards} sub-shards, and each must have one at least");
            faults.add(Code::InvalidValue, &at.field(name), detail);
        }
    }
}

fn count(field: &Field<'_>, min: u32, max: u32, at: &At<'_>, faults: &mut Faults) -> Option<u32> {
    field.whole(min.into(), max.into(), at, faults).and_then(|number| u32::try_from(number).ok())
}

/// A webhook secret to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRequest {
    /// The secret; a fresh one is made if there is none.
    pub secret: Option<Secret>,
}

known_fields!(SecretFields { secret = "secret", idempotency_key = "idempotency_key" });

impl SecretRequest {
    /// Reads a secret.
    pub fn read(text: &str, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: SecretFields<'_> = read::optional_body(text, at, faults)?;
        let Some(field) = fields.secret else { return Some(Self { secret: None }) };
        match Secret::parse(&field.text(at, faults)?) {
            Ok(secret) => Some(Self { secret: Some(secret) }),
            Err(fault) => {
                field.refuse(Code::InvalidValue, at, faults, fault.to_string());
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TenantRequest, Vec<Code>> {
        let mut faults = Faults::default();
        let request = TenantRequest::read(text, &mut faults);
        if faults.is_empty() {
            Ok(request.unwrap())
        } else {
            Err(faults.into_list().into_iter().map(|fault| fault.code).collect())
        }
    }

    #[test]
    fn everything_may_be_left_out_and_nothing_may_be_out_of_range() {
        let plain = read("{}").unwrap();
        assert_eq!((plain.weight, plain.submit_rate, plain.waiting), (1, None, None));
        assert_eq!(plain.sub_shards, 1);
        assert_eq!(read(r#"{"sub_shards": 16, "limits": {"rate_cap": 16}}"#).unwrap().sub_shards, 16);
        let whole = read(
            r#"{"id": "acme", "weight": 3, "limits": {"submit_rate": 10, "submit_burst": 20, "waiting": 0,
               "concurrency": 4, "schedules": 5, "min_interval": "30s", "payload_bytes": 1024, "retention": "7d"}}"#,
        )
        .unwrap();
        assert_eq!((whole.weight, whole.submit_burst, whole.waiting), (3, Some(20), Some(0)));
        assert_eq!((whole.min_interval_ms, whole.payload_bytes), (Some(30_000), Some(1_024)));
        assert_eq!(whole.retention_ms, Some(7 * DAY_MS));
        for (text, code) in [
            (r#"{"weight": 0}"#, Code::InvalidValue),
            (r#"{"weight": 1001}"#, Code::InvalidValue),
            (r#"{"limits": {"submit_rate": 0}}"#, Code::InvalidValue),
            (r#"{"limits": {"submit_burst": 5}}"#, Code::MissingField),
            (r#"{"limits": {"min_interval": "1ms"}}"#, Code::InvalidValue),
            (r#"{"limits": {"payload_bytes": 65537}}"#, Code::InvalidValue),
            (r#"{"limits": {"retention": "999ms"}}"#, Code::InvalidValue),
            (r#"{"limits": {"rate": 5}}"#, Code::UnknownField),
            (r#"{"sub_shards": 0}"#, Code::InvalidValue),
            (r#"{"sub_shards": 3}"#, Code::InvalidValue),
            (r#"{"sub_shards": 32}"#, Code::InvalidValue),
            (r#"{"sub_shards": "4"}"#, Code::WrongType),
            (r#"{"sub_shards": 4, "limits": {"rate_cap": 3}}"#, Code::InvalidValue),
            (r#"{"sub_shards": 4, "limits": {"concurrency": 3}}"#, Code::InvalidValue),
            (r#"{"limits": 5}"#, Code::WrongType),
        ] {
            assert_eq!(read(text), Err(vec![code]), "{text}");
        }
    }

    #[test]
    fn a_secret_that_is_none_is_refused_without_being_repeated() {
        let mut faults = Faults::default();
        assert_eq!(SecretRequest::read("", &mut faults), Some(SecretRequest { secret: None }));
        assert_eq!(SecretRequest::read(r#"{"secret": "whsec_Zm9vYmFy"}"#, &mut faults), None);
        let faults = faults.into_list();
        assert!(!faults.iter().any(|fault| fault.detail.contains("Zm9v")), "{faults:?}");
        assert_eq!(faults.len(), 1);
    }
}

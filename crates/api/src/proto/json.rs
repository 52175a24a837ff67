//! How fields of messages that mirror the HTTP API look in its JSON.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};

/// Whether a field was left out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Instants: RFC 3339.
pub(crate) mod time {
    use prost_types::Timestamp as Instant;
    use tidewheel_core::limits::SECOND_MS;
    use tidewheel_core::time::Timestamp;

    use super::*;

    const NANOS_PER_MS: i64 = 1_000_000;

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(crate) fn serialize<S: Serializer>(time: &Option<Instant>, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(time) = time else { return serializer.serialize_none() };
        let ms = time.seconds.saturating_mul(SECOND_MS).saturating_add(i64::from(time.nanos) / NANOS_PER_MS);
        serializer.collect_str(&Timestamp::from_ms(ms))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Instant>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        let ms = text.parse::<Timestamp>().map_err(D::Error::custom)?.as_ms();
        let nanos = i32::try_from(ms.rem_euclid(SECOND_MS) * NANOS_PER_MS).unwrap_or(0);
        Ok(Some(Instant { seconds: ms.div_euclid(SECOND_MS), nanos }))
    }
}

/// Durations: `1m30s`.
pub(crate) mod duration {
    use prost_types::Duration;
    use tidewheel_core::limits::SECOND_MS;
    use tidewheel_core::time::{format_duration, parse_duration};

    use super::*;

    const NANOS_PER_MS: i64 = 1_000_000;

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let Some(it) = duration else { return serializer.serialize_none() };
        let ms = it.seconds.saturating_mul(SECOND_MS).saturating_add(i64::from(it.nanos) / NANOS_PER_MS);
        if ms < 0 {
            return Err(S::Error::custom("a duration is negative"));
        }
        serializer.serialize_str(&format_duration(ms))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        let ms = parse_duration(&text).map_err(D::Error::custom)?;
        let nanos = i32::try_from(ms % SECOND_MS * NANOS_PER_MS).unwrap_or(0);
        Ok(Some(Duration { seconds: ms / SECOND_MS, nanos }))
    }
}

/// JSON within JSON, byte for byte.
pub(crate) mod raw {
    use bytes::Bytes;
    use serde_json::value::RawValue;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(json: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        let text = std::str::from_utf8(json).map_err(|_| S::Error::custom("the payload is not UTF-8"))?;
        let raw: &RawValue = serde_json::from_str(text)
            .map_err(|fault| S::Error::custom(format!("the payload is not JSON: {fault}")))?;
        raw.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Bytes::from(Box::<str>::from(raw).into_string()))
    }
}

/// The same where `null` means nothing.
pub(crate) mod raw_or_null {
    use bytes::Bytes;

    use super::*;

    pub(crate) use super::raw::serialize;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let json = super::raw::deserialize(deserializer)?;
        Ok(if *json == *b"null" { Bytes::new() } else { json })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use bytes::Bytes;
    use prost_types::{Duration, Timestamp};

    use crate::proto::v1::{Job, NewJob};

    #[test]
    fn a_request_holds_what_was_given_and_nothing_else() {
        let job = NewJob {
            r#type: "t".into(),
            payload: Bytes::from_static(b"{\"n\" : 1}"),
            run_at: Some(Timestamp { seconds: 1_800_000_000, nanos: 5_000_000 }),
            timeout: Some(Duration { seconds: 90, nanos: 0 }),
            ..NewJob::default()
        };
        let json = serde_json::to_string(&job).unwrap();
        assert_eq!(
            json,
            r#"{"type":"t","payload":{"n" : 1},"run_at":"2027-01-15T08:00:00.005Z","timeout":"1m30s"}"#
        );
        let bad = NewJob { payload: Bytes::from_static(b"{"), ..job };
        assert!(serde_json::to_string(&bad).unwrap_err().to_string().contains("not JSON"));
    }

    #[test]
    fn an_answer_is_read_with_its_gaps() {
        let job: Job = serde_json::from_str(
            r#"{"id":"job_1","expires_at":null,"result":null,"payload":[1, 2],"timeout":"30s","new":1,
                "run_at":"2027-01-15T08:00:00.005Z","last_error":null}"#,
        )
        .unwrap();
        assert_eq!(job.payload, b"[1, 2]".as_slice());
        assert!(job.result.is_empty() && job.expires_at.is_none() && job.last_error.is_none());
        assert_eq!(job.timeout, Some(Duration { seconds: 30, nanos: 0 }));
        assert_eq!(job.run_at, Some(Timestamp { seconds: 1_800_000_000, nanos: 5_000_000 }));
    }
}

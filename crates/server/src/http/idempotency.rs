//! Idempotency keys: where they come from, and how a repeat is told from another request under the same key.

use std::sync::Arc;

use http::HeaderMap;
use tidewheel_api::wire::fault::{At, Code, Faults};
use tidewheel_api::wire::job_request::{JobRequest, LeftOut, QUEUE_DEFAULT, Start};
use tidewheel_core::job::{Destination, Priority};
use tidewheel_core::limits::{IDEMPOTENCY_WINDOW_MS, TIMEOUT_MS_DEFAULT};
use tidewheel_core::names::check_idempotency_key;
use tidewheel_core::retry::{Backoff, RetryPolicy};
use tidewheel_core::time::Timestamp;

use super::problem::Problem;

const HEADER: &str = "idempotency-key";

/// The key in the header. Of several, none could be told to be the one that is meant.
pub(super) fn header_key(headers: &HeaderMap) -> Result<Option<Arc<str>>, Problem> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refused = |detail: String| {
        Problem::new(Code::MalformedRequest, format!("the header Idempotency-Key: {detail}"))
    };
    if values.next().is_some() {
        return Err(refused("it is given more than once".to_owned()));
    }
    let key = std::str::from_utf8(value.as_bytes()).map_err(|_| refused("it is not UTF-8".to_owned()))?;
    check_idempotency_key(key).map_err(|fault| refused(fault.to_string()))?;
    Ok(Some(Arc::from(key)))
}

/// The key of a job that may have one in its body and one in the header; two different ones are a fault.
pub(super) fn choose_key(
    body: Option<&Arc<str>>,
    header: Option<&Arc<str>>,
    faults: &mut Faults,
) -> Option<Arc<str>> {
    if let (Some(body), Some(header)) = (body, header)
        && body != header
    {
        let detail = "the header Idempotency-Key is given too, and differs";
        faults.add(Code::ConflictingFields, &At::ROOT.field("idempotency_key"), detail);
    }
    body.or(header).cloned()
}

/// The earliest that a request can have come which one at `now` repeats: keys are held no longer.
pub(super) const fn earliest_first(now: Timestamp) -> Timestamp {
    now.plus_ms(-IDEMPOTENCY_WINDOW_MS)
}

/// A digest of what was asked for, the key aside. A delay counts as such: sent again later, it is the same.
pub(super) fn fingerprint(request: &JobRequest) -> [u8; 16] {
    let said = said(request);
    let mut digest = Digest(blake3::Hasher::new());
    digest.text(&request.kind);
    digest.bytes(&request.payload);
    match request.start {
        Start::Now => digest.number(0),
        Start::At(time) => digest.number(1).number(time.as_ms()),
        Start::After(ms) => digest.number(2).number(ms),
    };
    match said.destination {
        None => {
            digest.number(0).text(QUEUE_DEFAULT);
        }
        Some(Destination::Queue(queue)) => {
            digest.number(0).text(queue);
        }
        Some(Destination::Target(target)) => {
            digest.number(1).text(&target.url).text(&target.method).pairs(&target.headers);
        }
    }
    digest.text(said.priority.as_str());
    digest.number(i64::from(said.retry.max_attempts)).number(match said.retry.backoff {
        Backoff::Fixed => 0,
        Backoff::Exponential => 1,
        Backoff::ExponentialJitter => 2,
    });
    digest.number(said.retry.base_ms).bytes(&said.retry.multiplier.to_le_bytes());
    digest.number(said.retry.max_ms).number(said.timeout_ms);
    digest.number(request.expires_at.map_or(-1, Timestamp::as_ms)).pairs(&request.labels);
    digest.end()
}

/// What a request says itself. What its type's defaults have said in its place does not count: they may change, and
/// the same request sent again is the same.
struct Said<'a> {
    destination: Option<&'a Destination>,
    priority: Priority,
    retry: RetryPolicy,
    timeout_ms: i64,
}

fn said(request: &JobRequest) -> Said<'_> {
    let LeftOut { destination, priority, retry, max_attempts, timeout } = request.left_out;
    let unsaid = RetryPolicy::default();
    let attempts = if max_attempts { unsaid.max_attempts } else { request.retry.max_attempts };
    Said {
        destination: (!destination).then_some(&request.destination),
        priority: if priority { Priority::default() } else { request.priority },
        retry: if retry { RetryPolicy { max_attempts: attempts, ..unsaid } } else { request.retry },
        timeout_ms: if timeout { TIMEOUT_MS_DEFAULT } else { request.timeout_ms },
    }
}

/// A digest of these parts.
pub(super) fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut digest = Digest(blake3::Hasher::new());
    for part in parts {
        digest.bytes(part);
    }
    digest.end()
}

/// Every part goes in with its length, so that no two requests run together into the same bytes.
struct Digest(blake3::Hasher);

impl Digest {
    fn number(&mut self, number: i64) -> &mut Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    fn pairs(&mut self, pairs: &[(Box<str>, Box<str>)]) -> &mut Self {
        self.bytes(&(pairs.len() as u64).to_le_bytes());
        for (name, value) in pairs {
            self.text(name).text(value);
        }
        self
    }

    fn end(&self) -> [u8; 16] {
        let mut short = [0; 16];
        self.0.finalize_xof().fill(&mut short);
        short
    }
}

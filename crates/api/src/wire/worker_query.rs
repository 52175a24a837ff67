//! The part of an address after `?`, for the list of connected workers.

use tidewheel_core::limits::PAGE_COUNT_DEFAULT;

use super::fault::{At, Code, Faults};
use super::query::{PARAMETERS_COUNT_MAX, decode, limit, refuse, unknown};

/// Parameters of a list of workers.
const KNOWN: &[&str] = &["limit", "cursor"];

/// What a query for workers says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerQuery {
    /// How many at most.
    pub limit: usize,
    /// After which place in the list.
    pub after: u64,
}

impl WorkerQuery {
    /// Reads a query.
    #[must_use]
    pub fn read(text: &str, faults: &mut Faults) -> Self {
        let mut query = Self { limit: PAGE_COUNT_DEFAULT, after: 0 };
        for pair in text.split('&').filter(|pair| !pair.is_empty()).take(PARAMETERS_COUNT_MAX) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decode(name), decode(value)) else {
                faults.add(Code::MalformedRequest, &At::ROOT, "the query is not UTF-8 with percent-encoding");
                continue;
            };
            match name.as_ref() {
                "limit" => match limit(&value) {
                    Ok(limit) => query.limit = limit,
                    Err(detail) => refuse(Code::InvalidParameter, &name, &detail, faults),
                },
                "cursor" => match value.parse() {
                    Ok(after) => query.after = after,
                    Err(_) => {
                        refuse(
                            Code::InvalidCursor,
                            &name,
                            "it is not a cursor that a list handed out",
                            faults,
                        );
                    }
                },
                other => unknown(other, KNOWN, faults),
            }
        }
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_and_cursor_are_read_and_nothing_else() {
        let mut faults = Faults::default();
        assert_eq!(WorkerQuery::read("limit=7&cursor=42", &mut faults), WorkerQuery { limit: 7, after: 42 });
        assert!(faults.is_empty());
        let refused = WorkerQuery::read("limit=0&cursor=x&limits=1", &mut faults);
        assert_eq!(refused, WorkerQuery { limit: PAGE_COUNT_DEFAULT, after: 0 });
        let codes: Vec<Code> = faults.into_list().into_iter().map(|fault| fault.code).collect();
        assert_eq!(codes, [Code::InvalidParameter, Code::InvalidCursor, Code::UnknownParameter]);
    }
}

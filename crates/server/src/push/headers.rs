//! Judging the headers a submitter wants sent to a target.
//!
//! Some belong to the connection, some are promises Tidewheel itself makes to the target: neither may be forged.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tidewheel_core::limits::{TARGET_HEADERS_BYTES_MAX, TARGET_HEADERS_COUNT_MAX};

/// Headers the connection itself decides. A forged length or coding would let one request smuggle another.
const CONNECTION_HEADERS: [&str; 10] = [
    "host",
    "content-length",
    "connection",
    "transfer-encoding",
    "te",
    "upgrade",
    "trailer",
    "keep-alive",
    "http2-settings",
    "expect",
];

/// Names and beginnings of names that tell the target about the job, or speak to a proxy.
const RESERVED_PREFIXES: [&str; 3] = ["tidewheel-", "webhook-", "proxy-"];

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Why a target's headers are not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// More than [`TARGET_HEADERS_COUNT_MAX`].
    #[error("a target can have at most {TARGET_HEADERS_COUNT_MAX} headers")]
    TooMany,
    /// More than [`TARGET_HEADERS_BYTES_MAX`].
    #[error("a target's headers can have at most {TARGET_HEADERS_BYTES_MAX} bytes together")]
    TooLarge,
    /// Not a header name.
    #[error("{0:?} is not a header name")]
    Name(String),
    /// A line break, NUL, other control character or non-ASCII text in a value.
    #[error(
        "the value of header `{0}` has a character that cannot be sent; visible ASCII, spaces and tabs can"
    )]
    Value(String),
    /// A name that is not the submitter's to set.
    #[error("header `{0}` is set by Tidewheel or by the connection and cannot be chosen")]
    Reserved(String),
    /// The same name twice, perhaps in another case.
    #[error("header `{0}` is given twice")]
    Twice(String),
}

/// Reads and judges a target's headers.
///
/// # Errors
/// The first fault found, worded for the submitter.
pub fn check_headers<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<HeaderMap, HeaderFault> {
    let mut checked = HeaderMap::new();
    let mut bytes = 0_usize;
    for (name, value) in headers {
        bytes = bytes.saturating_add(name.len()).saturating_add(value.len());
        if checked.len() >= TARGET_HEADERS_COUNT_MAX {
            return Err(HeaderFault::TooMany);
        }
        if bytes > TARGET_HEADERS_BYTES_MAX {
            return Err(HeaderFault::TooLarge);
        }
        let (name, value) = check_header(name, value)?;
        if checked.contains_key(&name) {
            return Err(HeaderFault::Twice(name.as_str().to_owned()));
        }
        checked.insert(name, value);
    }
    Ok(checked)
}

fn check_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), HeaderFault> {
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| HeaderFault::Name(name.to_owned()))?;
    if is_reserved(&name) {
        return Err(HeaderFault::Reserved(name.as_str().to_owned()));
    }
    let sendable = |byte: u8| byte == b'\t' || byte == b' ' || byte.is_ascii_graphic();
    match HeaderValue::from_str(value) {
        Ok(sent) if value.bytes().all(sendable) && value.trim() == value => Ok((name, sent)),
        Ok(_) | Err(_) => Err(HeaderFault::Value(name.as_str().to_owned())),
    }
}

/// Whether a target header is not the submitter's to set. A parsed name is in lower case.
fn is_reserved(name: &HeaderName) -> bool {
    let name = name.as_str();
    name == IDEMPOTENCY_KEY
        || CONNECTION_HEADERS.contains(&name)
        || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_headers_are_kept_as_given() {
        let headers = check_headers([
            ("Authorization", "Bearer a b"),
            ("X-Team", "ops"),
            ("User-Agent", "me"),
            ("X-Empty", ""),
        ])
        .unwrap();
        assert_eq!(headers.len(), 4);
        assert_eq!(headers["authorization"], "Bearer a b");
        assert_eq!(headers["x-empty"], "");
    }

    #[test]
    fn nothing_can_break_out_of_its_line() {
        for value in [
            "a\r\nX-Evil: y",
            "a\nb",
            "a\rb",
            "a\0b",
            "a\r\n folded",
            "\u{7f}",
            "ü",
            "a\u{2028}b",
            "\x1b[2J",
            " a",
            "a\t",
        ] {
            assert_eq!(
                check_headers([("X-A", value)]),
                Err(HeaderFault::Value("x-a".to_owned())),
                "{value:?}"
            );
        }
        for name in ["", "a b", "a:b", "a\r\nb", "a\0", "ü", ":path", "a\t"] {
            assert_eq!(check_headers([(name, "v")]), Err(HeaderFault::Name(name.to_owned())), "{name:?}");
        }
    }

    #[test]
    fn what_belongs_to_the_connection_or_to_tidewheel_is_refused_in_any_case() {
        for name in [
            "Host",
            "Content-Length",
            "CONNECTION",
            "Transfer-Encoding",
            "TE",
            "Upgrade",
            "Trailer",
            "Keep-Alive",
            "Expect",
            "Proxy-Authorization",
            "proxy-connection",
            "Tidewheel-Attempt",
            "TIDEWHEEL-ANYTHING",
            "Webhook-Id",
            "webhook-signature",
            "Idempotency-Key",
        ] {
            let expected = HeaderFault::Reserved(name.to_ascii_lowercase());
            assert_eq!(check_headers([(name, "1")]), Err(expected));
        }
    }

    #[test]
    fn number_size_and_repetition_are_bounded() {
        let names: Vec<String> = (0..=TARGET_HEADERS_COUNT_MAX).map(|n| format!("x-{n}")).collect();
        let pairs = |count: usize| names.iter().take(count).map(|name| (name.as_str(), "v"));
        assert_eq!(check_headers(pairs(TARGET_HEADERS_COUNT_MAX)).unwrap().len(), TARGET_HEADERS_COUNT_MAX);
        assert_eq!(check_headers(pairs(TARGET_HEADERS_COUNT_MAX + 1)), Err(HeaderFault::TooMany));

        let largest = "v".repeat(TARGET_HEADERS_BYTES_MAX - 3);
        assert!(check_headers([("x-a", largest.as_str())]).is_ok());
        assert_eq!(check_headers([("x-ab", largest.as_str())]), Err(HeaderFault::TooLarge));

        assert_eq!(check_headers([("X-A", "1"), ("x-a", "2")]), Err(HeaderFault::Twice("x-a".to_owned())));
    }
}

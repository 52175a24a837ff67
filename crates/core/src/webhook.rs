//! Signatures of pushed jobs, as Standard Webhooks has them: version `v1`, HMAC-SHA256 over `id.timestamp.body`.
//!
//! The signer sends three headers. [`ID_HEADER`] is the same for every attempt of a job, [`TIMESTAMP_HEADER`] is the
//! attempt's own, and [`SIGNATURE_HEADER`] has one signature for each secret in use, so that a receiver that knows the old
//! secret and one that knows the new one both find theirs while a secret is replaced.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD};
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::limits::{WEBHOOK_SECRET_BYTES_MAX, WEBHOOK_SECRET_BYTES_MIN};

/// Names the message.
pub const ID_HEADER: &str = "webhook-id";
/// When the attempt was made, in seconds since 1970.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// The signatures, separated by spaces.
pub const SIGNATURE_HEADER: &str = "webhook-signature";
/// How far a timestamp may lie from the receiver's clock, either way, unless it decides otherwise.
pub const TOLERANCE_S: u64 = 300;

const SECRET_PREFIX: &str = "whsec_";
const VERSION: &str = "v1";
/// Signatures looked at in one header; a hostile one could have thousands.
const SIGNATURES_COUNT_MAX: usize = 32;

/// Standard Base64. People lose the padding of what they copy, and nothing rests on it.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What signer and receiver share. It is not printed by `Debug`, and so not by a log that does.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

/// Why a text is no secret. The text itself is not repeated: it may be most of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// What follows the prefix is not Base64.
    #[error("a secret is `whsec_` and then Base64; this is not")]
    NotBase64,
    /// Too short to be safe, or longer than receivers take.
    #[error("a secret has {WEBHOOK_SECRET_BYTES_MIN} to {WEBHOOK_SECRET_BYTES_MAX} bytes; this one has {0}")]
    Length(usize),
}

impl Secret {
    /// From its bytes.
    ///
    /// # Errors
    /// When there are too few or too many of them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidSecret> {
        if (WEBHOOK_SECRET_BYTES_MIN..=WEBHOOK_SECRET_BYTES_MAX).contains(&bytes.len()) {
            Ok(Self(bytes.into()))
        } else {
            Err(InvalidSecret::Length(bytes.len()))
        }
    }

    /// Reads `whsec_…`, or the Base64 alone.
    ///
    /// # Errors
    /// When it is not Base64, or has too few or too many bytes.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        let text = text.strip_prefix(SECRET_PREFIX).unwrap_or(text);
        Self::from_bytes(&LENIENT.decode(text).map_err(|_| InvalidSecret::NotBase64)?)
    }

    /// As it is shown to whom it belongs: `whsec_…`.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{SECRET_PREFIX}{}", STANDARD.encode(&self.0))
    }

    /// Another secret, for `name`, that tells nothing of this one.
    #[must_use]
    pub fn derive(&self, name: &str) -> Self {
        let mut mac = self.mac();
        mac.update(name.as_bytes());
        Self(mac.finalize().into_bytes().as_slice().into())
    }

    fn mac(&self) -> Hmac<Sha256> {
        // A key of any length is taken; an empty one would stand in if that were ever not so, and verify nothing.
        Hmac::new_from_slice(&self.0)
            .unwrap_or_else(|_| Hmac::new(&hmac::digest::Key::<Hmac<Sha256>>::default()))
    }

    fn mac_of(&self, id: &str, timestamp_s: i64, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac();
        mac.update(id.as_bytes());
        mac.update(format!(".{timestamp_s}.").as_bytes());
        mac.update(body);
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The value of [`SIGNATURE_HEADER`]: one signature for each secret, in their order.
#[must_use]
pub fn sign(secrets: &[Secret], id: &str, timestamp_s: i64, body: &[u8]) -> String {
    let mut header = String::with_capacity(secrets.len() * 48);
    for secret in secrets {
        if !header.is_empty() {
            header.push(' ');
        }
        header.push_str(VERSION);
        header.push(',');
        STANDARD.encode_string(secret.mac_of(id, timestamp_s, body).finalize().into_bytes(), &mut header);
    }
    header
}

/// The three headers of a message, as they came; an absent one is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    /// [`ID_HEADER`].
    pub id: Option<&'a str>,
    /// [`TIMESTAMP_HEADER`].
    pub timestamp: Option<&'a str>,
    /// [`SIGNATURE_HEADER`].
    pub signature: Option<&'a str>,
}

/// Why a message is not to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// A header is missing or empty.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// The timestamp is no number of seconds.
    #[error("the header {TIMESTAMP_HEADER} is not a number of seconds")]
    Timestamp,
    /// The timestamp is too long ago: perhaps somebody sends an old message again.
    #[error("the message is too old")]
    TooOld,
    /// The timestamp is too far ahead.
    #[error("the message is from the future")]
    TooNew,
    /// None of the signatures was made with one of the secrets.
    #[error("no signature fits")]
    NoMatch,
}

/// Whether a message was signed with one of the secrets, and lately. The time it takes does not depend on how much of a
/// signature is right.
///
/// # Errors
/// When it was not.
pub fn verify(
    secrets: &[Secret],
    headers: Headers<'_>,
    body: &[u8],
    now_s: i64,
    tolerance_s: u64,
) -> Result<(), Unverified> {
    let id = present(headers.id, ID_HEADER)?;
    let timestamp = present(headers.timestamp, TIMESTAMP_HEADER)?;
    let signatures = present(headers.signature, SIGNATURE_HEADER)?;
    let timestamp_s = read_timestamp(timestamp)?;
    if now_s.abs_diff(timestamp_s) > tolerance_s {
        return Err(if now_s > timestamp_s { Unverified::TooOld } else { Unverified::TooNew });
    }
    let given: Vec<Vec<u8>> = signatures
        .split(' ')
        .take(SIGNATURES_COUNT_MAX)
        // Signatures of other versions stand beside ours and are none of our business.
        .filter_map(|part| part.split_once(',').filter(|(version, _)| *version == VERSION))
        .filter_map(|(_, text)| STANDARD.decode(text).ok())
        .collect();
    let fits = |secret: &Secret| {
        let mac = secret.mac_of(id, timestamp_s, body);
        given.iter().any(|signature| mac.clone().verify_slice(signature).is_ok())
    };
    if secrets.iter().any(fits) { Ok(()) } else { Err(Unverified::NoMatch) }
}

fn present<'a>(value: Option<&'a str>, name: &'static str) -> Result<&'a str, Unverified> {
    value.filter(|text| !text.is_empty()).ok_or(Unverified::Missing(name))
}

/// Digits alone: what was signed is the number, so another spelling of it must not pass for it.
fn read_timestamp(text: &str) -> Result<i64, Unverified> {
    let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| canonical).ok_or(Unverified::Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"{\"a\": 1}";
    const NOW_S: i64 = 1_700_000_000;

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes(&[byte; 32]).unwrap()
    }

    fn verdict(secrets: &[Secret], signature: &str, timestamp: &str, now_s: i64) -> Result<(), Unverified> {
        let headers = Headers { id: Some("msg_1"), timestamp: Some(timestamp), signature: Some(signature) };
        verify(secrets, headers, BODY, now_s, TOLERANCE_S)
    }

    #[test]
    fn secrets_are_read_in_both_forms_and_bounded() {
        for bytes in [24, 32, 64] {
            let made = Secret::from_bytes(&vec![7; bytes]).unwrap();
            let shown = made.reveal();
            assert_eq!(Secret::parse(&shown), Ok(made.clone()));
            assert_eq!(Secret::parse(shown.strip_prefix("whsec_").unwrap()), Ok(made.clone()));
            assert_eq!(Secret::parse(shown.trim_end_matches('=')), Ok(made.clone()));
            assert!(!format!("{made:?}").contains("BwcH"), "{made:?}");
        }
        for (text, fault) in [
            ("", InvalidSecret::Length(0)),
            ("whsec_", InvalidSecret::Length(0)),
            ("whsec_AAAA", InvalidSecret::Length(3)),
            ("whsec_not base64!", InvalidSecret::NotBase64),
            ("whsec_pFFBa5dg6Tc6jD3deYt2IGONBOsrwqD6\n", InvalidSecret::NotBase64),
            ("whsec_-_-_a5dg6Tc6jD3deYt2IGONBOsrwqD6", InvalidSecret::NotBase64),
            ("whsec_whsec_pFFBa5dg6Tc6jD3deYt2IGONBOsrwqD6", InvalidSecret::NotBase64),
        ] {
            assert_eq!(Secret::parse(text), Err(fault), "{text}");
        }
        assert_eq!(Secret::from_bytes(&[0; 23]), Err(InvalidSecret::Length(23)));
        assert_eq!(Secret::from_bytes(&[0; 65]), Err(InvalidSecret::Length(65)));
    }

    #[test]
    fn old_and_new_receivers_both_find_their_signature_while_a_secret_is_replaced() {
        let (old, new) = (secret(1), secret(2));
        let both = sign(&[old.clone(), new.clone()], "msg_1", NOW_S, BODY);
        assert_eq!(both.split(' ').count(), 2);
        for known in [&old, &new] {
            assert_eq!(verdict(std::slice::from_ref(known), &both, "1700000000", NOW_S), Ok(()));
        }
        assert_eq!(verdict(&[secret(3)], &both, "1700000000", NOW_S), Err(Unverified::NoMatch));
        assert_eq!(verdict(&[secret(3), old], &both, "1700000000", NOW_S), Ok(()));
    }

    #[test]
    fn nothing_of_a_message_can_be_changed() {
        let known = [secret(1)];
        let good = sign(&known, "msg_1", NOW_S, BODY);
        let check = |id: &str, timestamp: &str, body: &[u8]| {
            let headers = Headers { id: Some(id), timestamp: Some(timestamp), signature: Some(&good) };
            verify(&known, headers, body, NOW_S, TOLERANCE_S)
        };
        assert_eq!(check("msg_1", "1700000000", BODY), Ok(()));
        assert_eq!(check("msg_2", "1700000000", BODY), Err(Unverified::NoMatch));
        assert_eq!(check("msg_1", "1700000001", BODY), Err(Unverified::NoMatch));
        assert_eq!(check("msg_1", "1700000000", b"{\"a\": 2}"), Err(Unverified::NoMatch));
        assert_eq!(check("msg_1", "1700000000", b"{\"a\":1}"), Err(Unverified::NoMatch));
    }

    #[test]
    fn other_versions_and_nonsense_beside_a_good_signature_do_no_harm() {
        let known = [secret(1)];
        let good = sign(&known, "msg_1", NOW_S, BODY);
        for header in [
            format!("v1a,AAAA {good}"),
            format!("{good} v2,{}", "A".repeat(44)),
            format!("nonsense {good} "),
            format!("v1,%% {good}"),
        ] {
            assert_eq!(verdict(&known, &header, "1700000000", NOW_S), Ok(()), "{header}");
        }
        let bare = good.strip_prefix("v1,").unwrap();
        for header in [bare.to_owned(), format!("v2,{bare}"), format!("v1a,{bare}"), format!("V1,{bare}")] {
            assert_eq!(verdict(&known, &header, "1700000000", NOW_S), Err(Unverified::NoMatch), "{header}");
        }
        let cut = good.get(..good.len() - 4).unwrap();
        assert_eq!(verdict(&known, cut, "1700000000", NOW_S), Err(Unverified::NoMatch));
        assert_eq!(verdict(&[], &good, "1700000000", NOW_S), Err(Unverified::NoMatch));
    }

    #[test]
    fn a_message_is_believed_for_five_minutes_either_way() {
        let known = [secret(1)];
        let good = sign(&known, "msg_1", NOW_S, BODY);
        for (now_s, expected) in [
            (NOW_S - 301, Err(Unverified::TooNew)),
            (NOW_S - 300, Ok(())),
            (NOW_S + 300, Ok(())),
            (NOW_S + 301, Err(Unverified::TooOld)),
            (i64::MAX, Err(Unverified::TooOld)),
            (i64::MIN, Err(Unverified::TooNew)),
        ] {
            assert_eq!(verdict(&known, &good, "1700000000", now_s), expected, "{now_s}");
        }
    }

    #[test]
    fn missing_and_unreadable_headers_are_told_apart() {
        let known = [secret(1)];
        let good = sign(&known, "msg_1", NOW_S, BODY);
        let whole = Headers { id: Some("msg_1"), timestamp: Some("1700000000"), signature: Some(&good) };
        for (headers, name) in [
            (Headers { id: None, ..whole }, ID_HEADER),
            (Headers { id: Some(""), ..whole }, ID_HEADER),
            (Headers { timestamp: None, ..whole }, TIMESTAMP_HEADER),
            (Headers { signature: None, ..whole }, SIGNATURE_HEADER),
        ] {
            let verdict = verify(&known, headers, BODY, NOW_S, TOLERANCE_S);
            assert_eq!(verdict, Err(Unverified::Missing(name)));
        }
        for text in
            ["x", "1700000000.0", "+1700000000", "01700000000", " 1700000000", "-1", "9".repeat(30).as_str()]
        {
            assert_eq!(verdict(&known, &good, text, NOW_S), Err(Unverified::Timestamp), "{text}");
        }
    }
}

//! Hashes of records, as bytes and as text.

use std::fmt;
use std::str::FromStr;

/// A SHA-256 hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// What stands before the first record of a chain.
    pub const ZERO: Self = Self([0; 32]);

    /// The hash of these bytes, if they are as many as it has.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// 64 hexadecimal digits, in lower case.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 64 hexadecimal digits in lower case")]
pub struct NoDigest;

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(NoDigest),
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return Err(NoDigest);
        }
        let mut bytes = [0; 32];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive_the_round_trip() {
        let digest = Digest(std::array::from_fn(|n| u8::try_from(n * 8 + 3).unwrap_or(0)));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(digest.to_string().len(), 64);
        for wrong in ["", "ab", &"AB".repeat(32), &"g0".repeat(32), &"0".repeat(65)] {
            assert_eq!(wrong.parse::<Digest>(), Err(NoDigest), "{wrong}");
        }
    }
}

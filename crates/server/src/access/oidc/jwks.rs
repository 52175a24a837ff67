//! An issuer's public keys, and whether one of them has signed something.
//!
//! The algorithm belongs to the key: what a token says of it must agree, and there is no key for `none` or for secrets
//! shared with the issuer, so a token cannot talk the server into either.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

/// Keys of one issuer that are kept; the rest is left out.
const KEYS_COUNT_MAX: usize = 64;
const P256_COORDINATE_BYTES: usize = 32;
const ED25519_BYTES: usize = 32;
/// A point follows as it is.
const UNCOMPRESSED: u8 = 4;

/// A key that signatures are checked with.
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

struct Key {
    id: Option<String>,
    material: Material,
}

/// The keys of an issuer.
#[derive(Default)]
pub(super) struct Jwks {
    keys: Vec<Key>,
}

/// As it is written.
#[derive(Deserialize)]
struct Written {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct WrittenKey {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, rename = "use")]
    purpose: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

impl Jwks {
    /// Reads a set of keys; those of other kinds are left out.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let written: Written =
            serde_json::from_slice(text).map_err(|fault| format!("it is no JSON Web Key Set: {fault}"))?;
        let keys = written.keys.into_iter().filter_map(Key::read).take(KEYS_COUNT_MAX).collect();
        Ok(Self { keys })
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is a key of that id.
    pub(super) fn has(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id.as_deref() == Some(id))
    }

    /// Whether the key of that id has made `signature` over `message` by `algorithm`. Without an id, the only key for
    /// that algorithm is meant.
    pub(super) fn has_signed(
        &self,
        id: Option<&str>,
        algorithm: &str,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let mut able = self.keys.iter().filter(|key| key.material.algorithm() == algorithm);
        match id {
            Some(id) => {
                able.any(|key| key.id.as_deref() == Some(id) && key.material.verify(message, signature))
            }
            None => match (able.next(), able.next()) {
                (Some(only), None) => only.material.verify(message, signature),
                (_, _) => false,
            },
        }
    }
}

impl Key {
    fn read(value: serde_json::Value) -> Option<Self> {
        let written: WrittenKey = serde_json::from_value(value).ok()?;
        if written.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let material = Material::read(&written)?;
        let agrees = written.alg.as_deref().is_none_or(|alg| alg == material.algorithm());
        agrees.then_some(Self { id: written.kid, material })
    }
}

impl Material {
    fn read(key: &WrittenKey) -> Option<Self> {
        match (key.kty.as_str(), key.crv.as_deref()) {
            ("RSA", _) => Some(Self::Rsa { n: number(key.n.as_deref()?)?, e: number(key.e.as_deref()?)? }),
            ("EC", Some("P-256")) => {
                let mut point = vec![UNCOMPRESSED];
                for coordinate in [&key.x, &key.y] {
                    point.extend(sized(coordinate.as_deref()?, P256_COORDINATE_BYTES)?);
                }
                Some(Self::P256(point))
            }
            ("OKP", Some("Ed25519")) => sized(key.x.as_deref()?, ED25519_BYTES).map(Self::Ed25519),
            (_, _) => None,
        }
    }

    const fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa { .. } => "RS256",
            Self::P256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa { n, e } => {
                let key = RsaPublicKeyComponents { n: n.as_slice(), e: e.as_slice() };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            Self::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Self::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
        }
        .is_ok()
    }
}

/// A number without the zeros before it, which ring refuses.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    Some(bytes.into_iter().skip_while(|byte| *byte == 0).collect())
}

fn sized(text: &str, bytes: usize) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok().filter(|found| found.len() == bytes)
}

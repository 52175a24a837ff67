//! An issuer of tokens: its keys, the set of their public halves, and a place where it shows them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

/// Making one takes long, so this one is kept. It signs nothing but tokens of tests.
const RSA: &str = include_str!("issuer_rsa.b64");

/// A key that signs tokens.
pub(crate) enum Signer {
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
    Rs256(RsaKeyPair),
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    pub(crate) fn es256() -> Self {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let read = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random);
        Self::Es256(read.unwrap())
    }

    pub(crate) fn ed_dsa() -> Self {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::EdDsa(Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap())
    }

    pub(crate) fn rs256() -> Self {
        let der = STANDARD.decode(RSA.replace('\n', "")).unwrap();
        Self::Rs256(RsaKeyPair::from_pkcs8(&der).unwrap())
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Self::Es256(_) => "ES256",
            Self::EdDsa(_) => "EdDSA",
            Self::Rs256(_) => "RS256",
        }
    }

    /// Its public half, as the issuer shows it.
    pub(crate) fn shown(&self, id: &str) -> Value {
        match self {
            Self::Es256(key) => {
                let point = key.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "alg": "ES256",
                    "x": base64(&point[1..33]), "y": base64(&point[33..])})
            }
            Self::EdDsa(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": base64(key.public_key().as_ref())})
            }
            Self::Rs256(key) => {
                let public = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "kid": id, "n": base64(&public.n), "e": base64(&public.e)})
            }
        }
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Es256(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::EdDsa(key) => key.sign(message).as_ref().to_vec(),
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }

    /// A token with that header and those claims.
    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let signed = [header, claims].map(|part| base64(part.to_string().as_bytes())).join(".");
        format!("{signed}.{}", base64(&self.sign(signed.as_bytes())))
    }

    pub(crate) fn token(&self, id: &str, claims: &Value) -> String {
        self.token_with(&json!({"alg": self.algorithm(), "kid": id, "typ": "JWT"}), claims)
    }
}

/// A set of keys.
pub(crate) fn set(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

/// Shows a set of keys to whoever asks, and counts.
pub(crate) struct Shown {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<(String, usize)>>,
}

impl Shown {
    pub(crate) fn start(keys: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new((keys, 0)));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut request = [0; 4_096];
                if stream.read(&mut request).is_err() {
                    continue;
                }
                let body = {
                    let mut state = shared.lock().unwrap();
                    state.1 += 1;
                    state.0.clone()
                };
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                // Whoever asked may be gone.
                drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())));
            }
        });
        Self { address, state }
    }

    pub(crate) fn change(&self, keys: String) {
        self.state.lock().unwrap().0 = keys;
    }

    pub(crate) fn asked(&self) -> usize {
        self.state.lock().unwrap().1
    }
}

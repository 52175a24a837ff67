//! From what is in the files to what a handshake goes by.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tidewheel_core::time::Timestamp;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::instant;

/// One of the files; a bundle of a few hundred authorities stays below it.
const FILE_BYTES_MAX: u64 = 1_024 * 1_024;
/// Both protocols of the API, the better one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Where everything is that TLS needs, each as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and after it those up to its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Whether clients show certificates too.
    pub clients: ClientCertificates,
}

/// What is asked of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Nothing.
    NotAsked,
    /// One of these authorities, if any: for those that cannot show one, such as probes.
    Optional(PathBuf),
    /// One of these authorities.
    Required(PathBuf),
}

impl ClientCertificates {
    fn authorities(&self) -> Option<&Path> {
        match self {
            Self::NotAsked => None,
            Self::Optional(file) | Self::Required(file) => Some(file),
        }
    }
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsFault {
    /// One cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// One is not what it should be.
    #[error("{} does not hold {expected} in PEM form", file.display())]
    NotPem {
        /// Which.
        file: PathBuf,
        /// What it should hold.
        expected: &'static str,
    },
    /// The certificate and its key do not do.
    #[error("the certificate in {} cannot be used with the key in {}: {source}", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The authorities of clients do not do.
    #[error("the authorities in {} cannot be used: {detail}", file.display())]
    Authorities {
        /// Their file.
        file: PathBuf,
        /// Why.
        detail: String,
    },
    /// A new certificate is over already.
    #[error("the certificate in {} has ended at {ended}", file.display())]
    Over {
        /// Its file.
        file: PathBuf,
        /// When it ended.
        ended: Timestamp,
    },
}

/// What is in the files.
pub(super) struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Vec<u8>,
}

/// What a handshake goes by, and until when.
pub(super) struct Usable {
    pub(super) config: Arc<ServerConfig>,
    pub(super) expires_at: Timestamp,
}

impl Contents {
    pub(super) async fn read(files: TlsFiles) -> Result<Self, TlsFault> {
        let reading = tokio::task::spawn_blocking(move || {
            Ok(Self {
                certificate: read(&files.certificate)?,
                key: read(&files.key)?,
                authorities: files.clients.authorities().map(read).transpose()?.unwrap_or_default(),
            })
        });
        reading.await.unwrap_or_else(|fault| {
            Err(TlsFault::Read { file: PathBuf::new(), source: io::Error::other(fault) })
        })
    }

    /// What tells these contents from others.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for part in [&self.certificate, &self.key, &self.authorities] {
            hasher.update(blake3::hash(part).as_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    pub(super) fn usable(&self, files: &TlsFiles) -> Result<Usable, TlsFault> {
        let chain = certificates(&self.certificate, &files.certificate)?;
        let expires_at = chain.iter().filter_map(end_of).min();
        let expires_at = expires_at.ok_or_else(|| not_pem(&files.certificate, "a certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key);
        // What the parser says may quote the key.
        let key = key.map_err(|_| not_pem(&files.key, "a private key"))?;
        let pair = |source| TlsFault::Pair {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            source,
        };
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(pair)?;
        let builder = match self.verifier(files)? {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Usable { config: Arc::new(config), expires_at })
    }

    fn verifier(
        &self,
        files: &TlsFiles,
    ) -> Result<Option<Arc<dyn rustls::server::danger::ClientCertVerifier>>, TlsFault> {
        let Some(file) = files.clients.authorities() else { return Ok(None) };
        let unusable = |detail: String| TlsFault::Authorities { file: file.to_owned(), detail };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authorities, file)? {
            roots.add(certificate).map_err(|fault| unusable(fault.to_string()))?;
        }
        let provider = Arc::new(ring::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = match files.clients {
            ClientCertificates::Optional(_) => builder.allow_unauthenticated(),
            ClientCertificates::Required(_) | ClientCertificates::NotAsked => builder,
        };
        builder.build().map(Some).map_err(|fault: VerifierBuilderError| unusable(fault.to_string()))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, TlsFault> {
    let fault = |source| TlsFault::Read { file: file.to_owned(), source };
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(fault)?;
    let count = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(fault)?;
    if u64::try_from(count).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        return Err(fault(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes"))));
    }
    Ok(bytes)
}

fn not_pem(file: &Path, expected: &'static str) -> TlsFault {
    TlsFault::NotPem { file: file.to_owned(), expected }
}

fn certificates(pem: &[u8], file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|_| not_pem(file, "certificates"))?;
    if found.is_empty() { Err(not_pem(file, "a certificate")) } else { Ok(found) }
}

/// When a certificate ends. One that cannot be read is left to the handshake to refuse.
fn end_of(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let read = Certificate::from_der(certificate).ok()?;
    Some(instant(read.tbs_certificate.validity.not_after.to_unix_duration()))
}

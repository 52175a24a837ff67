//! TLS towards a server: whom to trust, and what to show. Nothing of it is needed for servers that have a certificate
//! of a public authority and ask for none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Whom to trust, and what to show; each file as PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Authorities that servers must have their certificates from; none means those of the system.
    pub ca_file: Option<PathBuf>,
    /// A certificate to show to servers that ask for one, and after it those up to its authority.
    pub client_cert: Option<PathBuf>,
    /// Its private key; none means that it is in the same file.
    pub client_key: Option<PathBuf>,
}

/// Why the files cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsFault(String);

impl TlsOptions {
    /// What handshakes go by.
    ///
    /// # Errors
    /// When a file cannot be read or used.
    pub fn client_config(&self) -> Result<ClientConfig, TlsFault> {
        let roots = match &self.ca_file {
            Some(file) => authorities(file)?,
            None => system_authorities(),
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|fault| TlsFault(format!("TLS could not be set up: {fault}")))?
            .with_root_certificates(roots);
        let Some(file) = &self.client_cert else {
            return match &self.client_key {
                Some(_) => Err(TlsFault("a client's key is given, and no certificate for it".to_owned())),
                None => Ok(builder.with_no_client_auth()),
            };
        };
        let key_file = self.client_key.as_ref().unwrap_or(file);
        // What the parser says may quote the key.
        let key = PrivateKeyDer::from_pem_slice(&read(key_file)?).map_err(|_| {
            TlsFault(format!("{} does not hold a private key in PEM form", key_file.display()))
        })?;
        builder.with_client_auth_cert(certificates(file)?, key).map_err(|fault| {
            TlsFault(format!("the client's certificate in {} cannot be used: {fault}", file.display()))
        })
    }

    /// Connects to `url` and others like it. The files are read only if it begins with `https://`.
    pub(crate) fn connector(
        &self,
        url: &str,
        speak: Speak,
    ) -> Result<HttpsConnector<HttpConnector>, TlsFault> {
        let config = if url.starts_with("https://") { self.client_config()? } else { nobody_trusted()? };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(crate::client::CONNECT_TIMEOUT));
        let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
        Ok(match speak {
            Speak::Both => builder.enable_http1().enable_http2().wrap_connector(tcp),
            Speak::Http2 => builder.enable_http2().wrap_connector(tcp),
        })
    }
}

/// Which protocols a client offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speak {
    /// HTTP/1.1 and HTTP/2.
    Both,
    /// HTTP/2 alone, as gRPC needs it.
    Http2,
}

fn nobody_trusted() -> Result<ClientConfig, TlsFault> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|fault| TlsFault(format!("TLS could not be set up: {fault}")))?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// Those of the system, which `SSL_CERT_FILE` and `SSL_CERT_DIR` may name; where there are none, those of browsers.
fn system_authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

fn authorities(file: &Path) -> Result<RootCertStore, TlsFault> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|fault| {
            TlsFault(format!("an authority in {} cannot be used: {fault}", file.display()))
        })?;
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let pem = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err(TlsFault(format!("{} does not hold certificates in PEM form", file.display()))),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, TlsFault> {
    std::fs::read(file).map_err(|fault| TlsFault(format!("cannot read {}: {fault}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_told_with_its_file() {
        let missing = || Some(PathBuf::from("/nonexistent/x.pem"));
        let no_pem = || Some(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")));
        for (options, says) in [
            (TlsOptions { ca_file: missing(), ..TlsOptions::default() }, "cannot read /nonexistent/x.pem"),
            (TlsOptions { ca_file: no_pem(), ..TlsOptions::default() }, "does not hold certificates"),
            (TlsOptions { client_cert: no_pem(), ..TlsOptions::default() }, "does not hold a private key"),
            (TlsOptions { client_key: missing(), ..TlsOptions::default() }, "no certificate for it"),
        ] {
            let fault = options.client_config().unwrap_err().to_string();
            assert!(fault.contains(says), "{fault}");
            assert!(options.connector("http://a", Speak::Both).is_ok(), "nothing is read for plain HTTP");
            assert!(options.connector("https://a", Speak::Both).is_err());
        }
        assert!(TlsOptions::default().client_config().is_ok());
    }
}

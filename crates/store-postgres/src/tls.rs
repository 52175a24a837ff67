//! TLS to the database as its URL asks for it, in libpq's words: `sslmode`, `sslrootcert`, `sslcert`, `sslkey`. The client library
//! knows the first alone, and not all of its values, so what is ours is taken out of the URL before it reads that.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tidewheel_store::Error;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// How to connect to the database of a URL.
///
/// # Errors
/// When the URL makes no sense, or names files that cannot be used.
pub fn connector(url: &str) -> Result<(Config, MakeRustlsConnect), Error> {
    let (url, tls) = Tls::taken_from(url)?;
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        let reason = std::error::Error::source(&error).map(|source| format!(": {source}"));
        wrong(format!("{error}{}", reason.unwrap_or_default()))
    })?;
    if tls.is_required {
        config.ssl_mode(SslMode::Require);
    }
    Ok((config, tls.connect()?))
}

fn wrong(reason: impl std::fmt::Display) -> Error {
    Error::Unavailable(format!("the URL of the store: {reason}"))
}

/// What a URL says of TLS that the client library does not know.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tls {
    is_required: bool,
    /// The certificate may be for another host (`verify-ca`).
    any_name: bool,
    /// The authorities that are trusted instead of the public ones.
    root: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Tls {
    /// Reads it; also returns the URL without it.
    fn taken_from(url: &str) -> Result<(String, Self), Error> {
        // A password may hold what else begins the query.
        let place = url.find('@').unwrap_or(0);
        let Some(at) = url.get(place..).and_then(|rest| rest.find('?')).map(|at| place + at) else {
            return Ok((url.to_owned(), Self::default()));
        };
        let (base, query) = (url.get(..at).unwrap_or(url), url.get(at + 1..).unwrap_or_default());
        let mut tls = Self::default();
        let (mut kept, mut says_mode) = (Vec::new(), false);
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            says_mode |= name == "sslmode";
            let file = || decoded(value).map(|path| Some(PathBuf::from(path)));
            match (name, value) {
                ("sslrootcert", _) => tls.root = file()?,
                ("sslcert", _) => tls.certificate = file()?,
                ("sslkey", _) => tls.key = file()?,
                ("sslmode", "verify-full") => tls.is_required = true,
                ("sslmode", "verify-ca") => (tls.is_required, tls.any_name) = (true, true),
                _ => kept.push(pair),
            }
        }
        if tls.certificate.is_some() != tls.key.is_some() {
            return Err(wrong("`sslcert` and `sslkey` belong together, and one of them is missing"));
        }
        // Who names files for it does not want to do without.
        tls.is_required |= !says_mode && (tls.root.is_some() || tls.certificate.is_some());
        let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
        Ok((format!("{base}{query}"), tls))
    }

    fn connect(&self) -> Result<MakeRustlsConnect, Error> {
        let unusable = |error: &dyn std::fmt::Display| wrong(format!("TLS cannot be used: {error}"));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(self.roots()?);
        let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let builder = if self.any_name {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
            let verifier = AnyName(verifier.map_err(|error| unusable(&error))?);
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        } else {
            builder.with_root_certificates(roots)
        };
        let config = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let chain = certificates("sslcert", certificate)?;
                let secret = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| unreadable("sslkey", key, &error, "private key without a password"))?;
                builder.with_client_auth_cert(chain, secret).map_err(|error| unusable(&error))?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(MakeRustlsConnect::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let Some(file) = &self.root else {
            return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates("sslrootcert", file)? {
            roots
                .add(certificate)
                .map_err(|error| wrong(format!("sslrootcert={}: {error}", file.display())))?;
        }
        Ok(roots)
    }
}

fn certificates(name: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => {
            Err(unreadable(name, file, &pem::Error::NoItemsFound, "certificate"))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(unreadable(name, file, &error, "certificate")),
    }
}

fn unreadable(name: &str, file: &Path, error: &pem::Error, expected: &str) -> Error {
    let reason = if let pem::Error::Io(error) = error {
        format!("it cannot be read: {error}")
    } else {
        format!("there is no {expected} in it, as PEM")
    };
    wrong(format!("{name}={}: {reason}", file.display()))
}

/// A value of a URL's query.
fn decoded(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value =
                digit(rest.next()).zip(digit(rest.next())).and_then(|(a, b)| u8::try_from(a * 16 + b).ok());
            bytes.push(value.ok_or_else(|| wrong("a `%` is not followed by two hexadecimal digits"))?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong("the name of a file is not UTF-8"))
}

/// Goes by the authorities alone: whatever host the certificate is for.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // The name is looked at last, when all else was found to be right.
        let verified = self.0.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        if let Err(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) = verified
        {
            return Ok(ServerCertVerified::assertion());
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn taken(url: &str) -> (String, Tls) {
        Tls::taken_from(url).unwrap()
    }

    #[test]
    fn what_the_client_library_does_not_know_is_taken_out() {
        for url in
            ["postgres://h/d", "postgres://u:p?@h/d", "postgres://h/d?sslmode=require&application_name=x"]
        {
            assert_eq!(taken(url), (url.to_owned(), Tls::default()));
        }
        let (url, tls) =
            taken("postgres://u:p?w@h/d?sslrootcert=%2Fa%20b.pem&connect_timeout=3&sslmode=verify-full");
        assert_eq!(url, "postgres://u:p?w@h/d?connect_timeout=3");
        let root = Some(PathBuf::from("/a b.pem"));
        assert_eq!(tls, Tls { is_required: true, root: root.clone(), ..Tls::default() });
        let (url, tls) = taken("postgres://h?sslmode=verify-ca");
        assert_eq!((url.as_str(), tls.is_required, tls.any_name), ("postgres://h", true, true));
        assert!(taken("postgres://h?sslrootcert=/a").1.is_required, "who names authorities wants TLS");
        let (url, tls) = taken("postgres://h?sslmode=prefer&sslcert=/c&sslkey=/k");
        assert_eq!(url, "postgres://h?sslmode=prefer");
        assert_eq!(
            (tls.is_required, tls.certificate, tls.key),
            (false, Some("/c".into()), Some("/k".into()))
        );
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        let said = |url: &str| connector(url).map(drop).unwrap_err().to_string();
        for (url, words) in [
            ("postgres://h?sslcert=/c", "`sslkey`"),
            ("postgres://h?sslrootcert=/no/such.pem", "sslrootcert=/no/such.pem: it cannot be read"),
            ("postgres://h?sslrootcert=/dev/null", "sslrootcert=/dev/null: there is no certificate in it"),
            ("postgres://h?sslrootcert=%2", "hexadecimal"),
            ("postgres://me:hush@h?sslpassword=hush", "sslpassword"),
        ] {
            let said = said(url);
            assert!(said.contains(words) && !said.contains("hush"), "{url}: {said}");
        }
        assert!(connector("postgres://h?sslmode=verify-ca").is_ok());
    }
}

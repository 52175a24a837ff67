//! What keeps a server to those it is for: TLS, tokens of an issuer, and secrets that come from files. What holds
//! between these settings is checked here.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tidewheel_server::access::oidc::{KeySource, OidcConfig, ROLES_CLAIM_DEFAULT, TENANT_CLAIM_DEFAULT};
use tidewheel_server::tls::{ClientCertificates, TlsFiles};

use super::{ServeConfig, values};

/// A file that holds one secret.
const SECRET_BYTES_MAX: u64 = 16 * 1_024;

/// As it was set, before it is put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Secure {
    /// The server's certificate.
    pub(super) tls_cert: Option<PathBuf>,
    /// Its key.
    pub(super) tls_key: Option<PathBuf>,
    /// Authorities of clients.
    pub(super) tls_client_ca: Option<PathBuf>,
    /// Clients may go without a certificate.
    pub(super) tls_client_optional: bool,
    /// Whose tokens are taken.
    pub(super) oidc_issuer: Option<String>,
    /// For whom they must be made.
    pub(super) oidc_audience: Option<String>,
    /// A file with the issuer's keys.
    pub(super) oidc_keys_file: Option<PathBuf>,
    /// Where the issuer shows its keys.
    pub(super) oidc_jwks_url: Option<String>,
    /// The claim that names the tenant.
    pub(super) oidc_tenant_claim: String,
    /// The claim that names the roles.
    pub(super) oidc_roles_claim: String,
}

impl Default for Secure {
    fn default() -> Self {
        Self {
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            tls_client_optional: false,
            oidc_issuer: None,
            oidc_audience: None,
            oidc_keys_file: None,
            oidc_jwks_url: None,
            oidc_tenant_claim: TENANT_CLAIM_DEFAULT.to_owned(),
            oidc_roles_claim: ROLES_CLAIM_DEFAULT.to_owned(),
        }
    }
}

/// Reads a switch.
pub(super) fn yes_or_no(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("{text:?} is neither true nor false"))
}

/// Puts together what belongs together, and says what does not fit.
pub(super) fn settle(config: &mut ServeConfig, set: Secure, faults: &mut Vec<String>) {
    if !config.store.is_empty() && config.store_file.is_some() {
        faults.push("--store-file: --store is given too; one of them is enough".to_owned());
    } else if let Some(file) = &config.store_file {
        match secret_in(file).and_then(|urls| values::stores(urls.lines())) {
            Ok(urls) => config.store = urls,
            Err(detail) => faults.push(format!("--store-file: {}: {detail}", file.display())),
        }
    }
    config.tls = tls(&set, faults);
    config.oidc = oidc(set, faults);
}

fn tls(set: &Secure, faults: &mut Vec<String>) -> Option<TlsFiles> {
    let clients = match (&set.tls_client_ca, set.tls_client_optional) {
        (None, false) => ClientCertificates::NotAsked,
        (Some(file), false) => ClientCertificates::Required(file.clone()),
        (Some(file), true) => ClientCertificates::Optional(file.clone()),
        (None, true) => {
            faults.push("--tls-client-optional: it needs --tls-client-ca".to_owned());
            ClientCertificates::NotAsked
        }
    };
    match (&set.tls_cert, &set.tls_key) {
        (Some(certificate), Some(key)) => {
            return Some(TlsFiles { certificate: certificate.clone(), key: key.clone(), clients });
        }
        (Some(_), None) => faults.push("--tls-cert: it needs --tls-key".to_owned()),
        (None, Some(_)) => faults.push("--tls-key: it needs --tls-cert".to_owned()),
        (None, None) if clients != ClientCertificates::NotAsked => {
            faults.push("--tls-client-ca: it needs --tls-cert and --tls-key".to_owned());
        }
        (None, None) => {}
    }
    None
}

fn oidc(set: Secure, faults: &mut Vec<String>) -> Option<OidcConfig> {
    let source = match (set.oidc_keys_file, set.oidc_jwks_url) {
        (Some(_), Some(_)) => {
            faults.push("--oidc-jwks-url: --oidc-keys-file is given too; one of them is enough".to_owned());
            return None;
        }
        (Some(file), None) => Some(KeySource::File(file)),
        (None, Some(url)) => match KeySource::url(&url) {
            Ok(source) => Some(source),
            Err(detail) => {
                faults.push(format!("--oidc-jwks-url: {detail}"));
                return None;
            }
        },
        (None, None) => None,
    };
    match (set.oidc_issuer, set.oidc_audience, source) {
        (None, None, None) => None,
        (Some(issuer), Some(audience), Some(keys)) => Some(OidcConfig {
            issuer,
            audience,
            keys,
            tenant_claim: set.oidc_tenant_claim,
            roles_claim: set.oidc_roles_claim,
        }),
        (_, _, _) => {
            faults.push(
                "--oidc-issuer: tokens need --oidc-issuer, --oidc-audience and one of --oidc-keys-file and \
                 --oidc-jwks-url"
                    .to_owned(),
            );
            None
        }
    }
}

/// What a file holds, the line break at its end aside. Faults never repeat it.
pub fn secret_in(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(SECRET_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|fault| fault.to_string())?;
    Ok(text.trim().to_owned())
}

/// Whether the URL of a database has a password in it.
pub(super) fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    user.is_some_and(|user| user.contains(':')) || url.contains("password=")
}

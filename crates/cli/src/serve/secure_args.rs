//! The flags of `serve` that keep it to those it is for: TLS, tokens of an issuer, secrets in files.

use clap::Args;

use crate::config::Key;

/// As text, like the other flags of `serve`.
#[derive(Debug, Default, Args)]
pub(super) struct SecureArgs {
    /// A file that holds the database's URL, instead of --store: for URLs with a password; one to a line
    #[arg(long, value_name = "FILE")]
    store_file: Option<String>,
    /// Serves HTTPS: the server's certificate and those up to its authority, as PEM; looked at again every 10s and
    /// on SIGHUP
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// The certificate's private key, as PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Asks clients for a certificate of one of the authorities in this file
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<String>,
    /// Lets clients without a certificate in all the same
    #[arg(long)]
    tls_client_optional: bool,
    /// Takes tokens (JWT) of this issuer as well as keys
    #[arg(long, value_name = "URL")]
    oidc_issuer: Option<String>,
    /// For whom the tokens must be made
    #[arg(long, value_name = "NAME")]
    oidc_audience: Option<String>,
    /// A file with the issuer's public keys (JWKS)
    #[arg(long, value_name = "FILE")]
    oidc_keys_file: Option<String>,
    /// Where the issuer shows its public keys (JWKS), instead of a file
    #[arg(long, value_name = "URL")]
    oidc_jwks_url: Option<String>,
    /// The claim of a token that names the tenant [default: tidewheel_tenant]
    #[arg(long, value_name = "CLAIM")]
    oidc_tenant_claim: Option<String>,
    /// The claim of a token that names the roles [default: tidewheel_roles]
    #[arg(long, value_name = "CLAIM")]
    oidc_roles_claim: Option<String>,
}

impl SecureArgs {
    /// What was given.
    pub(super) fn given(&self) -> impl Iterator<Item = (Key, Vec<String>)> {
        let optional = self.tls_client_optional.then(|| "true".to_owned());
        let all = [
            (Key::StoreFile, self.store_file.clone()),
            (Key::TlsCert, self.tls_cert.clone()),
            (Key::TlsKeyFile, self.tls_key.clone()),
            (Key::TlsClientCa, self.tls_client_ca.clone()),
            (Key::TlsClientOptional, optional),
            (Key::OidcIssuer, self.oidc_issuer.clone()),
            (Key::OidcAudience, self.oidc_audience.clone()),
            (Key::OidcKeysFile, self.oidc_keys_file.clone()),
            (Key::OidcJwksUrl, self.oidc_jwks_url.clone()),
            (Key::OidcTenantClaim, self.oidc_tenant_claim.clone()),
            (Key::OidcRolesClaim, self.oidc_roles_claim.clone()),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, vec![value?])))
    }
}

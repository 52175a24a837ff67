//! From flags and environment to a client of the API.

use std::fs;
use std::path::PathBuf;

use tidewheel_api::client::{Client, ClientConfig, Patience, URL_DEFAULT};
use tidewheel_api::tls::TlsOptions;

use crate::args::Globals;
use crate::failure::Failure;
use crate::out::Out;

/// The environment's name for the server.
const URL_ENV: &str = "TIDEWHEEL_URL";
/// The environment's name for the tenant.
const TENANT_ENV: &str = "TIDEWHEEL_TENANT";
/// The environment's name for the key itself; there is no such flag, as other users see a process's flags.
const KEY_ENV: &str = "TIDEWHEEL_KEY";
/// The environment's names for the files of TLS.
const CA_FILE_ENV: &str = "TIDEWHEEL_CA_FILE";
const CLIENT_CERT_ENV: &str = "TIDEWHEEL_CLIENT_CERT";
const CLIENT_KEY_ENV: &str = "TIDEWHEEL_CLIENT_KEY";

/// How a verb reaches the server, and the user.
pub(crate) struct Link {
    globals: Globals,
    /// Where to print.
    pub(crate) out: Out,
}

impl Link {
    /// From the flags of every verb.
    pub(crate) fn new(globals: Globals, out: Out) -> Self {
        Self { globals, out }
    }

    /// A client for a person who waits.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.patient_client(Patience::default())
    }

    /// Whom to talk to, and as whom.
    pub(crate) fn config(&self) -> Result<ClientConfig, Failure> {
        client_config(&self.globals, |name| std::env::var(name).ok())
    }

    /// A client that keeps trying for as long as `patience` says.
    pub(crate) fn patient_client(&self, patience: Patience) -> Result<Client, Failure> {
        Ok(Client::new(ClientConfig { patience, ..self.config()? })?)
    }
}

fn client_config(globals: &Globals, env: impl Fn(&str) -> Option<String>) -> Result<ClientConfig, Failure> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    let key = match &globals.key_file {
        None => set(KEY_ENV),
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|fault| Failure::Usage(format!("--key-file {}: {fault}", path.display())))?;
            Some(text.trim().to_owned())
        }
    };
    let url = globals.url.clone().or_else(|| set(URL_ENV)).unwrap_or_else(|| URL_DEFAULT.to_owned());
    let tenant = globals.tenant.clone().or_else(|| set(TENANT_ENV));
    let file = |flag: &Option<PathBuf>, name: &str| flag.clone().or_else(|| set(name).map(PathBuf::from));
    let tls = TlsOptions {
        ca_file: file(&globals.ca_file, CA_FILE_ENV),
        client_cert: file(&globals.client_cert, CLIENT_CERT_ENV),
        client_key: file(&globals.client_key, CLIENT_KEY_ENV),
    };
    Ok(ClientConfig { key, tenant, tls, ..ClientConfig::new(url) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::Format;

    fn globals() -> Globals {
        Globals {
            url: None,
            tenant: None,
            key_file: None,
            ca_file: None,
            client_cert: None,
            client_key: None,
            output: Format::Table,
        }
    }

    #[test]
    fn flags_stand_above_the_environment_and_that_above_defaults() {
        let env = |name: &str| Some(format!("from {name}"));
        let config = client_config(&globals(), env).ok().unwrap();
        assert_eq!(config.url, "from TIDEWHEEL_URL");
        assert_eq!(config.tenant.as_deref(), Some("from TIDEWHEEL_TENANT"));
        assert_eq!(config.key.as_deref(), Some("from TIDEWHEEL_KEY"));
        let named = |name: &str| Some(PathBuf::from(format!("from TIDEWHEEL_{name}")));
        assert_eq!((config.tls.ca_file, config.tls.client_key), (named("CA_FILE"), named("CLIENT_KEY")));
        assert_eq!(config.tls.client_cert, named("CLIENT_CERT"));
        let ca_file = Some(PathBuf::from("c"));
        let flags = Globals { url: Some("u".to_owned()), tenant: Some("t".to_owned()), ca_file, ..globals() };
        let config = client_config(&flags, env).ok().unwrap();
        assert_eq!((config.url.as_str(), config.tenant.as_deref()), ("u", Some("t")));
        assert_eq!(config.tls.ca_file, Some(PathBuf::from("c")));
        let config = client_config(&globals(), |_| Some(String::new())).ok().unwrap();
        assert_eq!((config.url.as_str(), config.tenant, config.key), (URL_DEFAULT, None, None));
        assert_eq!(config.tls, TlsOptions::default());
    }

    #[test]
    fn a_key_file_holds_a_key_and_a_line_break() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "twk_abc\n").unwrap();
        let flags = Globals { key_file: Some(file.path().to_owned()), ..globals() };
        assert_eq!(client_config(&flags, |_| None).ok().unwrap().key.as_deref(), Some("twk_abc"));
        let flags = Globals { key_file: Some("/nonexistent/key".into()), ..globals() };
        assert!(matches!(client_config(&flags, |_| None), Err(Failure::Usage(_))));
    }
}

//! Where an issuer's keys come from: a file, or a URL. Bounded in size and time.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tidewheel_api::tls::TlsOptions;

use super::KeySource;
use super::jwks::Jwks;

/// A set of keys; what is larger is not read.
const JWKS_BYTES_MAX: usize = 256 * 1_024;
/// From connecting to the last byte.
const FETCH_TIME_MAX: Duration = Duration::from_secs(5);

/// Why an issuer's keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OidcFault {
    /// A file.
    #[error("the issuer's keys in {} cannot be used: {detail}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        detail: String,
    },
    /// A URL.
    #[error("the issuer's keys at {url} cannot be used: {detail}")]
    Url {
        /// Which.
        url: Uri,
        /// Why.
        detail: String,
    },
}

/// Gets the keys.
pub(super) enum Fetcher {
    File(PathBuf),
    Url { url: Uri, client: Box<Client<HttpsConnector<HttpConnector>, Empty<Bytes>>> },
}

impl Fetcher {
    pub(super) fn new(source: &KeySource) -> Result<Self, OidcFault> {
        match source {
            KeySource::File(file) => Ok(Self::File(file.clone())),
            KeySource::Url(url) => {
                let config = TlsOptions::default().client_config();
                let config =
                    config.map_err(|fault| OidcFault::Url { url: url.clone(), detail: fault.to_string() })?;
                let connector = HttpsConnectorBuilder::new()
                    .with_tls_config(config)
                    .https_or_http()
                    .enable_http1()
                    .build();
                let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
                Ok(Self::Url { url: url.clone(), client: Box::new(client) })
            }
        }
    }

    pub(super) async fn fetch(&self) -> Result<Jwks, OidcFault> {
        match self {
            Self::File(file) => {
                let fault = |detail: String| OidcFault::File { file: file.clone(), detail };
                let path = file.clone();
                let read = tokio::task::spawn_blocking(move || read(&path)).await;
                let text =
                    read.map_err(|cut| fault(cut.to_string()))?.map_err(|cut| fault(cut.to_string()))?;
                usable(&text).map_err(fault)
            }
            Self::Url { url, client } => {
                let fault = |detail: String| OidcFault::Url { url: url.clone(), detail };
                let asking = tokio::time::timeout(FETCH_TIME_MAX, ask(client, url.clone()));
                let text = asking.await.map_err(|_| fault(format!("no answer within {FETCH_TIME_MAX:?}")))?;
                usable(&text.map_err(fault)?).map_err(fault)
            }
        }
    }
}

/// No key at all is rather a mistake than a wish.
fn usable(text: &[u8]) -> Result<Jwks, String> {
    let keys = Jwks::read(text)?;
    if keys.count() == 0 {
        return Err("it has no key for RS256, ES256 or EdDSA".to_owned());
    }
    Ok(keys)
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let (mut text, limit) = (Vec::new(), u64::try_from(JWKS_BYTES_MAX).unwrap_or(u64::MAX));
    File::open(file)?.take(limit).read_to_end(&mut text)?;
    Ok(text)
}

async fn ask(
    client: &Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    url: Uri,
) -> Result<Bytes, String> {
    let answer = client.get(url).await.map_err(|fault| {
        let cause: &dyn std::error::Error = &fault;
        cause.source().map_or_else(|| fault.to_string(), ToString::to_string)
    })?;
    if answer.status() != StatusCode::OK {
        return Err(format!("the answer is {}", answer.status()));
    }
    let body = Limited::new(answer.into_body(), JWKS_BYTES_MAX).collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|fault| fault.to_string())
}

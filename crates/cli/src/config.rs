//! Everything about a server that can be set: flags over environment over file over defaults. What is wrong is
//! told all at once, each with where it was set.

pub mod secure;
#[cfg(test)]
mod tests;
pub mod values;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, Uri};
use tidewheel_core::breaker::BreakerConfig;
use tidewheel_core::limits::{
    AUDIT_RETENTION_MS_DEFAULT, HISTORY_MS_DEFAULT, SCHEDULE_INTERVAL_MS_MIN_DEFAULT,
    SUBMISSIONS_IN_FLIGHT_COUNT_MAX_DEFAULT, TENANT_CATCH_UP_JOBS_PER_S_DEFAULT,
};
use tidewheel_server::access::oidc::OidcConfig;
use tidewheel_server::engine::{FairBy, HostLimits, HostRates};
use tidewheel_server::push::Cidr;
use tidewheel_server::tls::TlsFiles;

use self::secure::Secure;
use crate::serve::ServeArgs;

/// The folder of the embedded store.
pub(crate) const DATA_DEFAULT: &str = "./tidewheel-data";
/// Where the server listens.
pub(crate) const LISTEN_DEFAULT: &str = "127.0.0.1:7400";
/// Pushes under way at a time.
pub(crate) const PUSH_CONCURRENCY_COUNT_DEFAULT: usize = 1_024;
/// Pushes under way at a time to one host.
pub(crate) const PUSH_PER_HOST_COUNT_DEFAULT: usize = 256;
/// Jobs started per second of those missed, backfilled or replayed.
pub(crate) const CATCH_UP_JOBS_PER_S_DEFAULT: u32 = 5_000;
/// How long attempts under way may take to end once the server was told to stop.
pub(crate) const DRAIN_DEFAULT: Duration = Duration::from_secs(20);
/// Whose traces they are.
pub(crate) const OTLP_SERVICE_NAME_DEFAULT: &str = "tidewheel";
/// What is logged.
pub(crate) const LOG_LEVEL_DEFAULT: &str = "info,fjall=warn,lsm_tree=warn";

const ENV_PREFIX: &str = "TIDEWHEEL_";
const CONFIG_ENV: &str = "TIDEWHEEL_CONFIG";

/// How a server is set up.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServeConfig {
    /// The folder of the embedded store.
    pub(crate) data: PathBuf,
    /// The databases that take the place of the folder, in their order.
    pub(crate) store: Vec<String>,
    /// The file their URLs come from.
    pub(crate) store_file: Option<PathBuf>,
    /// Where to listen; a loopback address, unless there is a file with an admin's key.
    pub(crate) listen: SocketAddr,
    /// The file with the first admin's key; made if it is missing.
    pub(crate) admin_key_file: Option<PathBuf>,
    /// What TLS is spoken with.
    pub(crate) tls: Option<TlsFiles>,
    /// Whose tokens are taken as well as keys.
    pub(crate) oidc: Option<OidcConfig>,
    /// Private ranges that push targets may lie in.
    pub(crate) allow_targets: Vec<Cidr>,
    /// Pushes under way at a time.
    pub(crate) push_concurrency: usize,
    /// Pushes under way at a time to one host.
    pub(crate) push_per_host: usize,
    /// The same, to hosts that have their own bound.
    pub(crate) push_per_host_named: HostLimits,
    /// Pushes begun per second to one host.
    pub(crate) host_rates: HostRates,
    /// When a tenant's jobs wait for a host that fails.
    pub(crate) breaker: BreakerConfig,
    /// How long finished jobs are kept.
    pub(crate) history_ms: i64,
    /// Whether the audit trail has what became of every job, or only what was asked for.
    pub(crate) audit: AuditScope,
    /// How long the audit trail is kept.
    pub(crate) audit_retention_ms: i64,
    /// Jobs started per second of those missed, backfilled or replayed.
    pub(crate) catch_up_jobs_per_s: u32,
    /// The same, for each tenant.
    pub(crate) tenant_catch_up_jobs_per_s: u32,
    /// What tenants share by.
    pub(crate) fair_by: FairBy,
    /// Jobs taken from callers and not stored yet.
    pub(crate) submissions_max: usize,
    /// Time between two fires of a schedule, at least.
    pub(crate) min_interval_ms: i64,
    /// The folder of the time zone database; none is the one that comes with the program.
    pub(crate) tz_dir: Option<PathBuf>,
    /// How long attempts under way may take to end once the server was told to stop.
    pub(crate) drain: Duration,
    /// The collector that traces are sent to.
    pub(crate) otlp_endpoint: Option<Uri>,
    /// What is said to it besides.
    pub(crate) otlp_headers: HeaderMap,
    /// Whose traces they are.
    pub(crate) otlp_service_name: String,
    /// The share of the traces that begin here which is sent.
    pub(crate) otlp_sample_ratio: f64,
    /// How to log.
    pub(crate) log_format: LogFormat,
    /// What to log.
    pub(crate) log_level: String,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            data: PathBuf::from(DATA_DEFAULT),
            store: Vec::new(),
            store_file: None,
            listen: values::listen_default(),
            admin_key_file: None,
            tls: None,
            oidc: None,
            allow_targets: Vec::new(),
            push_concurrency: PUSH_CONCURRENCY_COUNT_DEFAULT,
            push_per_host: PUSH_PER_HOST_COUNT_DEFAULT,
            push_per_host_named: HostLimits::default(),
            host_rates: HostRates::default(),
            breaker: BreakerConfig::default(),
            history_ms: HISTORY_MS_DEFAULT,
            audit: AuditScope::All,
            audit_retention_ms: AUDIT_RETENTION_MS_DEFAULT,
            catch_up_jobs_per_s: CATCH_UP_JOBS_PER_S_DEFAULT,
            tenant_catch_up_jobs_per_s: TENANT_CATCH_UP_JOBS_PER_S_DEFAULT,
            fair_by: FairBy::default(),
            submissions_max: SUBMISSIONS_IN_FLIGHT_COUNT_MAX_DEFAULT,
            min_interval_ms: SCHEDULE_INTERVAL_MS_MIN_DEFAULT,
            tz_dir: None,
            drain: DRAIN_DEFAULT,
            otlp_endpoint: None,
            otlp_headers: HeaderMap::new(),
            otlp_service_name: OTLP_SERVICE_NAME_DEFAULT.to_owned(),
            otlp_sample_ratio: 1.0,
            log_format: LogFormat::Text,
            log_level: LOG_LEVEL_DEFAULT.to_owned(),
        }
    }
}

/// What the audit trail has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditScope {
    /// What was asked for, and what became of every job.
    All,
    /// What was asked for.
    Admin,
}

/// How to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For collectors: one JSON object per line.
    Json,
}

/// What can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Data,
    Store,
    StoreFile,
    Listen,
    AdminKeyFile,
    TlsCert,
    TlsKeyFile,
    TlsClientCa,
    TlsClientOptional,
    OidcIssuer,
    OidcAudience,
    OidcKeysFile,
    OidcJwksUrl,
    OidcTenantClaim,
    OidcRolesClaim,
    AllowTarget,
    PushConcurrency,
    PushPerHost,
    HostRate,
    BreakerFailures,
    BreakerPercent,
    BreakerWindow,
    BreakerCooldown,
    BreakerCooldownMax,
    History,
    Audit,
    AuditRetention,
    CatchUpRate,
    TenantCatchUpRate,
    FairBy,
    SubmissionsMax,
    MinInterval,
    TzDir,
    Drain,
    OtlpEndpoint,
    OtlpHeaders,
    OtlpHeadersFile,
    OtlpServiceName,
    OtlpSampleRatio,
    LogFormat,
    LogLevel,
}

impl Key {
    const ALL: [Self; 41] = [
        Self::Data,
        Self::Store,
        Self::StoreFile,
        Self::Listen,
        Self::AdminKeyFile,
        Self::TlsCert,
        Self::TlsKeyFile,
        Self::TlsClientCa,
        Self::TlsClientOptional,
        Self::OidcIssuer,
        Self::OidcAudience,
        Self::OidcKeysFile,
        Self::OidcJwksUrl,
        Self::OidcTenantClaim,
        Self::OidcRolesClaim,
        Self::AllowTarget,
        Self::PushConcurrency,
        Self::PushPerHost,
        Self::HostRate,
        Self::BreakerFailures,
        Self::BreakerPercent,
        Self::BreakerWindow,
        Self::BreakerCooldown,
        Self::BreakerCooldownMax,
        Self::History,
        Self::Audit,
        Self::AuditRetention,
        Self::CatchUpRate,
        Self::TenantCatchUpRate,
        Self::FairBy,
        Self::SubmissionsMax,
        Self::MinInterval,
        Self::TzDir,
        Self::Drain,
        Self::OtlpEndpoint,
        Self::OtlpHeaders,
        Self::OtlpHeadersFile,
        Self::OtlpServiceName,
        Self::OtlpSampleRatio,
        Self::LogFormat,
        Self::LogLevel,
    ];

    /// Its name in the configuration file.
    fn in_file(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Store => "store",
            Self::StoreFile => "store_file",
            Self::Listen => "listen",
            Self::AdminKeyFile => "admin_key_file",
            Self::TlsCert => "tls_cert",
            Self::TlsKeyFile => "tls_key",
            Self::TlsClientCa => "tls_client_ca",
            Self::TlsClientOptional => "tls_client_optional",
            Self::OidcIssuer => "oidc_issuer",
            Self::OidcAudience => "oidc_audience",
            Self::OidcKeysFile => "oidc_keys_file",
            Self::OidcJwksUrl => "oidc_jwks_url",
            Self::OidcTenantClaim => "oidc_tenant_claim",
            Self::OidcRolesClaim => "oidc_roles_claim",
            Self::AllowTarget => "allow_target",
            Self::PushConcurrency => "push_concurrency",
            Self::PushPerHost => "push_per_host",
            Self::HostRate => "host_rate",
            Self::BreakerFailures => "breaker_failures",
            Self::BreakerPercent => "breaker_percent",
            Self::BreakerWindow => "breaker_window",
            Self::BreakerCooldown => "breaker_cooldown",
            Self::BreakerCooldownMax => "breaker_cooldown_max",
            Self::History => "history",
            Self::Audit => "audit",
            Self::AuditRetention => "audit_retention",
            Self::CatchUpRate => "catch_up_rate",
            Self::TenantCatchUpRate => "tenant_catch_up_rate",
            Self::FairBy => "fair_by",
            Self::SubmissionsMax => "submissions_max",
            Self::MinInterval => "min_interval",
            Self::TzDir => "tz_dir",
            Self::Drain => "drain",
            Self::OtlpEndpoint => "otlp_endpoint",
            Self::OtlpHeaders => "otlp_headers",
            Self::OtlpHeadersFile => "otlp_headers_file",
            Self::OtlpServiceName => "otlp_service_name",
            Self::OtlpSampleRatio => "otlp_sample_ratio",
            Self::LogFormat => "log_format",
            Self::LogLevel => "log_level",
        }
    }

    /// Whether it may have several values.
    fn is_list(self) -> bool {
        matches!(self, Self::Store) || self.is_cut_at_commas()
    }

    /// Whether every comma in its text stands between two values. The URL of a database may name several hosts.
    fn is_cut_at_commas(self) -> bool {
        matches!(self, Self::AllowTarget | Self::PushPerHost | Self::HostRate)
    }

    fn as_flag(self) -> String {
        format!("--{}", self.in_file().replace('_', "-"))
    }

    fn as_env(self) -> String {
        format!("{ENV_PREFIX}{}", self.in_file().to_ascii_uppercase())
    }

    /// What other programs that send traces go by; our own name stands above it.
    const USUAL_ENV: [(Self, &'static str); 4] = [
        (Self::OtlpEndpoint, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        (Self::OtlpHeaders, "OTEL_EXPORTER_OTLP_HEADERS"),
        (Self::OtlpServiceName, "OTEL_SERVICE_NAME"),
        (Self::OtlpSampleRatio, "OTEL_TRACES_SAMPLER_ARG"),
    ];

    fn as_usual_env(self) -> Option<&'static str> {
        Self::USUAL_ENV.iter().find(|(key, _)| *key == self).map(|(_, name)| *name)
    }
}

/// What one place sets: texts by key; more than one only where a list is meant.
pub(crate) type Layer = BTreeMap<Key, Vec<String>>;

/// Reads the configuration of a server. The error is a text that names every fault.
pub(crate) fn load(args: &ServeArgs, env: impl Fn(&str) -> Option<String>) -> Result<ServeConfig, String> {
    let env = |name: &str| env(name).filter(|value| !value.is_empty());
    let mut faults = Vec::new();
    let path = args.config.clone().or_else(|| env(CONFIG_ENV).map(PathBuf::from));
    let from_file = path.as_deref().map(|path| file_layer(path, &mut faults)).unwrap_or_default();
    let layers = [args.layer(), env_layer(env), from_file];
    let config = settle(&layers, path.as_deref(), &mut faults);
    if faults.is_empty() {
        return Ok(config);
    }
    let count = match faults.len() {
        1 => "one fault".to_owned(),
        more => format!("{more} faults"),
    };
    Err(format!("the configuration has {count}:\n  {}", faults.join("\n  ")))
}

fn env_layer(env: impl Fn(&str) -> Option<String>) -> Layer {
    // Variables of the same prefix that mean nothing here are left alone: an orchestrator sets some by itself.
    let value = |key: Key| {
        let text = env(&key.as_env()).or_else(|| env(key.as_usual_env()?))?;
        let list = key.is_cut_at_commas();
        Some((
            key,
            if list { text.split(',').map(|part| part.trim().to_owned()).collect() } else { vec![text] },
        ))
    };
    Key::ALL.into_iter().filter_map(value).collect()
}

fn file_layer(path: &Path, faults: &mut Vec<String>) -> Layer {
    let shown = path.display();
    let table = match fs::read_to_string(path).map(|text| text.parse::<toml::Table>()) {
        Ok(Ok(table)) => table,
        Ok(Err(fault)) => {
            faults.push(format!("{shown}: {}", fault.to_string().trim_end().replace('\n', "\n  ")));
            return Layer::new();
        }
        Err(fault) => {
            faults.push(format!("{shown}: {fault}"));
            return Layer::new();
        }
    };
    let mut layer = Layer::new();
    for (name, value) in table {
        match Key::ALL.into_iter().find(|key| key.in_file() == name) {
            None => {
                let near = Key::ALL.into_iter().min_by_key(|key| strsim::osa_distance(&name, key.in_file()));
                let near = near.map(Key::in_file).unwrap_or_default();
                faults.push(format!("{shown}: there is no key {name:?}; the nearest is {near}"));
            }
            Some(key) => match texts(value, key) {
                Some(texts) => drop(layer.insert(key, texts)),
                None => faults.push(format!("{shown}: {name}: expected {}", expected(key))),
            },
        }
    }
    layer
}

fn expected(key: Key) -> &'static str {
    if key.is_list() {
        "an array of texts"
    } else if key == Key::TlsClientOptional {
        "true or false"
    } else {
        "a text or a number"
    }
}

fn texts(value: toml::Value, key: Key) -> Option<Vec<String>> {
    match value {
        toml::Value::String(text) => Some(vec![text]),
        toml::Value::Integer(number) => Some(vec![number.to_string()]),
        toml::Value::Float(number) => Some(vec![number.to_string()]),
        toml::Value::Array(items) if key.is_list() => {
            items.into_iter().map(|item| item.as_str().map(str::to_owned)).collect()
        }
        toml::Value::Boolean(yes) if key == Key::TlsClientOptional => Some(vec![yes.to_string()]),
        toml::Value::Array(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_)
        | toml::Value::Table(_) => None,
    }
}

/// Takes each setting from the first layer that has it, and reads it.
fn settle(layers: &[Layer; 3], path: Option<&Path>, faults: &mut Vec<String>) -> ServeConfig {
    let (mut config, mut secure) = (ServeConfig::default(), Secure::default());
    for key in Key::ALL {
        let Some((index, texts)) =
            layers.iter().enumerate().find_map(|(index, layer)| Some((index, layer.get(&key)?)))
        else {
            continue;
        };
        let is_in_file = index == 2;
        if is_in_file && key == Key::Store && texts.iter().any(|url| secure::has_password(url)) {
            let path = path.unwrap_or(Path::new("")).display();
            faults.push(format!(
                "{path}: store: it has a password in it, and this is no place for one; put the URL in a file of its \
                 own and name that in store_file"
            ));
        }
        if is_in_file && key == Key::OtlpHeaders {
            let path = path.unwrap_or(Path::new("")).display();
            faults.push(format!(
                "{path}: otlp_headers: a collector's key may be in them, and this is no place for one; put them in a \
                 file of their own and name that in otlp_headers_file"
            ));
        }
        if let Err(detail) = values::set(&mut config, &mut secure, key, texts) {
            let source = match index {
                0 => key.as_flag(),
                1 => match key.as_usual_env() {
                    Some(usual) => format!("{} or {usual}", key.as_env()),
                    None => key.as_env(),
                },
                _ => format!("{}: {}", path.unwrap_or(Path::new("")).display(), key.in_file()),
            };
            faults.push(format!("{source}: {detail}"));
        }
    }
    secure::settle(&mut config, secure, faults);
    faults
        .extend(values::open_to_others(&config).map(|detail| format!("{}: {detail}", Key::Listen.as_flag())));
    config
}

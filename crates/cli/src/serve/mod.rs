//! `tidewheel serve`: its flags. What they mean is in [`crate::config`], what happens then in `run`.

mod admin_key;
pub mod descriptors;
mod disk;
pub mod huge_pages;
mod logging;
pub mod node;
mod run;
mod secure_args;
mod store;
mod zoneinfo;

use std::path::PathBuf;

use clap::Args;
use tidewheel_store_postgres::SpreadError;

use self::secure_args::SecureArgs;
use crate::config::{self, Key, Layer};
use crate::failure::Failure;

const EXAMPLES: &str = "\
Every flag has an environment variable, TIDEWHEEL_ and its name (TIDEWHEEL_PUSH_PER_HOST), and a
key in the configuration file (push_per_host). Flags stand above the environment, that above the
file.

Examples:
  tidewheel serve
  tidewheel serve --data /var/lib/tidewheel --listen 127.0.0.1:8080
  tidewheel serve --store postgres://tidewheel@db.example.com/tidewheel
  tidewheel serve --store postgres://db1.example.com/tw --store postgres://db2.example.com/tw
  tidewheel serve --listen 0.0.0.0:7400 --admin-key-file admin.key
  tidewheel serve --tls-cert server.pem --tls-key server.key --admin-key-file admin.key
  tidewheel serve --allow-target 10.0.0.0/8 --push-per-host 32
  tidewheel serve --config tidewheel.toml --log-format json";

/// The flags of `serve`, as text: they are read together with the environment and the configuration file, so
/// that all that is wrong is told at once.
#[derive(Debug, Default, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// A TOML file with settings
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where everything is kept [default: ./tidewheel-data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// A PostgreSQL database to keep everything in instead: postgres://user:password@host:5432/name; given more than
    /// once, shards are spread over them: always the same ones, in the same order
    #[arg(long, value_name = "URL")]
    store: Vec<String>,
    /// Where to listen; on loopback only, unless there is an admin key file [default: 127.0.0.1:7400]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Asks for keys; this file holds the first admin's, and is made if it is missing
    #[arg(long, value_name = "FILE")]
    admin_key_file: Option<String>,
    #[command(flatten)]
    secure: SecureArgs,
    /// Opens a private range of addresses to push targets, such as 10.0.0.0/8; may be given more than once
    #[arg(long, value_name = "CIDR")]
    allow_target: Vec<String>,
    /// Pushes under way at a time [default: 1024]
    #[arg(long, value_name = "COUNT")]
    push_concurrency: Option<String>,
    /// Pushes under way at a time to each host, such as 32, or to one, such as api.example.com=4 or *.example.com=4; may be
    /// given more than once [default: 256]
    #[arg(long, value_name = "COUNT")]
    push_per_host: Vec<String>,
    /// Pushes begun per second to each host, such as 50, or to one, such as api.example.com=5 or *.example.com=5; may be
    /// given more than once [default: no bound]
    #[arg(long, value_name = "RATE")]
    host_rate: Vec<String>,
    /// Failures in a row of a tenant's pushes to a host before its jobs for it wait; 0 is never [default: 50]
    #[arg(long, value_name = "COUNT")]
    breaker_failures: Option<String>,
    /// Hundredths of such pushes within --breaker-window, of 20 at least, that have the same effect by failing; 0 is never
    /// [default: 0]
    #[arg(long, value_name = "PERCENT")]
    breaker_percent: Option<String>,
    /// How long ago a failure counts for that [default: 30s]
    #[arg(long, value_name = "DURATION")]
    breaker_window: Option<String>,
    /// How long they wait until one is tried again; doubles each time that fails [default: 1s]
    #[arg(long, value_name = "DURATION")]
    breaker_cooldown: Option<String>,
    /// How long they wait at most [default: 30s]
    #[arg(long, value_name = "DURATION")]
    breaker_cooldown_max: Option<String>,
    /// How long finished jobs are kept [default: 30d]
    #[arg(long, value_name = "DURATION")]
    history: Option<String>,
    /// What the audit trail has: all, or admin, which leaves out what becomes of each job [default: all]
    #[arg(long, value_name = "SCOPE")]
    audit: Option<String>,
    /// How long the audit trail is kept [default: 90d]
    #[arg(long, value_name = "DURATION")]
    audit_retention: Option<String>,
    /// Jobs started per second of those missed, backfilled or replayed [default: 5000]
    #[arg(long, value_name = "JOBS")]
    catch_up_rate: Option<String>,
    /// The same, for each tenant [default: 2500]
    #[arg(long, value_name = "JOBS")]
    tenant_catch_up_rate: Option<String>,
    /// What tenants share workers and targets by: count (of attempts) or run_time [default: count]
    #[arg(long, value_name = "MEASURE")]
    fair_by: Option<String>,
    /// Jobs taken from callers and not stored yet; nearing it, the least urgent are refused first [default: 200000]
    #[arg(long, value_name = "JOBS")]
    submissions_max: Option<String>,
    /// Time between two fires of a schedule, at least [default: 1m]
    #[arg(long, value_name = "DURATION")]
    min_interval: Option<String>,
    /// A folder with another tz database, as zic compiles it [default: the one that comes with the program]
    #[arg(long, value_name = "DIR")]
    tz_dir: Option<String>,
    /// How long attempts under way may take to end after SIGTERM [default: 20s]
    #[arg(long, value_name = "DURATION")]
    drain: Option<String>,
    /// A collector that is sent traces, by OTLP over HTTP: http://localhost:4318 [env: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// What is said to the collector besides, such as its key: name=value,name=value [env: OTEL_EXPORTER_OTLP_HEADERS]
    #[arg(long, value_name = "HEADERS")]
    otlp_headers: Option<String>,
    /// A file that holds them, instead of --otlp-headers
    #[arg(long, value_name = "FILE")]
    otlp_headers_file: Option<String>,
    /// Whose traces they are [env: OTEL_SERVICE_NAME] [default: tidewheel]
    #[arg(long, value_name = "NAME")]
    otlp_service_name: Option<String>,
    /// The share of the traces that begin here which is sent, from 0 to 1 [env: OTEL_TRACES_SAMPLER_ARG] [default: 1]
    #[arg(long, value_name = "RATIO")]
    otlp_sample_ratio: Option<String>,
    /// How to log: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// What to log: error, warn, info, debug, trace, or by module [default: info,fjall=warn,lsm_tree=warn]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

impl ServeArgs {
    /// What was given.
    pub(crate) fn layer(&self) -> Layer {
        let single = [
            (Key::Data, &self.data),
            (Key::Listen, &self.listen),
            (Key::AdminKeyFile, &self.admin_key_file),
            (Key::PushConcurrency, &self.push_concurrency),
            (Key::BreakerFailures, &self.breaker_failures),
            (Key::BreakerPercent, &self.breaker_percent),
            (Key::BreakerWindow, &self.breaker_window),
            (Key::BreakerCooldown, &self.breaker_cooldown),
            (Key::BreakerCooldownMax, &self.breaker_cooldown_max),
            (Key::History, &self.history),
            (Key::Audit, &self.audit),
            (Key::AuditRetention, &self.audit_retention),
            (Key::CatchUpRate, &self.catch_up_rate),
            (Key::TenantCatchUpRate, &self.tenant_catch_up_rate),
            (Key::FairBy, &self.fair_by),
            (Key::SubmissionsMax, &self.submissions_max),
            (Key::MinInterval, &self.min_interval),
            (Key::TzDir, &self.tz_dir),
            (Key::Drain, &self.drain),
            (Key::OtlpEndpoint, &self.otlp_endpoint),
            (Key::OtlpHeaders, &self.otlp_headers),
            (Key::OtlpHeadersFile, &self.otlp_headers_file),
            (Key::OtlpServiceName, &self.otlp_service_name),
            (Key::OtlpSampleRatio, &self.otlp_sample_ratio),
            (Key::LogFormat, &self.log_format),
            (Key::LogLevel, &self.log_level),
        ];
        let mut layer: Layer =
            single.into_iter().filter_map(|(key, value)| Some((key, vec![value.clone()?]))).collect();
        layer.extend(self.secure.given());
        let lists = [
            (Key::Store, &self.store),
            (Key::AllowTarget, &self.allow_target),
            (Key::PushPerHost, &self.push_per_host),
            (Key::HostRate, &self.host_rate),
        ];
        for (key, list) in lists {
            if !list.is_empty() {
                layer.insert(key, list.clone());
            }
        }
        layer
    }
}

/// Reads the configuration, starts the log, and serves until told to stop.
pub(crate) async fn start(args: Box<ServeArgs>) -> Result<(), Failure> {
    let config = config::load(&args, |name| std::env::var(name).ok()).map_err(Failure::Usage)?;
    logging::start(&config);
    huge_pages::go_without();
    run::run(config).await.map_err(|error| {
        let opened = error.downcast_ref::<SpreadError>();
        if opened.is_some_and(SpreadError::is_unreachable) {
            return Failure::Unreachable(format!("{error:#}"));
        }
        Failure::Server(error)
    })
}

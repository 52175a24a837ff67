//! `tidewheel serve`: its flags. What they mean is in [`crate::config`], what happens then in [`run`].

mod admin_key;
pub(crate) mod descriptors;
mod disk;
mod logging;
pub(crate) mod node;
mod run;
mod secure_args;
mod store;
mod zoneinfo;

use std::path::PathBuf;

use clap::Args;

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
    /// A PostgreSQL database to keep everything in instead: postgres://user:password@host:5432/name
    #[arg(long, value_name = "URL")]
    store: Option<String>,
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
    /// Pushes under way at a time to one host [default: 256]
    #[arg(long, value_name = "COUNT")]
    push_per_host: Option<String>,
    /// How long finished jobs are kept [default: 30d]
    #[arg(long, value_name = "DURATION")]
    history: Option<String>,
    /// Jobs started per second of those missed, backfilled or replayed [default: 5000]
    #[arg(long, value_name = "JOBS")]
    catch_up_rate: Option<String>,
    /// The same, for each tenant [default: 2500]
    #[arg(long, value_name = "JOBS")]
    tenant_catch_up_rate: Option<String>,
    /// Time between two fires of a schedule, at least [default: 1m]
    #[arg(long, value_name = "DURATION")]
    min_interval: Option<String>,
    /// A folder with another tz database, as zic compiles it [default: the one that comes with the program]
    #[arg(long, value_name = "DIR")]
    tz_dir: Option<String>,
    /// How long attempts under way may take to end after SIGTERM [default: 20s]
    #[arg(long, value_name = "DURATION")]
    drain: Option<String>,
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
            (Key::Store, &self.store),
            (Key::Listen, &self.listen),
            (Key::AdminKeyFile, &self.admin_key_file),
            (Key::PushConcurrency, &self.push_concurrency),
            (Key::PushPerHost, &self.push_per_host),
            (Key::History, &self.history),
            (Key::CatchUpRate, &self.catch_up_rate),
            (Key::TenantCatchUpRate, &self.tenant_catch_up_rate),
            (Key::MinInterval, &self.min_interval),
            (Key::TzDir, &self.tz_dir),
            (Key::Drain, &self.drain),
            (Key::LogFormat, &self.log_format),
            (Key::LogLevel, &self.log_level),
        ];
        let mut layer: Layer =
            single.into_iter().filter_map(|(key, value)| Some((key, vec![value.clone()?]))).collect();
        layer.extend(self.secure.given());
        if !self.allow_target.is_empty() {
            layer.insert(Key::AllowTarget, self.allow_target.clone());
        }
        layer
    }
}

/// Reads the configuration, starts the log, and serves until told to stop.
pub(crate) async fn start(args: Box<ServeArgs>) -> Result<(), Failure> {
    let config = config::load(&args, |name| std::env::var(name).ok()).map_err(Failure::Usage)?;
    logging::start(&config);
    run::run(config).await.map_err(Failure::Server)
}

//! `tidewheel serve`: a node, from its start until a signal.

use std::sync::Arc;

use tidewheel_server::engine::Config;
use tidewheel_server::http::HttpLimits;
use tidewheel_server::push::AddressPolicy;
use tidewheel_server::tls::Tls;
use tidewheel_server::traces::ExportConfig;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::admin_key;
use super::node::{Node, NodeConfig};
use crate::config::ServeConfig;
use crate::out::Format;
use crate::out::Out;

/// Serves until told to stop.
pub(crate) async fn run(config: ServeConfig) -> anyhow::Result<()> {
    let drain = config.drain;
    let place = match config.store.len() {
        0 => config.data.display().to_string(),
        1 => "a PostgreSQL database".to_owned(),
        count => format!("{count} PostgreSQL databases"),
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let out = Out::new(Format::Table);
    let admin_key = config.admin_key_file.as_deref().map(admin_key::read_or_make).transpose()?;
    let key_file = config.admin_key_file.as_ref().map(|path| path.display().to_string());
    let node = Node::start(node_config(config, admin_key)).await?;
    out.note(&format!("tidewheel {} listening on {}", env!("CARGO_PKG_VERSION"), node.url()));
    out.note(&format!("  data in {place}; {}", who_may_call(node.is_closed(), key_file.as_deref())));
    let zones = node.engine().zones();
    if let Some(folder) = zones.folder() {
        out.note(&format!("  tz database {} from {folder}", zones.version()));
    }
    let url = node.url();
    out.note(&format!("  web pages at {url}/, the API's docs at {url}/docs"));
    out.note("  metrics at /metrics; `tidewheel top` shows how it is; stop with Ctrl-C");
    if let Some(tls) = node.tls() {
        tokio::spawn(look_when_told(tls, signal(SignalKind::hangup())?));
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!(deadline = ?drain, "stopping: no new attempts, waiting for those under way");
    let stopping = node.stop(drain);
    tokio::select! {
        left = stopping => match left? {
            0 => tracing::info!("stopped"),
            left => tracing::warn!(left, "stopped with attempts under way; the next start takes them up"),
        },
        _ = interrupt.recv() => tracing::warn!("stopped at once; the next start takes up what was under way"),
    }
    Ok(())
}

/// Looks at the certificate's files on every SIGHUP.
async fn look_when_told(tls: Arc<Tls>, mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        tls.look().await;
    }
}

fn who_may_call(is_closed: bool, key_file: Option<&str>) -> String {
    match (is_closed, key_file) {
        (false, _) => {
            "no keys: open on loopback only, to everybody on this machine, as tenant `default`".to_owned()
        }
        (true, Some(file)) => format!("keys are asked for; the first admin's is in {file}"),
        (true, None) => "keys or tokens are asked for".to_owned(),
    }
}

fn node_config(config: ServeConfig, admin_key: Option<String>) -> NodeConfig {
    // Without keys the server is open to this machine only, and so may reach this machine: the node adds that.
    let targets = config.allow_targets.into_iter().fold(AddressPolicy::public_only(), AddressPolicy::allow);
    let (headers, service_name) = (config.otlp_headers, config.otlp_service_name);
    let sample_ratio = config.otlp_sample_ratio;
    let traces =
        config.otlp_endpoint.map(|endpoint| ExportConfig { endpoint, headers, service_name, sample_ratio });
    NodeConfig {
        data: config.data,
        store: config.store,
        listen: config.listen,
        danger_no_sync: false,
        engine: Config {
            push_max: config.push_concurrency,
            push_per_host_max: config.push_per_host,
            push_per_host_named: config.push_per_host_named,
            host_rates: config.host_rates,
            breaker: config.breaker,
            history_ms: config.history_ms,
            audit_retention_ms: config.audit_retention_ms,
            catch_up_per_second: config.catch_up_jobs_per_s,
            tenant_catch_up_per_second: config.tenant_catch_up_jobs_per_s,
            fair_by: config.fair_by,
            ..Config::default()
        },
        http: HttpLimits {
            submissions_count_max: config.submissions_max,
            schedule_interval_ms_min: config.min_interval_ms,
            history_ms: config.history_ms,
            ..HttpLimits::default()
        },
        targets,
        tz_dir: config.tz_dir,
        admin_key,
        audit: config.audit,
        tls: config.tls,
        oidc: config.oidc,
        deliverer: None,
        traces,
    }
}

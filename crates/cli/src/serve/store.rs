//! Which store a node keeps everything in: the folder of the embedded one, or PostgreSQL databases.

use std::sync::Arc;

use anyhow::Context as _;
use tidewheel_core::zones::Zones;
use tidewheel_server::metrics::Metrics;
use tidewheel_store::Store;
use tidewheel_store_embedded::EmbeddedStore;
use tidewheel_store_postgres::open_all;

use super::node::NodeConfig;
use crate::config::AuditScope;

/// Opens the store of a node.
pub(super) async fn open(
    config: &NodeConfig,
    zones: &Zones,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Arc<dyn Store>> {
    if !config.store.is_empty() {
        let options = |url: &String| tidewheel_store_postgres::Options {
            zones: Some(zones.clone()),
            audit_changes: config.audit == AuditScope::All,
            ..tidewheel_store_postgres::Options::new(url)
        };
        let opened = open_all(config.store.iter().map(options).collect()).await;
        return opened.context("cannot use this database: look at --store");
    }
    let metrics = Arc::clone(metrics);
    let mut options = tidewheel_store_embedded::Options::new(&config.data);
    options.danger_no_sync = config.danger_no_sync;
    options.zones = Some(zones.clone());
    options.audit_changes = config.audit == AuditScope::All;
    options.on_commit = Some(Arc::new(move |report| metrics.synced(report.sync_duration)));
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(options)).await;
    Ok(Arc::new(opened.context("opening the store was cut short")??))
}

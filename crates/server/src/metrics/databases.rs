//! Whether each of the databases of a store is up.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tidewheel_store::Database;

/// By its place in the list, of which there are few.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DatabaseLabels {
    database: u16,
}

#[derive(Debug, Default)]
pub(super) struct Databases {
    up: Family<DatabaseLabels, Gauge>,
}

impl Databases {
    pub(super) fn register(&self, registry: &mut Registry) {
        let about = "1 if the database of that index answers and takes writes";
        registry.register("database_up", about, self.up.clone());
    }

    pub(super) fn set(&self, databases: &[Database]) {
        for database in databases {
            let labels = DatabaseLabels { database: database.index };
            self.up.get_or_create(&labels).set(i64::from(database.is_up()));
        }
    }
}

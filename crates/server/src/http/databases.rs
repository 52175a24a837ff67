//! How the databases of a store are told of: which are up, and what is wrong with those that are not. Never where they are: that
//! may have a password in it.

use tidewheel_api::wire::write::JsonWriter;
use tidewheel_store::{Database, Store};

/// Writes the list, if the store is in databases.
pub(super) fn write(out: &mut JsonWriter, store: &dyn Store) {
    let databases = store.databases();
    if !databases.is_empty() {
        out.key("databases").array(|out| databases.iter().for_each(|database| write_one(out, database)));
    }
}

fn write_one(out: &mut JsonWriter, database: &Database) {
    out.object(|out| {
        out.key("index").number(database.index);
        out.key("state").text(if database.is_up() { "up" } else { "down" });
        out.key("shards").number(u64::try_from(database.shards.len()).unwrap_or(0));
        if let Some(reason) = database.trouble() {
            out.key("reason").text(reason);
        }
    });
}

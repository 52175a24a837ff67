//! How the databases of a store are told of: which are up, and what is wrong with those that are not. Never where they are: that
//! may have a password in it.

use tidewheel_api::wire::write::JsonWriter;
use tidewheel_store::{Database, Store};

/// Writes the list, if the store is in databases.
pub(super) fn write(out: &mut JsonWriter, store: &dyn Store) {
    let databases = store.databases();
    if !databases.is_empty() {
        let count = databases.len();
        out.key("databases")
            .array(|out| databases.iter().for_each(|database| write_one(out, database, count)));
    }
}

fn write_one(out: &mut JsonWriter, database: &Database, count: usize) {
    out.object(|out| {
        out.key("index").number(database.index);
        out.key("state").text(if database.is_up() { "up" } else { "down" });
        out.key("shards").number(u64::try_from(database.shards.len()).unwrap_or(0));
        if let Some(reason) = database.trouble() {
            out.key("reason").text(bare(reason, database.index, count));
        }
    });
}

/// The reason without the database's name. In a text about the whole store it says which one is meant, and counts from 1; beside
/// an index, which counts from 0, it would seem to be another one.
fn bare(reason: &str, index: u16, count: usize) -> &str {
    let name = format!("database {} of {count}: ", u32::from(index) + 1);
    reason.strip_prefix(&name).unwrap_or(reason)
}

#[cfg(test)]
mod tests {
    use tidewheel_store::Health;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_database_does_not_number_it_again() {
        let written = |reason: &str| {
            let health = Health::Away(reason.to_owned());
            let database = Database { index: 1, shards: Vec::new(), is_reachable: false, health };
            let mut out = JsonWriter::with_capacity(128);
            write_one(&mut out, &database, 2);
            String::from_utf8(out.into_bytes()).unwrap()
        };
        let wanted = r#"{"index":1,"state":"down","shards":0,"reason":"it is silent"}"#;
        assert_eq!(written("database 2 of 2: it is silent"), wanted);
        assert_eq!(written("it is silent"), wanted);
    }
}

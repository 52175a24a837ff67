//! `tidewheel migrate`: brings databases to the schema this program works with.

use std::path::PathBuf;

use clap::Args;
use tidewheel_store_postgres::{Migrated, Options, SCHEMA_NUMBER, migrate_all};

use crate::config::{secure, values};
use crate::failure::Failure;
use crate::out::Out;

const STORE_ENV: &str = "TIDEWHEEL_STORE";
const STORE_FILE_ENV: &str = "TIDEWHEEL_STORE_FILE";

const EXAMPLES: &str = "\
A server makes the tables of an empty database by itself. An upgrade is: run `migrate` of the new
program, then replace the servers one after the other; those of the version before go on meanwhile.

Examples:
  tidewheel migrate --store postgres://tidewheel@db.example.com/tidewheel
  tidewheel migrate --store postgres://db1.example.com/tw --store postgres://db2.example.com/tw";

/// The flags of `migrate`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MigrateArgs {
    /// The database: postgres://user:password@host:5432/name; all of them and in their order, if there are several
    /// [env: TIDEWHEEL_STORE]
    #[arg(long, value_name = "URL")]
    store: Vec<String>,
    /// A file that holds that URL; one to a line [env: TIDEWHEEL_STORE_FILE]
    #[arg(long, value_name = "FILE", conflicts_with = "store")]
    store_file: Option<PathBuf>,
    /// The schema to go to, up or down; 0 takes away everything, jobs included [default: the newest]
    #[arg(long, value_name = "NUMBER")]
    to: Option<i32>,
}

/// Migrates, and says what was done.
pub(crate) async fn run(args: MigrateArgs, out: Out) -> Result<(), Failure> {
    let urls = databases(args.store, args.store_file)?;
    let target = args.to.unwrap_or(SCHEMA_NUMBER);
    if !(0..=SCHEMA_NUMBER).contains(&target) {
        return Err(Failure::Usage(format!("--to: this program knows schemas 0 to {SCHEMA_NUMBER}")));
    }
    let all = urls.iter().map(|url| Options::new(url)).collect();
    let done = migrate_all(all, target, &|waits| out.note(waits)).await.map_err(|error| {
        let text = error.to_string();
        if error.is_unreachable() { Failure::Unreachable(text) } else { Failure::Refused(text) }
    })?;
    for (number, Migrated { from, to }) in (1_usize..).zip(&done) {
        let which = if done.len() == 1 { "the database".to_owned() } else { format!("database {number}") };
        if from == to {
            out.note(&format!("{which} has schema {to} already"));
        } else {
            out.note(&format!("{which} had schema {from}, and has {to} now"));
        }
    }
    Ok(())
}

/// The URLs of the databases: flags stand above the environment.
fn databases(store: Vec<String>, store_file: Option<PathBuf>) -> Result<Vec<String>, Failure> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let from_flags = !store.is_empty() || store_file.is_some();
    let (urls, file) = if from_flags {
        (store, store_file)
    } else {
        (set(STORE_ENV).into_iter().collect(), set(STORE_FILE_ENV).map(PathBuf::from))
    };
    let refused = |flag: &str, fault: String| Failure::Usage(format!("{flag}: {fault}"));
    match file.filter(|_| urls.is_empty()) {
        Some(file) => {
            let urls = secure::secret_in(&file).and_then(|urls| values::stores(urls.lines()));
            urls.map_err(|fault| refused("--store-file", format!("{}: {fault}", file.display())))
        }
        None => {
            let urls = values::stores(urls.iter().map(String::as_str));
            urls.map_err(|fault| refused("--store", fault))
        }
    }
}

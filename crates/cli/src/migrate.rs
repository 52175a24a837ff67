//! `tidewheel migrate`: brings a database to the schema this program works with.

use std::path::PathBuf;

use clap::Args;
use tidewheel_store_postgres::{Options, SCHEMA_NUMBER, migrate};

use crate::config::{secure, values};
use crate::failure::Failure;
use crate::out::Out;

const STORE_ENV: &str = "TIDEWHEEL_STORE";
const STORE_FILE_ENV: &str = "TIDEWHEEL_STORE_FILE";

const EXAMPLES: &str = "\
A server makes the tables of an empty database by itself. An upgrade is: run `migrate` of the new
program, then replace the servers one after the other; those of the version before go on meanwhile.

Examples:
  tidewheel migrate --store postgres://tidewheel@db.example.com/tidewheel";

/// The flags of `migrate`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MigrateArgs {
    /// The database: postgres://user:password@host:5432/name [env: TIDEWHEEL_STORE]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// A file that holds that URL [env: TIDEWHEEL_STORE_FILE]
    #[arg(long, value_name = "FILE", conflicts_with = "store")]
    store_file: Option<PathBuf>,
    /// The schema to go to, up or down; 0 takes away everything, jobs included [default: the newest]
    #[arg(long, value_name = "NUMBER")]
    to: Option<i32>,
}

/// Migrates, and says what was done.
pub(crate) async fn run(args: MigrateArgs, out: Out) -> Result<(), Failure> {
    let url = database(args.store, args.store_file)?;
    let target = args.to.unwrap_or(SCHEMA_NUMBER);
    if !(0..=SCHEMA_NUMBER).contains(&target) {
        return Err(Failure::Usage(format!("--to: this program knows schemas 0 to {SCHEMA_NUMBER}")));
    }
    let done =
        migrate(&Options::new(&url), target).await.map_err(|error| Failure::Refused(error.to_string()))?;
    if done.from == done.to {
        out.note(&format!("the database has schema {} already", done.to));
    } else {
        out.note(&format!("the database had schema {}, and has {} now", done.from, done.to));
    }
    Ok(())
}

/// The URL of the database: flags stand above the environment.
fn database(store: Option<String>, store_file: Option<PathBuf>) -> Result<String, Failure> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let from_flags = store.is_some() || store_file.is_some();
    let (url, file) = if from_flags {
        (store, store_file)
    } else {
        (set(STORE_ENV), set(STORE_FILE_ENV).map(PathBuf::from))
    };
    let refused = |flag: &str, fault: String| Failure::Usage(format!("{flag}: {fault}"));
    match (url, file) {
        (None, Some(file)) => {
            let url = secure::secret_in(&file).and_then(|url| values::store(&url));
            url.map_err(|fault| refused("--store-file", format!("{}: {fault}", file.display())))
        }
        (url, _) => values::store(&url.unwrap_or_default()).map_err(|fault| refused("--store", fault)),
    }
}

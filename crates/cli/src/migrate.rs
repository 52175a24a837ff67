//! `tidewheel migrate`: brings a database to the schema this program works with.

use clap::Args;
use tidewheel_store_postgres::{Options, SCHEMA_NUMBER, migrate};

use crate::config::values;
use crate::failure::Failure;
use crate::out::Out;

const STORE_ENV: &str = "TIDEWHEEL_STORE";

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
    /// The schema to go to, up or down; 0 takes away everything, jobs included [default: the newest]
    #[arg(long, value_name = "NUMBER")]
    to: Option<i32>,
}

/// Migrates, and says what was done.
pub(crate) async fn run(args: MigrateArgs, out: Out) -> Result<(), Failure> {
    let given = args.store.or_else(|| std::env::var(STORE_ENV).ok()).unwrap_or_default();
    let url = values::store(&given).map_err(|fault| Failure::Usage(format!("--store: {fault}")))?;
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

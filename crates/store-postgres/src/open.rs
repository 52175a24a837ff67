//! Opening: the schema is looked at, what was fixed when it was made is read, and settings that would lose
//! acknowledged jobs are told.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tidewheel_store::Error;

use crate::connections::{Connections, Lane};
use crate::fault::{Trouble, store_error};
use crate::migrate::{MigrateError, prepare};
use crate::news;
use crate::options::Options;
use crate::recall::Recall;
use crate::record::rule::Rules;
use crate::store::{Database, PostgresStore, plain};
use crate::submit::Submissions;
use crate::upkeep;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its schema.
    #[error(transparent)]
    Schema(#[from] MigrateError),
    /// It cannot be read.
    #[error(transparent)]
    Store(#[from] Error),
}

impl PostgresStore {
    /// Opens the store at `options.url`; makes its tables if there are none.
    ///
    /// # Errors
    /// When the database cannot be reached, or its schema is not this program's.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        prepare(&options).await?;
        let connections = Arc::new(Connections::new(&options)?);
        let shards = shards_of(&connections).await.map_err(plain)?;
        warn_of_settings(&connections).await.map_err(plain)?;
        connections.reserve().await;
        let recall = Arc::new(Recall::default());
        let upkeep = upkeep::spawn(&connections, &recall, shards, options.makes_partitions);
        let news = tokio::sync::Mutex::new(news::listen(&options, &connections));
        let (schema, audit_changes) = (options.schema, options.audit_changes);
        let rules = Rules::new(options.zones);
        let kept_days = Mutex::default();
        let database = Arc::new(Database {
            connections,
            rules,
            shards,
            recall,
            keys_repeat: AtomicBool::new(false),
            audit_changes,
            schema,
            kept_days,
            news,
        });
        let submissions = Submissions::start(&database);
        Ok(Self { database, submissions, upkeep })
    }
}

async fn shards_of(connections: &Connections) -> Result<u16, Trouble> {
    let client = connections.get(Lane::Scheduler).await?;
    let row = client.query_one("SELECT shards FROM settings", &[]).await?;
    let shards: i32 = row.try_get(0)?;
    Ok(u16::try_from(shards).map_err(|_| Error::Corrupt("the number of shards".to_owned()))?)
}

/// With either off, a crash of the database's machine loses what was acknowledged.
async fn warn_of_settings(connections: &Connections) -> Result<(), Trouble> {
    let client = connections.get(Lane::Scheduler).await?;
    for setting in ["synchronous_commit", "fsync"] {
        let row = client.query_one("SELECT current_setting($1)", &[&setting]).await;
        let value: String = row.and_then(|row| row.try_get(0)).map_err(|error| store_error(&error))?;
        if value == "off" {
            tracing::warn!(
                setting,
                "the database may lose acknowledged jobs in a crash: turn this setting on (docs/operating.md)"
            );
        }
    }
    Ok(())
}

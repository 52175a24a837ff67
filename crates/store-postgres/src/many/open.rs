//! Opening and migrating several databases. The first must be there: it has the documents, and says how many shards there are.
//! Others may come later.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::future::join_all;
use tidewheel_core::limits::DATABASES_COUNT_MAX;
use tidewheel_store::Store;

use super::part::Part;
use super::seat::Seat;
use super::{Spread, watch};
use crate::migrate::{MigrateError, Migrated, SEATS_SINCE, Teller, migrate_telling};
use crate::open::OpenError;
use crate::options::Options;
use crate::store::{PostgresStore, plain};

/// Why databases cannot be used together.
#[derive(Debug, thiserror::Error)]
pub enum SpreadError {
    /// None, or too many.
    #[error("{0} databases are given, and 1 to {DATABASES_COUNT_MAX} can be used")]
    Count(usize),
    /// One cannot be used.
    #[error("database {number} of {count}: {error}")]
    One {
        /// Its place in the list, from 1.
        number: u16,
        /// How many are given.
        count: u16,
        /// Why.
        error: OpenError,
    },
    /// One was made for another list.
    #[error("database {number} of {count} {mismatch}")]
    Misplaced {
        /// Its place in the list, from 1.
        number: u16,
        /// How many are given.
        count: u16,
        /// What does not fit.
        mismatch: String,
    },
}

impl SpreadError {
    fn of(seat: &Seat, error: impl Into<OpenError>) -> Self {
        Self::One { number: seat.index + 1, count: seat.count, error: error.into() }
    }

    /// Whether it may be different in a moment: the database cannot be reached.
    fn may_pass(&self) -> bool {
        match self {
            Self::One { error: OpenError::Store(error), .. } => error.is_retryable(),
            Self::One {
                error: OpenError::Schema(MigrateError::Failed(_) | MigrateError::Unreachable(_)),
                ..
            } => true,
            Self::One { .. } | Self::Count(_) | Self::Misplaced { .. } => false,
        }
    }

    /// Whether the reason is that a database gave no answer.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::One { error: OpenError::Schema(MigrateError::Unreachable(_)), .. })
    }
}

/// Gives each its seat in the list.
fn seated(all: Vec<Options>) -> Result<Vec<Options>, SpreadError> {
    let given = all.len();
    let count = u16::try_from(given).ok().filter(|_| (1..=DATABASES_COUNT_MAX).contains(&given));
    let count = count.ok_or(SpreadError::Count(given))?;
    let each = (0..count)
        .zip(all)
        .map(|(index, options)| Options { seat: Seat { index, count, cluster: None }, ..options });
    Ok(each.collect())
}

/// Opens one, and looks whether it is what it is given as.
pub(super) async fn open_part(options: Options) -> Result<PostgresStore, SpreadError> {
    let (seat, shards) = (options.seat.clone(), options.shards);
    let failed = |error: OpenError| SpreadError::of(&seat, error);
    let store = PostgresStore::open(options).await.map_err(failed)?;
    let made = Seat::read(&store.database.connections).await;
    let made = made.map_err(|trouble| failed(plain(trouble).into()))?;
    let misplaced =
        |mismatch: String| SpreadError::Misplaced { number: seat.index + 1, count: seat.count, mismatch };
    if let Some(mismatch) = made.mismatch(&seat) {
        return Err(misplaced(mismatch));
    }
    let found = store.layout().shards;
    if seat.index > 0 && found != shards {
        return Err(misplaced(format!("has {found} shards, and the first one {shards}")));
    }
    Ok(store)
}

/// Opens the store that is in these databases; makes the tables of those that have none.
///
/// # Errors
/// When the first cannot be reached, or one is not what it is given as. Others that cannot be reached are opened once they
/// can be.
pub async fn open_all(all: Vec<Options>) -> Result<Arc<dyn Store>, SpreadError> {
    let mut all = seated(all)?.into_iter();
    let Some(mut first) = all.next() else { return Err(SpreadError::Count(0)) };
    let store = open_part(first.clone()).await?;
    if all.len() == 0 {
        return Ok(Arc::new(store));
    }
    let shards = store.layout().shards;
    let connections = &store.database.connections;
    let seat = first.seat.clone();
    let failed = |trouble| SpreadError::of(&seat, plain(trouble));
    let made = Seat::read(connections).await.map_err(failed)?;
    first.seat.cluster.clone_from(&made.cluster);
    let used = Seat::used(connections).await.map_err(failed)?;
    let others = all.map(|options| Options {
        shards,
        makes_tables: !used.contains(&options.seat.index),
        seat: Seat { cluster: made.cluster.clone(), ..options.seat.clone() },
        ..options
    });
    let others = join_all(others.map(open_or_wait)).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let opened = others.iter().filter(|part| part.is_open() && part.options.makes_tables);
    for part in opened {
        part.options.seat.note_used(connections).await.map_err(failed)?;
    }
    let first = Arc::new(Part::open(first, store));
    let others = others.into_iter().map(Arc::new);
    let parts: Vec<Arc<Part>> = std::iter::once(Arc::clone(&first)).chain(others).collect();
    let watches = parts.iter().map(|part| watch::spawn(part, &first)).collect();
    Ok(Arc::new(Spread { parts, shards, is_closed: AtomicBool::new(false), watches }))
}

async fn open_or_wait(options: Options) -> Result<Part, SpreadError> {
    match open_part(options.clone()).await {
        Ok(store) => Ok(Part::open(options, store)),
        Err(error) if error.may_pass() => {
            tracing::error!(%error, "a database cannot be reached; its shards stand still until it can be");
            Ok(Part::away(options, &error.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// Brings the schemas of all these databases to `target`, one after the other; says what was done to each, and tells meanwhile
/// what is waited for.
///
/// # Errors
/// When one refuses, or was made for another list; those before it are done.
pub async fn migrate_all(
    all: Vec<Options>,
    target: i32,
    told: Teller<'_>,
) -> Result<Vec<Migrated>, SpreadError> {
    let mut done = Vec::new();
    let mut cluster = None;
    for mut options in seated(all)? {
        options.seat.cluster.clone_from(&cluster);
        let migrated = migrate_telling(&options, target, told).await;
        done.push(migrated.map_err(|error| SpreadError::of(&options.seat, error))?);
        // An older schema says nothing of others.
        if target >= SEATS_SINCE && options.seat.count > 1 {
            let made = made_for(&options).await?;
            cluster = cluster.or(made.cluster);
        }
    }
    Ok(done)
}

/// Looks whether a database is what it is given as, without opening it.
async fn made_for(options: &Options) -> Result<Seat, SpreadError> {
    let seat = &options.seat;
    let connections =
        crate::connections::Connections::new(options).map_err(|error| SpreadError::of(seat, error))?;
    let made = Seat::read(&connections).await;
    connections.close();
    let made = made.map_err(|trouble| SpreadError::of(seat, plain(trouble)))?;
    match made.mismatch(seat) {
        Some(mismatch) => Err(SpreadError::Misplaced { number: seat.index + 1, count: seat.count, mismatch }),
        None => Ok(made),
    }
}

//! Statements over many rows, sent one behind the other without waiting for answers in between.

use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::ClientWrapper;
use futures_util::future::{join_all, join3};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Statement};

use crate::fault::Trouble;

/// One column of rows to be written or taken out.
pub(crate) type Column = Box<dyn ToSql + Sync + Send>;

/// A statement over many rows.
pub(crate) struct Batch {
    pub(crate) sql: &'static str,
    pub(crate) columns: Vec<Column>,
    /// How many rows it must touch, if another's change would make it fewer.
    pub(crate) expected: Option<usize>,
}

/// Columns that become a [`Batch`] together.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Default)]
        struct $name { $($field: Vec<$type>),+ }

        impl $name {
            /// With a statement of its own for one row alone, which takes values instead of arrays:
            /// to unfold these costs the database a fifth of what it takes to put the row in.
            #[allow(dead_code, reason = "only what is often put in alone")]
            fn batch_or_one(
                mut self,
                one: &'static str,
                many: &'static str,
                batches: &mut Vec<$crate::batch::Batch>,
            ) {
                if [$(self.$field.len()),+].into_iter().all(|count| count == 1) {
                    let columns: Vec<$crate::batch::Column> = vec![$(Box::new(self.$field.pop())),+];
                    batches.push($crate::batch::Batch { sql: one, columns, expected: None });
                } else {
                    self.batch(many, false, batches);
                }
            }

            fn batch(
                self,
                sql: &'static str,
                is_counted: bool,
                batches: &mut Vec<$crate::batch::Batch>,
            ) {
                let counts = [$(self.$field.len()),+];
                let count = counts.first().copied().unwrap_or(0);
                if count > 0 {
                    let columns: Vec<$crate::batch::Column> = vec![$(Box::new(self.$field)),+];
                    batches.push($crate::batch::Batch { sql, columns, expected: is_counted.then_some(count) });
                }
            }
        }
    };
}
pub(crate) use table;

impl Batch {
    fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect()
    }
}

/// Prepares the statements on this connection, where they are kept.
async fn prepare(client: &ClientWrapper, batches: &[Batch]) -> Result<Vec<Statement>, Trouble> {
    let mut prepared = Vec::with_capacity(batches.len());
    for batch in batches {
        prepared.push(client.prepare_cached(batch.sql).await?);
    }
    Ok(prepared)
}

/// Sends all.
pub(crate) async fn send(client: &ClientWrapper, batches: &[Batch]) -> Result<(), Trouble> {
    let prepared = prepare(client, batches).await?;
    let sending = batches
        .iter()
        .zip(&prepared)
        .map(|(batch, statement)| async move { client.execute(statement, &batch.parameters()).await });
    // Each is sent when it is first looked at, which is in this order.
    for (outcome, batch) in join_all(sending).await.into_iter().zip(batches) {
        let count = outcome?;
        if batch.expected.is_some_and(|expected| u64::try_from(expected) != Ok(count)) {
            return Err(Trouble::Raced);
        }
    }
    Ok(())
}

/// Whether a transaction that was sent in one flight took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    Done,
    /// What it held to be so is not: nothing was written.
    Refuted,
}

/// What became of a whole transaction that was sent in one flight.
pub(crate) struct Flown {
    pub(crate) outcome: Result<Written, Trouble>,
    /// Whether the database said how it ended, and the connection is of use for others.
    pub(crate) is_known: bool,
}

/// Sends a whole transaction, from its beginning to its end, before any of it is answered: one
/// round trip. The first statement that fails has the database refuse all behind it, and take the
/// commit for an undoing. None of the batches may be one whose rows are counted: nobody could look
/// at the count before the commit.
pub(crate) async fn fly(client: &ClientWrapper, begin: &str, batches: &[Batch]) -> Flown {
    let prepared = match prepare(client, batches).await {
        Ok(prepared) => prepared,
        // Nothing was begun.
        Err(trouble) => return Flown { outcome: Err(trouble), is_known: false },
    };
    // One that cannot even be sent must not be missing from what is committed.
    let is_whole = AtomicBool::new(true);
    let writing = batches.iter().zip(&prepared).map(|(batch, statement)| {
        let is_whole = &is_whole;
        async move {
            let outcome = client.execute(statement, &batch.parameters()).await;
            if outcome.is_err() {
                is_whole.store(false, Ordering::SeqCst);
            }
            outcome
        }
    });
    let ending = async {
        let statement = if is_whole.load(Ordering::SeqCst) { "COMMIT" } else { "ROLLBACK" };
        client.batch_execute(statement).await
    };
    // Each is sent when it is first looked at, which is in this order.
    let (begun, outcomes, ended) = join3(client.batch_execute(begin), join_all(writing), ending).await;
    let is_known = ended.as_ref().map_or_else(|error| error.code().is_some(), |()| true);
    // The first to fail says why.
    let outcomes = outcomes.into_iter().filter_map(Result::err);
    let failed = begun.err().into_iter().chain(outcomes).chain(ended.err()).next();
    let outcome = match failed {
        None => Ok(Written::Done),
        Some(error) if is_refuted(&error) => Ok(Written::Refuted),
        Some(error) => Err(error.into()),
    };
    Flown { outcome, is_known }
}

/// What a statement ends with that holds something to be so, if it is not: it has the database read
/// a number in a text that says why. So the database's log says why, too, and nobody takes it for a
/// fault.
const REFUTED: &str = "tidewheel looks again: ";

fn is_refuted(error: &Error) -> bool {
    error.code() == Some(&SqlState::INVALID_TEXT_REPRESENTATION)
        && error.as_db_error().is_some_and(|error| error.message().contains(REFUTED))
}

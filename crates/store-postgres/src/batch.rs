//! Statements over many rows, sent one behind the other without waiting for answers in between.

use deadpool_postgres::ClientWrapper;
use futures_util::future::{join, join_all};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

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

/// Sends all, and a question behind them, which sees what they wrote.
pub(crate) async fn send(
    client: &ClientWrapper,
    batches: Vec<Batch>,
    question: Option<Batch>,
) -> Result<Vec<Row>, Trouble> {
    let mut prepared = Vec::with_capacity(batches.len());
    for batch in &batches {
        prepared.push(client.prepare_cached(batch.sql).await?);
    }
    let asked = match &question {
        Some(batch) => Some((batch, client.prepare_cached(batch.sql).await?)),
        None => None,
    };
    let sending = batches
        .iter()
        .zip(&prepared)
        .map(|(batch, statement)| async move { client.execute(statement, &batch.parameters()).await });
    let asking = async {
        match &asked {
            Some((batch, statement)) => client.query(statement, &batch.parameters()).await,
            None => Ok(Vec::new()),
        }
    };
    // Each is sent when it is first looked at, which is in this order.
    let (outcomes, answer) = join(join_all(sending), asking).await;
    for (outcome, batch) in outcomes.into_iter().zip(&batches) {
        let count = outcome?;
        if batch.expected.is_some_and(|expected| u64::try_from(expected) != Ok(count)) {
            return Err(Trouble::Raced);
        }
    }
    Ok(answer?)
}

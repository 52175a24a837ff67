//! What a database is among those of its cluster: which of how many. It is fixed when its tables are made, because the jobs of
//! a shard are where they were put; given in another order or number, a database would be asked for what it does not have.

use tidewheel_store::Error;

use crate::connections::{Connections, Lane};
use crate::fault::Trouble;

/// Which of how many databases of which cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Its place in the list, from 0.
    pub index: u16,
    /// How many there are.
    pub count: u16,
    /// The id that all of them have; the first one draws it.
    pub cluster: Option<String>,
}

impl Default for Seat {
    /// The only one.
    fn default() -> Self {
        Self { index: 0, count: 1, cluster: None }
    }
}

impl Seat {
    /// Notes it in a database that was never used, or only ever for the shards that this seat has, as one that was migrated
    /// down and up again: whoever used it alone had all shards.
    pub(crate) fn taking(&self) -> String {
        let Self { index, count, cluster } = self;
        if *count == 1 {
            return String::new();
        }
        // The id was read from another database, as one.
        let cluster = cluster.as_ref().map(|id| format!(", cluster = '{id}'")).unwrap_or_default();
        let others = [("shard_leases", "shard"), ("checkpoints", "shard"), ("audit_chains", "chain")].map(
            |(table, shard)| format!("NOT EXISTS (SELECT FROM {table} WHERE {shard} % {count} <> {index})"),
        );
        format!(
            "UPDATE settings SET databases = {count}, place = {index}{cluster} WHERE {}",
            others.join(" AND ")
        )
    }

    /// What is noted in a database.
    pub(super) async fn read(connections: &Connections) -> Result<Self, Trouble> {
        let client = connections.get(Lane::Scheduler).await?;
        let row = client.query_one("SELECT databases, place, cluster::text FROM settings", &[]).await?;
        let number = |column: usize| {
            let number: i16 = row.try_get(column)?;
            u16::try_from(number).map_err(|_| Error::Corrupt("the number of databases".to_owned()).into())
        };
        let (count, index): (Result<u16, Trouble>, Result<u16, Trouble>) = (number(0), number(1));
        Ok(Self { count: count?, index: index?, cluster: Some(row.try_get(2)?) })
    }

    /// The places that were used with the first database, as it has noted them. An empty database in one of them is not that one:
    /// with new tables it would be asked for jobs that it does not have.
    pub(super) async fn used(first: &Connections) -> Result<Vec<u16>, Trouble> {
        let client = first.get(Lane::Scheduler).await?;
        let row = client.query_one("SELECT used FROM settings", &[]).await?;
        let places: Vec<i16> = row.try_get(0)?;
        Ok(places.into_iter().map(i16::cast_unsigned).collect())
    }

    /// Notes in the first database that this one is used.
    pub(super) async fn note_used(&self, first: &Connections) -> Result<(), Trouble> {
        let client = first.get(Lane::Scheduler).await?;
        let place = self.index.cast_signed();
        let sql = "UPDATE settings SET used = used || $1::smallint WHERE NOT $1::smallint = ANY (used)";
        client.execute(sql, &[&place]).await?;
        Ok(())
    }

    /// What is wrong with giving a database that was made for `self` as `given`.
    pub(super) fn mismatch(&self, given: &Self) -> Option<String> {
        let numbers = |seat: &Self| match seat.count {
            1 => "the only one".to_owned(),
            count => format!("number {} of {count}", seat.index + 1),
        };
        if (self.index, self.count) != (given.index, given.count) {
            return Some(format!(
                "was made to be {} and is given as {}; give all databases of the cluster, in the order they were made in: \
                 neither that nor their number can be changed",
                numbers(self),
                numbers(given)
            ));
        }
        let is_foreign = given.cluster.is_some() && given.cluster != self.cluster;
        is_foreign.then(|| "belongs to another cluster than the first one".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(index: u16, count: u16, cluster: &str) -> Seat {
        Seat { index, count, cluster: Some(cluster.to_owned()) }
    }

    #[test]
    fn a_database_is_taken_for_what_it_was_made_for_and_nothing_else() {
        let made = seat(1, 2, "a");
        assert_eq!(made.mismatch(&made), None);
        assert_eq!(made.mismatch(&Seat { cluster: None, ..made.clone() }), None);
        for (given, said) in [
            (seat(0, 2, "a"), "number 2 of 2 and is given as number 1 of 2"),
            (seat(1, 3, "a"), "number 2 of 2 and is given as number 2 of 3"),
            (Seat::default(), "number 2 of 2 and is given as the only one"),
            (seat(1, 2, "b"), "another cluster"),
        ] {
            let text = made.mismatch(&given).unwrap();
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn only_one_of_several_is_noted() {
        assert_eq!(Seat::default().taking(), "");
        assert!(seat(1, 2, "x").taking().contains("databases = 2, place = 1, cluster = 'x'"));
    }
}

//! Cutting batches apart by database, and putting the answers back in the order of the questions.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use tidewheel_store::Error;

use super::Spread;
use super::part::Part;

/// What goes to one database: the items, and where each stood.
struct Share<T> {
    home: usize,
    at: Vec<usize>,
    items: Vec<T>,
}

fn shares<T>(items: Vec<T>, home: impl Fn(&T) -> usize) -> Vec<Share<T>> {
    let mut shares: BTreeMap<usize, Share<T>> = BTreeMap::new();
    for (at, item) in items.into_iter().enumerate() {
        let home = home(&item);
        let share = shares.entry(home).or_insert_with(|| Share { home, at: Vec::new(), items: Vec::new() });
        share.at.push(at);
        share.items.push(item);
    }
    shares.into_values().collect()
}

/// The answers of one database, or why there are none, with where they belong.
pub(super) type Answered<A> = (Vec<usize>, Result<Vec<A>, Error>);

/// Puts answers where they belong. What has no answer has none because of `missing`.
pub(super) fn in_order<A>(
    all: Vec<Answered<A>>,
    missing: impl Fn() -> Result<A, Error>,
) -> Result<Vec<A>, Error> {
    let mut ordered: BTreeMap<usize, A> = BTreeMap::new();
    for (at, answers) in all {
        let mut answers = answers.into_iter().flatten();
        for at in at {
            ordered.insert(at, answers.next().map_or_else(&missing, Ok)?);
        }
    }
    Ok(ordered.into_values().collect())
}

impl Spread {
    /// Asks each database for its share of a batch, all at the same time.
    pub(super) async fn split<'a, T, A, F>(
        &'a self,
        items: Vec<T>,
        home: impl Fn(&T) -> usize,
        ask: impl Fn(&'a Part, Vec<T>) -> F,
    ) -> Result<Vec<Answered<A>>, Error>
    where
        F: Future<Output = Result<Vec<A>, Error>>,
    {
        // A batch may be empty, and then asks nobody.
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        let asked = shares(items, home).into_iter().map(|Share { home, at, items }| {
            let part = self.part(home)?;
            let answers = ask(part, items);
            Ok(async move { (at, answers.await) })
        });
        let asked = asked.collect::<Result<Vec<_>, Error>>()?;
        Ok(join_all(asked).await)
    }

    /// The same, where a database that fails fails it all.
    pub(super) async fn split_whole<'a, T, A, F>(
        &'a self,
        items: Vec<T>,
        home: impl Fn(&T) -> usize,
        ask: impl Fn(&'a Part, Vec<T>) -> F,
    ) -> Result<Vec<A>, Error>
    where
        F: Future<Output = Result<Vec<A>, Error>>,
    {
        let mut all = self.split(items, home, ask).await?;
        if let Some(failed) = all.iter().position(|(_, answers)| answers.is_err())
            && let (_, Err(error)) = all.swap_remove(failed)
        {
            return Err(error);
        }
        in_order(all, short)
    }

    /// Asks these databases at the same time.
    pub(super) async fn ask_each<'a, A, F>(
        &'a self,
        parts: impl IntoIterator<Item = &'a Part>,
        ask: impl Fn(&'a Part) -> F,
    ) -> Vec<Result<A, Error>>
    where
        F: Future<Output = Result<A, Error>>,
    {
        join_all(parts.into_iter().map(ask)).await
    }

    /// Asks these databases at the same time; one that fails fails it all.
    pub(super) async fn ask_whole<'a, A, F>(
        &'a self,
        parts: impl IntoIterator<Item = &'a Part>,
        ask: impl Fn(&'a Part) -> F,
    ) -> Result<Vec<A>, Error>
    where
        F: Future<Output = Result<A, Error>>,
    {
        self.ask_each(parts, ask).await.into_iter().collect()
    }

    /// Asks all databases at the same time, and makes do with those that answer.
    pub(super) async fn ask_those_there<'a, A, F>(
        &'a self,
        ask: impl Fn(&'a Part) -> F,
    ) -> Result<Vec<A>, Error>
    where
        F: Future<Output = Result<A, Error>>,
    {
        those_there(self.ask_each(self.all(), ask).await)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().map(|part| &**part)
    }
}

/// A database gave fewer answers than it was asked for.
pub(super) fn short<A>() -> Result<A, Error> {
    Err(Error::Corrupt("a database gave too few answers".to_owned()))
}

/// What was answered, unless nobody did, or something is wrong that will not pass.
fn those_there<A>(asked: Vec<Result<A, Error>>) -> Result<Vec<A>, Error> {
    let (mut answers, mut failed) = (Vec::with_capacity(asked.len()), None);
    for answer in asked {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(error) if error.is_retryable() => failed = Some(error),
            Err(error) => return Err(error),
        }
    }
    match failed {
        Some(error) if answers.is_empty() => Err(error),
        Some(_) | None => Ok(answers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_stand_in_the_order_of_the_questions() {
        let shares = shares(vec![7, 2, 9, 4], |number| number % 2);
        let answered = shares.into_iter().map(|share| {
            (share.at, Ok(share.items.into_iter().map(|number| number * 10).collect::<Vec<_>>()))
        });
        assert_eq!(in_order(answered.collect(), short).unwrap(), [70, 20, 90, 40]);
    }

    #[test]
    fn what_one_did_not_answer_is_filled_in() {
        let away = Err(Error::Unavailable("x".to_owned()));
        let answered = vec![(vec![0, 2], Ok(vec!["a", "c"])), (vec![1], away)];
        assert_eq!(in_order(answered, || Ok("-")).unwrap(), ["a", "-", "c"]);
    }

    #[test]
    fn those_there_are_enough_while_there_are_some() {
        let away = || Err(Error::Unavailable("x".to_owned()));
        assert_eq!(those_there(vec![Ok(1), away(), Ok(3)]).unwrap(), [1, 3]);
        assert!(those_there::<u8>(vec![away(), away()]).is_err());
        assert!(those_there(vec![Ok(1), Err(Error::Closed)]).is_err());
        assert!(those_there::<u8>(Vec::new()).unwrap().is_empty());
    }
}

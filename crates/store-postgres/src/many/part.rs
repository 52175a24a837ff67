//! One of several databases. While it answers it is asked; once it was found not to, whoever waits for it is told so at once, and
//! so is everybody who comes later, so that nobody waits for a dead database again and again.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::future::BoxFuture;
use tidewheel_store::{Counts, Database, Error, Health, Store as _};
use tokio::sync::watch;

use crate::connections::config_of;
use crate::hosts::Hosts;
use crate::options::Options;
use crate::store::{PostgresStore, plain};

pub(super) struct Part {
    pub(super) index: u16,
    pub(super) count: u16,
    pub(super) options: Options,
    /// Empty until it was reached for the first time.
    store: OnceLock<PostgresStore>,
    /// Why it is away; none while it answers.
    away: watch::Sender<Option<Arc<str>>>,
    /// As they were last known.
    counts: Mutex<Option<Counts>>,
}

impl Part {
    /// One that was not reached yet, for that reason.
    pub(super) fn away(options: Options, reason: &str) -> Self {
        Self {
            index: options.seat.index,
            count: options.seat.count,
            options,
            store: OnceLock::new(),
            away: watch::Sender::new(Some(Arc::from(reason))),
            counts: Mutex::default(),
        }
    }

    /// One that answers.
    pub(super) fn open(options: Options, store: PostgresStore) -> Self {
        let part = Self::away(options, "");
        part.came_back(Some(store));
        part
    }

    pub(super) fn is_open(&self) -> bool {
        self.store.get().is_some()
    }

    /// The servers it may be on. Once it is open they are those of its pools, so that all learn of a failover from each other.
    pub(super) fn hosts(&self) -> Result<Arc<Hosts>, Error> {
        if let Some(store) = self.store.get() {
            return Ok(Arc::clone(&store.database.connections.hosts));
        }
        let (config, tls) = config_of(&self.options)?;
        Ok(Arc::new(Hosts::new(&config, tls, self.options.connect)))
    }

    /// It answers, and is asked from now on.
    pub(super) fn came_back(&self, opened: Option<PostgresStore>) {
        if let Some(store) = opened {
            // Only one watch opens it.
            self.store.set(store).ok();
        }
        if let Some(store) = self.store.get() {
            store.database.connections.forget_idle();
            if self.away.send_replace(None).is_some_and(|why| !why.is_empty()) {
                tracing::info!(database = self.index, "a database answers again");
            }
        }
    }

    /// It does not answer; nobody waits for it any more.
    pub(super) fn went_away(&self, reason: &str) {
        let before = self.away.send_replace(Some(Arc::from(reason)));
        if before.is_none() {
            tracing::error!(
                database = self.index,
                reason,
                "a database does not answer; its shards stand still"
            );
        }
    }

    pub(super) fn is_reachable(&self) -> bool {
        self.away.borrow().is_none()
    }

    /// Waits until it answers.
    pub(super) async fn until_reachable(&self) -> Option<&PostgresStore> {
        let mut away = self.away.subscribe();
        away.wait_for(Option::is_none).await.ok()?;
        self.store.get()
    }

    fn refusal(&self, reason: &str) -> Error {
        Error::Unavailable(self.named(reason))
    }

    fn named(&self, reason: &str) -> String {
        format!("database {} of {}: {reason}", self.index + 1, self.count)
    }

    fn store(&self) -> Result<&PostgresStore, Error> {
        let away = self.away.borrow().clone();
        match (away, self.store.get()) {
            (None, Some(store)) => Ok(store),
            (reason, _) => Err(self.refusal(reason.as_deref().unwrap_or("it was not reached yet"))),
        }
    }

    /// Asks it, for as long as it answers.
    pub(super) async fn ask<'a, T>(
        &'a self,
        call: impl FnOnce(&'a PostgresStore) -> BoxFuture<'a, Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut away = self.away.subscribe();
        let asked = call(self.store()?);
        let gone = async move {
            match away.wait_for(Option::is_some).await {
                Ok(reason) => reason.clone(),
                Err(_) => None,
            }
        };
        let answer = tokio::select! {
            biased;
            answer = asked => answer,
            reason = gone => return Err(self.refusal(reason.as_deref().unwrap_or_default())),
        };
        answer.map_err(|error| match error {
            Error::Unavailable(reason) => self.refusal(&reason),
            Error::Full(reason) => Error::Full(self.named(&reason)),
            Error::Poisoned(_) | Error::Fenced | Error::Corrupt(_) | Error::Closed => error,
        })
    }

    /// Notes in this database, the first, that another one is used with it.
    pub(super) async fn note_used(&self, other: &Self) -> Result<(), Error> {
        let connections = &self.store()?.database.connections;
        other.options.seat.note_used(connections).await.map_err(plain)
    }

    /// Counts of all its jobs; while it is away, as they were last known.
    pub(super) async fn counts(&self) -> Result<Counts, Error> {
        let asked = self.ask(|store| store.counts(None)).await;
        let mut known = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match asked {
            Ok(counts) => {
                *known = Some(counts);
                Ok(counts)
            }
            Err(error) if error.is_retryable() => known.ok_or(error),
            Err(error) => Err(error),
        }
    }

    fn health(&self) -> Health {
        match self.store() {
            Ok(store) => store.health(),
            Err(Error::Unavailable(reason)) => Health::Away(reason),
            Err(error) => Health::ReadOnly(error.to_string()),
        }
    }

    pub(super) fn view(&self, shards: u16) -> Database {
        Database {
            index: self.index,
            shards: Database::shards_of(self.index, self.count, shards),
            is_reachable: self.is_reachable(),
            health: self.health(),
        }
    }

    /// Closes it, if it was ever opened.
    pub(super) async fn close(&self) -> Result<(), Error> {
        match self.store.get() {
            Some(store) => store.close().await,
            None => Ok(()),
        }
    }
}

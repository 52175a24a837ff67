//! Workers: take jobs of queues over one gRPC stream, run handlers, report what came of them.
//!
//! ```no_run
//! use serde::{Deserialize, Serialize};
//! use tidewheel_api::worker::{Classify, Context, Failure, Worker, WorkerConfig};
//!
//! #[derive(Deserialize)]
//! struct Mail {
//!     to: String,
//! }
//!
//! #[derive(Serialize)]
//! struct Sent {
//!     message_id: String,
//! }
//!
//! async fn send(context: Context, mail: Mail) -> Result<Sent, Failure> {
//!     let (_, _host) = mail.to.split_once('@').ok_or("no @ in the address").or_final()?;
//!     // The key is the same in every attempt: a relay that knows it sends once.
//!     Ok(Sent { message_id: context.idempotency_key().to_owned() })
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = WorkerConfig { concurrency: 50, ..WorkerConfig::new("http://127.0.0.1:7400", "mail") };
//! let mut worker = Worker::connect(config).await?;
//! worker.handle("send-email", send);
//! let stopper = worker.stopper();
//! tokio::spawn(async move {
//!     tokio::signal::ctrl_c().await.ok();
//!     stopper.drain();
//! });
//! worker.run().await?;
//! # Ok(())
//! # }
//! ```
//!
//! **What it does by itself.** It asks for as many jobs as it has room for, sends heartbeats for those in its hands,
//! reports outcomes in batches, hands back what another worker could start sooner, reconnects after a lost connection and
//! goes on with its session, and reports again what was not answered.
//!
//! **What a handler says.** A value that is the job's result (at most 8,192 bytes of JSON, 128 levels deep), or a
//! [`Failure`]. Any error is one by `?` and means: try again as the job's policy says. [`Classify`] says otherwise. A
//! payload that does not fit the handler's type fails for good, and so does a result beyond its bounds; a panic is a
//! failure that is tried again. Of an error's text the first 2,048 bytes are kept.
//!
//! **Stopping a handler.** [`Context::stopped`] tells why: the job was called off, its lease is over, it took too long, or
//! the worker ends. A handler that does not listen is dropped at its next `await` after [`WorkerConfig::grace`]. Work
//! that blocks belongs into `tokio::task::spawn_blocking`.
//!
//! **Testing handlers.** `tidewheel_server::testing` starts a server in the test's own process, with a clock that is
//! turned by hand.

mod attend;
mod bounds;
mod config;
mod context;
mod desk;
#[cfg(test)]
mod desk_tests;
mod error;
mod event;
mod failure;
mod handlers;
mod link;
mod refusal;
mod session;
mod time;

use std::future::Future;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

pub use self::config::{CONCURRENCY_DEFAULT, DRAIN_DEFAULT, EventListener, GRACE_DEFAULT, WorkerConfig};
pub use self::context::{Context, Stop};
pub use self::error::Error;
pub use self::event::Event;
pub use self::failure::{Classify, Failure};
use self::handlers::{Handlers, raw, typed};
use self::link::Link;
use self::session::{Session, Wish};

/// A worker: a connection and handlers. It works while [`Worker::run`] does.
pub struct Worker {
    config: WorkerConfig,
    handlers: Handlers,
    link: Link,
    wishes: watch::Sender<Wish>,
}

impl Worker {
    /// Connects to the server; no jobs come before [`Worker::run`].
    ///
    /// # Errors
    /// When the settings cannot be used, or nobody is there.
    pub async fn connect(config: WorkerConfig) -> Result<Self, Error> {
        config.check()?;
        let link = Link::connect(&config).await?;
        let (wishes, _) = watch::channel(Wish::Work);
        Ok(Self { config, handlers: Handlers::default(), link, wishes })
    }

    /// Runs `handler` for jobs of this type. Only types that have one are asked for.
    pub fn handle<P, R, F, Fut>(&mut self, kind: impl Into<String>, handler: F) -> &mut Self
    where
        P: DeserializeOwned + Send,
        R: Serialize,
        F: Fn(Context, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        self.handlers.add(kind.into(), typed(handler));
        self
    }

    /// Runs `handler` for jobs of every type that has no handler of its own. It gets the payload as it was submitted,
    /// and returns the result as JSON, or nothing.
    pub fn handle_any<F, Fut>(&mut self, handler: F) -> &mut Self
    where
        F: Fn(Context, Bytes) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Bytes, Failure>> + Send + 'static,
    {
        self.handlers.add_any(raw(handler));
        self
    }

    /// What ends the worker, from anywhere.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { wishes: self.wishes.clone() }
    }

    /// Works until it was asked to drain and has.
    ///
    /// # Errors
    /// When there are no handlers, when the server refuses for good, or when outcomes could not be reported before the
    /// time to drain was over. A lost connection is no error: the worker connects again, for as long as it takes.
    pub async fn run(self) -> Result<(), Error> {
        if self.handlers.is_empty() {
            return Err(Error::Setup("a worker without handlers does nothing".to_owned()));
        }
        let mut wishes = self.wishes.subscribe();
        wishes.mark_changed();
        Session::new(self.config, self.handlers, wishes).run(Some(self.link)).await
    }
}

/// Ends a worker. Clones end the same one.
#[derive(Debug, Clone)]
pub struct Stopper {
    wishes: watch::Sender<Wish>,
}

impl Stopper {
    /// Takes no more jobs, hands back those that have not started (those too that are still on their way), lets the
    /// others end within [`WorkerConfig::drain`], reports, and ends.
    pub fn drain(&self) {
        self.wishes.send_modify(|wish| *wish = (*wish).max(Wish::Drain));
    }

    /// The same, but handlers are asked to stop at once.
    pub fn stop_now(&self) {
        self.wishes.send_modify(|wish| *wish = Wish::StopNow);
    }
}

//! The worker's loop: one stream after another to the server, with what lies on the desk carried over.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tidewheel_core::limits::{WORKER_DEAD_MS, WORKER_IDLE_HEARTBEAT_MS_DEFAULT};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::attend::{Ended, Handfuls, Patience, Turn, attend};
use super::config::WorkerConfig;
use super::desk::{Beats, Desk, Room};
use super::error::Error;
use super::event::Event;
use super::handlers::Handlers;
use super::link::{Hear, Heard, Link, Opened, Say};
use super::time;
use crate::proto::v1::{Failed, Resume, Subscribe, outcome, server_message};

/// Ends of handlers taken in one go.
const ENDED_COUNT_MAX: usize = 4_096;
/// After the last grace, how long outcomes may take to be reported.
const REPORT_WITHIN: Duration = Duration::from_secs(10);
/// How long a server may take to end a stream on which the worker has said its last.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);
/// How often it is heard of with empty hands.
const IDLE_HEARTBEAT: Duration = Duration::from_millis(WORKER_IDLE_HEARTBEAT_MS_DEFAULT.unsigned_abs());
/// The silence of a server that does not say after how long a worker is dead.
const DEAD_AFTER: Duration = Duration::from_millis(WORKER_DEAD_MS.unsigned_abs());
const RECONNECT_FIRST: Duration = Duration::from_millis(100);
const RECONNECT_LONGEST: Duration = Duration::from_secs(5);

/// What the worker's owner wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wish {
    Work,
    Drain,
    StopNow,
}

/// A worker at work.
pub(super) struct Session {
    config: Arc<WorkerConfig>,
    handlers: Handlers,
    desk: Desk,
    tell_ended: mpsc::UnboundedSender<Ended>,
    ended: mpsc::UnboundedReceiver<Ended>,
    batch: Vec<Ended>,
    handfuls: Arc<Handfuls>,
    wishes: watch::Receiver<Wish>,
    wish: Wish,
    /// Until when handlers may go on, once it drains.
    drained_at: Option<Instant>,
    /// What to resume the session with.
    secret: Option<String>,
    /// The server was told.
    said_drain: bool,
}

impl Session {
    pub(super) fn new(config: WorkerConfig, handlers: Handlers, wishes: watch::Receiver<Wish>) -> Self {
        let room = Room {
            concurrency: config.concurrency,
            capacity: config.capacity(),
            lease: config.lease,
            many_tenants: config.is_of_many_tenants(),
        };
        let (tell_ended, ended) = mpsc::unbounded_channel();
        Self {
            config: Arc::new(config),
            handlers,
            desk: Desk::new(room, time::now()),
            tell_ended,
            ended,
            batch: Vec::new(),
            handfuls: Arc::default(),
            wishes,
            wish: Wish::Work,
            drained_at: None,
            secret: None,
            said_drain: false,
        }
    }

    /// Works until it has drained.
    pub(super) async fn run(mut self, mut link: Option<Link>) -> Result<(), Error> {
        let mut wait = RECONNECT_FIRST;
        loop {
            let subscribe = self.subscription();
            let config = Arc::clone(&self.config);
            let connecting = async {
                let link = match link.take() {
                    Some(link) => link,
                    None => Link::connect(&config).await?,
                };
                link.open(subscribe).await
            };
            let error = match self.meanwhile(connecting).await {
                Ok(opened) => {
                    let begun = time::now();
                    let Err(error) = self.converse(opened).await else { return Ok(()) };
                    // Welcomed and sent away again and again is no better than not let in.
                    if time::now().duration_since(begun) >= RECONNECT_LONGEST {
                        wait = RECONNECT_FIRST;
                    }
                    error
                }
                Err(error) if !error.is_retryable() => return Err(error),
                Err(error) => error,
            };
            if self.is_done() {
                return Ok(());
            }
            if self.is_out_of_time() {
                return Err(Error::Unreported(self.desk.unreported()));
            }
            let retry_in = spread(wait);
            wait = wait.saturating_mul(2).min(RECONNECT_LONGEST);
            self.tell(&Event::Disconnected { error, retry_in });
            self.meanwhile(time::sleep(retry_in)).await;
        }
    }

    fn subscription(&mut self) -> Subscribe {
        let credits = u32::try_from(self.desk.subscribe()).unwrap_or(u32::MAX);
        self.said_drain = false;
        let config = &self.config;
        let types = if config.types.is_empty() { self.handlers.types() } else { config.types.clone() };
        Subscribe {
            worker: config.name.clone(),
            queues: config.queues.clone(),
            tenants: config.tenants.clone(),
            all_tenants: config.all_tenants,
            types,
            min_priority: config.min_priority.clone().unwrap_or_default(),
            lease: prost_types::Duration::try_from(config.lease).ok(),
            credits,
            resume: self.secret.clone().map(|session| Resume { session, holding: self.desk.holding() }),
            idle_heartbeat: prost_types::Duration::try_from(IDLE_HEARTBEAT).ok(),
        }
    }

    /// Until everything is done after a drain, or the stream ends.
    async fn converse(&mut self, opened: Opened) -> Result<(), Error> {
        let Opened { welcome, say, mut hear } = opened;
        let every = |duration: Option<prost_types::Duration>, otherwise: Duration| {
            duration.and_then(|it| Duration::try_from(it).ok()).unwrap_or(otherwise)
        };
        let dead_after = every(welcome.dead_after, DEAD_AFTER);
        let busy = every(welcome.heartbeat_every, Beats::default().busy);
        // A server that does not say knows no other.
        let beats = Beats { busy, idle: every(welcome.idle_heartbeat_every, busy) };
        self.desk.welcomed(welcome.resumed, beats, time::now());
        self.secret = Some(welcome.session);
        self.tell(&Event::Connected { worker_id: welcome.worker_id, resumed: welcome.resumed });
        let mut heard_at = time::now();
        loop {
            self.start_jobs();
            if self.wish > Wish::Work && !self.said_drain {
                self.said_drain = true;
                for word in self.desk.farewell() {
                    say.say(word)?;
                }
            }
            for word in self.desk.words(time::now()) {
                say.say(word)?;
            }
            if self.is_done() {
                return self.leave(say, hear).await;
            }
            if self.is_out_of_time() {
                return Err(Error::Lost("the time to drain is over".to_owned()));
            }
            tokio::select! {
                heard = hear.next() => {
                    self.hear(heard?)?;
                    heard_at = time::now();
                }
                () = self.event() => {
                    // With empty hands it asks seldom, and hears as seldom.
                    let waits_since = self.desk.unanswered_since().map_or(heard_at, |asked| asked.max(heard_at));
                    let waits = self.desk.unanswered_since().is_some() || !self.desk.is_empty();
                    if waits && time::now().saturating_duration_since(waits_since) > dead_after {
                        return Err(Error::Lost("nothing was heard of the server".to_owned()));
                    }
                }
            }
        }
    }

    /// Says no more, and hears the server out. Jobs that were on their way to the worker when the server heard of the drain
    /// still come; to leave without them would cost each an attempt. They are handed back over another stream.
    async fn leave(&mut self, say: Say, mut hear: Hear) -> Result<(), Error> {
        drop(say);
        let last_words = async {
            while let Ok(heard) = hear.next().await
                && self.hear(heard).is_ok()
            {}
        };
        // A server that does not end the stream in time is left all the same.
        tokio::time::timeout(LEAVE_WITHIN, last_words).await.ok();
        if self.desk.is_empty() {
            return Ok(());
        }
        Err(Error::Lost("jobs came while the worker left; they are handed back".to_owned()))
    }

    fn hear(&mut self, heard: Heard) -> Result<(), Error> {
        match heard {
            server_message::Message::Jobs(batch) => {
                let received = self.desk.receive(batch, time::now());
                received.map_err(|fault| Error::Lost(format!("a job came that cannot be read: {fault}")))?;
            }
            server_message::Message::OutcomeAnswers(answers) => {
                for answer in self.desk.outcomes_answered(answers) {
                    let (id, code, detail) = (answer.id, answer.code, answer.detail);
                    self.tell(&Event::ReportRefused { id, code, detail });
                }
            }
            server_message::Message::HeartbeatAnswers(answers) => self.desk.heartbeats_answered(&answers),
            server_message::Message::CancelJobs(cancels) => self.desk.called_off(&cancels),
            server_message::Message::TakeBack(asked) => self.desk.asked_back(asked),
            // The stream ends by itself; what runs goes on, and is reported to the next server.
            server_message::Message::GoAway(_) | server_message::Message::Welcome(_) => {}
        }
        Ok(())
    }

    /// Waits for something, while handlers go on.
    async fn meanwhile<T>(&mut self, awaited: impl Future<Output = T>) -> T {
        let mut awaited = pin!(awaited);
        loop {
            self.start_jobs();
            tokio::select! {
                biased;
                done = &mut awaited => return done,
                () = self.event() => self.desk.rest(time::now()),
            }
        }
    }

    /// The next thing that happens on this side, taken note of. May be dropped while it waits.
    async fn event(&mut self) {
        let look_at = self.next_look();
        tokio::select! {
            _ = self.ended.recv_many(&mut self.batch, ENDED_COUNT_MAX) => {
                for ended in self.batch.drain(..) {
                    self.desk.ended(ended);
                }
            }
            Ok(()) = self.wishes.changed() => self.obey(),
            () = time::sleep_until(look_at) => self.desk.look(time::now()),
        }
        let over = self.drained_at.is_some_and(|at| time::now() >= at);
        if over {
            self.desk.stop_all();
        }
    }

    fn next_look(&self) -> Instant {
        let look_at = self.desk.look_at();
        match self.drained_at {
            Some(at) if at > time::now() => look_at.min(at),
            Some(_) | None => look_at,
        }
    }

    fn obey(&mut self) {
        self.wish = self.wish.max(*self.wishes.borrow_and_update());
        let patience = match self.wish {
            Wish::Work => return,
            Wish::Drain => self.config.drain,
            Wish::StopNow => Duration::ZERO,
        };
        self.desk.drain();
        let until = time::now() + patience;
        self.drained_at = Some(self.drained_at.map_or(until, |at| at.min(until)));
    }

    fn is_done(&self) -> bool {
        self.wish > Wish::Work && self.desk.is_empty()
    }

    /// Whether even reporting has had its time.
    fn is_out_of_time(&self) -> bool {
        self.drained_at.is_some_and(|at| time::now() >= at + self.config.grace + REPORT_WITHIN)
    }

    fn start_jobs(&mut self) {
        let patience = Patience { timeout: self.config.timeout, grace: self.config.grace };
        let now = time::now();
        let handful = self.handfuls.size();
        let mut turns = Vec::new();
        let start = |turns: Vec<Turn>| {
            if !turns.is_empty() {
                tokio::spawn(attend(turns, patience, self.tell_ended.clone(), Arc::clone(&self.handfuls)));
            }
        };
        while let Some(attempt) = self.desk.next_to_start(now) {
            if let Some(handler) = self.handlers.of(&attempt.job.r#type) {
                turns.push((Arc::clone(handler), attempt));
                if turns.len() >= handful {
                    start(std::mem::take(&mut turns));
                }
            } else {
                let error = format!("this worker has no handler for {:?}", attempt.job.r#type);
                let outcome = outcome::Result::Failed(Failed { error, ..Failed::default() });
                self.desk.ended(Ended { attempt, outcome: Some(outcome) });
            }
        }
        start(turns);
    }

    fn tell(&self, event: &Event) {
        if let Some(listener) = &self.config.listener {
            listener(event);
        }
    }
}

/// Between half of it and all: workers that lost the same server do not come back all at once.
fn spread(wait: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let part = RandomState::new().hash_one(0_u8) % 512;
    wait / 2 + wait.saturating_mul(u32::try_from(part).unwrap_or(0)) / 1_024
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use crate::proto::job_batch::JobBatch;
    use crate::proto::v1::LeasedJob;

    /// A worker that is cut off looks after what it holds now and then; it is not busy with being cut off.
    #[tokio::test(start_paused = true)]
    async fn a_worker_without_a_connection_rests() {
        const LOOKS: u32 = 20;
        let (_wishes, wished) = watch::channel(Wish::Work);
        let mut session = Session::new(WorkerConfig::new("http://nowhere", "q"), Handlers::default(), wished);
        let job = LeasedJob { id: "a".to_owned(), token: 1, ..LeasedJob::default() };
        session.desk.receive(JobBatch::new(&[job]), time::now()).unwrap();
        let (began, mut looks) = (time::now(), 0);
        let comes_back = std::future::poll_fn(|_| {
            looks += 1;
            if looks > LOOKS { Poll::Ready(()) } else { Poll::Pending }
        });
        session.meanwhile(comes_back).await;
        let rested = time::now().saturating_duration_since(began);
        assert!(rested >= Duration::from_secs(2), "it looked {LOOKS} times within {rested:?}");
    }
}

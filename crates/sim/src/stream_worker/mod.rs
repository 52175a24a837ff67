//! A worker on a stream: it subscribes with credits, is pushed batches, says that it lives, reports in batches. From time
//! to time its process stalls or dies, its connection is lost, or it answers late, twice, or in two ways.
//!
//! An attempt counts as started when it comes off the stream, since from there on the server cannot call it back. What
//! lay in the stream while the process stood still may be history by then; so it is reported on, but not as a start.

mod attempt;
mod hands;
mod outbox;
mod strokes;

use std::future::poll_fn;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewheel_core::job::{Command, Ending, Job, Priority};
use tidewheel_core::limits::SECOND_MS;
use tidewheel_core::names::Tenant;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Interest, Push, Pushes, Resume, Subscription, Tenants, WorkerLink};
use tidewheel_store::Error;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::hands::{Hands, Key};
use self::outbox::Said;
pub use self::strokes::Stroke;
use crate::conduct::Conduct;
use crate::dice::Dice;
use crate::history::Event;
use crate::runner::start_of;
use crate::world::World;

/// What a worker is for.
#[derive(Debug, Clone)]
pub struct Duty {
    /// Whose jobs it runs, if not everybody's.
    pub tenant: Tenant,
    /// From which queue.
    pub queue: Arc<str>,
    /// Somebody else takes what it leaves, so it may choose.
    pub picky: bool,
}

/// Jobs a worker has room for, at most.
const CREDITS_MAX: usize = 12;
/// The longest wait between two tries to connect.
const CONNECT_MS_MAX: i64 = 1_000;

/// Runs jobs for ever, in one process after the other.
pub async fn run(world: Arc<World>, duty: Duty) {
    let dice = Arc::new(world.dice.fork());
    let tenants = if dice.percent(30) { Tenants::All } else { Tenants::Only(vec![duty.tenant.clone()]) };
    let least = if duty.picky { dice.pick(&Priority::ALL, Priority::Low) } else { Priority::Low };
    let interest = Interest::new(tenants, Vec::new(), least);
    loop {
        let (said, outbox) = mpsc::unbounded_channel();
        let process = Arc::new(Process {
            subscription: Subscription {
                tenant: duty.tenant.clone(),
                worker: Arc::from("streamer"),
                queues: vec![Arc::clone(&duty.queue)],
                interest: interest.clone(),
                lease_ms: dice.between(world.lease_s_min(), 8) * SECOND_MS,
                credits: dice.count(1, CREDITS_MAX),
                resume: None,
                idle_heartbeat_ms: None,
            },
            world: Arc::clone(&world),
            dice: dice.fork(),
            hands: Hands::default(),
            line: Mutex::default(),
            said,
            frozen_until_ms: AtomicI64::new(0),
            home: AtomicUsize::new(world.any_node()),
        });
        // With the set end all tasks of the process.
        let mut tasks = JoinSet::new();
        tasks.spawn(outbox::run(Arc::clone(&process), outbox));
        process.live(&mut tasks).await;
        drop(tasks);
        process.world.note_stroke(Stroke::Death, process.hands.count());
        world.sleep_ms(dice.pick(&[0, 500, 20_000], 500)).await;
    }
}

/// A connection to a server.
#[derive(Clone)]
struct Line {
    link: WorkerLink,
    life: u32,
    /// Credits the server has from this worker and has not used.
    room: Arc<AtomicI64>,
}

impl Line {
    fn add_credits(&self, credits: usize) {
        self.room.fetch_add(i64::try_from(credits).unwrap_or(0), Ordering::SeqCst);
        self.link.add_credits(credits);
    }
}

/// How a connection ended.
enum Parting {
    /// With the process.
    Death,
    /// Without it: the worker comes back for its session.
    Loss,
}

struct Process {
    subscription: Subscription,
    world: Arc<World>,
    dice: Dice,
    hands: Hands,
    line: Mutex<Option<Line>>,
    said: mpsc::UnboundedSender<Said>,
    frozen_until_ms: AtomicI64,
    /// The node it turns to.
    home: AtomicUsize,
}

impl Process {
    /// Until the process dies.
    async fn live(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let mut session = None;
        loop {
            let Some((line, pushes, secret)) = self.connect(session).await else {
                self.rest(self.dice.between(20, CONNECT_MS_MAX)).await;
                continue;
            };
            session = Some(secret);
            *self.line() = Some(line.clone());
            let parting = self.listen(tasks, &line, pushes).await;
            *self.line() = None;
            if matches!(parting, Parting::Death) {
                return;
            }
            let away_ms = self.world.plan.config.worker_resume_ms * 2;
            self.rest(if self.world.is_calm() { 10 } else { self.dice.between(0, away_ms) }).await;
        }
    }

    async fn connect(&self, session: Option<u128>) -> Option<(Line, Pushes, u128)> {
        let resume = session.map(|session| {
            self.lose_some();
            Resume { session, holding: self.hands.keys() }
        });
        let credits = self.subscription.credits.saturating_sub(self.hands.count());
        let subscription = Subscription { credits, resume, ..self.subscription.clone() };
        let node = self.turn_to();
        let life = self.world.life_of(node);
        let connected = self.world.call_at(node, |engine| async move {
            let connected = engine.connect_worker(subscription).await;
            connected.map_err(|refused| Error::Unavailable(format!("{refused:?}")))
        });
        let (welcome, link, pushes) = connected.await.ok()?;
        let room = Arc::new(AtomicI64::new(i64::try_from(credits).unwrap_or(0)));
        Some((Line { link, life, room }, pushes, welcome.session))
    }

    /// The node it tries next: mostly the one it knows.
    fn turn_to(&self) -> usize {
        if self.world.plan.nodes > 1 && self.dice.percent(30) {
            self.home.store(self.world.any_node(), Ordering::SeqCst);
        }
        self.home.load(Ordering::SeqCst)
    }

    /// With a connection, jobs may get lost on their last way; then the worker does not know that it has them.
    fn lose_some(&self) {
        for (id, token) in self.hands.unbegun() {
            if !self.world.is_calm() && self.dice.percent(30) && self.hands.hand_back((id, token)).is_some() {
                self.world.history.note(Event::Reporting { id, token, ending: Some(Ending::Released) });
            }
        }
    }

    async fn listen(self: &Arc<Self>, tasks: &mut JoinSet<()>, line: &Line, mut pushes: Pushes) -> Parting {
        let dead_ms = self.world.plan.config.worker_dead_ms;
        let beat_ms = self.dice.between(dead_ms / 8, dead_ms / 3);
        let mut beat_at_ms = self.world.clock.monotonic_ms() + beat_ms;
        loop {
            while tasks.try_join_next().is_some() {}
            let wait_ms = beat_at_ms - self.world.clock.monotonic_ms();
            let pushed = tokio::select! {
                biased;
                pushed = poll_fn(|context| pushes.poll_next(context)) => Some(pushed),
                () = self.world.sleep_ms(wait_ms.max(0)) => None,
            };
            // A server that is gone reaches nobody, whatever it still does.
            if !self.world.is_alive(line.life) {
                return Parting::Loss;
            }
            let Some(pushed) = pushed else {
                beat_at_ms = self.world.clock.monotonic_ms() + beat_ms;
                line.link.heard();
                match self.roll() {
                    None => {}
                    Some(Stroke::Death) => return Parting::Death,
                    Some(Stroke::Reset) => return Parting::Loss,
                    Some(Stroke::Stall) => {
                        self.stall().await;
                        if !self.catch_up(line, &mut pushes).await {
                            return Parting::Loss;
                        }
                    }
                }
                continue;
            };
            match pushed {
                Some(Push::Jobs { jobs, .. }) => self.receive(jobs, line, tasks),
                Some(Push::Stop(stop)) => self.hands.stop((stop.id, stop.token)),
                Some(Push::TakeBack(keys)) => keys.into_iter().for_each(|key| self.hand_back(key, line)),
                // It may go at once, or when the server does.
                Some(Push::GoAway) if self.dice.percent(50) => {}
                Some(Push::GoAway | Push::Silent | Push::Replaced) | None => return Parting::Loss,
            }
        }
    }

    fn receive(self: &Arc<Self>, jobs: Vec<Arc<Job>>, line: &Line, tasks: &mut JoinSet<()>) {
        self.count(&jobs, line);
        for job in jobs {
            self.world.history.note(Event::Started(start_of(&job)));
            self.hands.take((job.id, job.status.token), job.tenant.clone());
            let conduct = Conduct::roll(&self.dice, self.world.is_calm());
            tasks.spawn(attempt::run(Arc::clone(self), self.dice.fork(), job, conduct));
        }
    }

    /// No more come than were asked for.
    fn count(&self, jobs: &[Arc<Job>], line: &Line) {
        let count = i64::try_from(jobs.len()).unwrap_or(i64::MAX);
        let room = line.room.fetch_sub(count, Ordering::SeqCst);
        self.world.count_streamed(jobs.len());
        if count > room {
            let bound = usize::try_from(room).unwrap_or(0);
            self.world.history.note(Event::TooManyPushes { count: jobs.len(), bound });
        }
    }

    /// The server asks for a job back.
    fn hand_back(&self, key: Key, line: &Line) {
        if !self.world.is_calm() && self.dice.percent(20) {
            return;
        }
        let Some(tenant) = self.hands.hand_back(key) else {
            line.link.started(vec![key]);
            return;
        };
        let (id, token) = key;
        let command = Command::Release { token };
        self.say(Said { tenant, id, token, command, ending: Some(Ending::Released) });
        line.add_credits(1);
    }

    /// Reads what came while the process stood still; says whether the connection still holds.
    async fn catch_up(&self, line: &Line, pushes: &mut Pushes) -> bool {
        loop {
            let next = poll_fn(|context| std::task::Poll::Ready(pushes.poll_next(context))).await;
            let std::task::Poll::Ready(push) = next else { return true };
            if !self.world.is_alive(line.life) {
                return false;
            }
            match push {
                Some(Push::Jobs { jobs, .. }) => {
                    self.count(&jobs, line);
                    jobs.iter().for_each(|job| self.report_late(job));
                    line.add_credits(jobs.len());
                }
                Some(Push::Stop(stop)) => self.hands.stop((stop.id, stop.token)),
                Some(Push::TakeBack(keys)) => keys.into_iter().for_each(|key| self.hand_back(key, line)),
                Some(Push::GoAway | Push::Silent | Push::Replaced) | None => return false,
            }
        }
    }

    fn line(&self) -> MutexGuard<'_, Option<Line>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, said: Said) {
        if said.ending.is_some() {
            self.hands.owe((said.id, said.token));
        }
        // Nobody listens once the process is over.
        drop(self.said.send(said));
    }

    /// Waits, and longer while the process stands still.
    async fn rest(&self, ms: i64) {
        self.world.sleep_ms(ms).await;
        loop {
            let left_ms = self.frozen_until_ms.load(Ordering::SeqCst) - self.world.clock.monotonic_ms();
            if left_ms <= 0 {
                return;
            }
            self.world.sleep_ms(left_ms).await;
        }
    }
}

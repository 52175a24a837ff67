//! The targets jobs are pushed to, all of them, as the engine's deliverer sees them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Destination, Ending, Job, Token};
use tidewheel_server::engine::{Deliver, Report, Reports};

use crate::conduct::Conduct;
use crate::history::Event;
use crate::runner;
use crate::world::World;

/// Deliveries the server has not heard the end of: which attempt, to which URL.
type UnderWay = Arc<Mutex<BTreeMap<JobId, (Token, Box<str>)>>>;

/// Delivers for one server; once that is gone, nothing goes through any more.
#[expect(missing_debug_implementations, reason = "made of trait objects")]
pub struct SimTarget {
    world: Arc<World>,
    life: u32,
    under_way: UnderWay,
}

/// The lease a target asks for when it takes a job over.
const DETACHED_LEASE_MS: i64 = 3_000;

impl SimTarget {
    /// The targets as the server number `life` reaches them.
    #[must_use]
    pub fn new(world: Arc<World>, life: u32) -> Self {
        Self { world, life, under_way: Arc::default() }
    }

    fn begin(&self, job: &Job) {
        self.world.history.note(Event::Started(runner::start_of(job)));
        let Destination::Target(target) = &job.spec.destination else { return };
        let mut under_way = lock(&self.under_way);
        under_way.insert(job.id, (job.status.token, target.url.clone()));
        let config = &self.world.plan.config;
        let to_host = under_way.values().filter(|(_, url)| *url == target.url).count();
        for (count, bound) in [(under_way.len(), config.push_max), (to_host, config.push_per_host_max)] {
            if count > bound {
                self.world.history.note(Event::TooManyPushes { count, bound });
            }
        }
    }
}

impl Deliver for SimTarget {
    fn deliver(&self, jobs: Vec<Arc<Job>>, reports: &Reports) {
        if !self.world.is_alive(self.life) {
            return;
        }
        for job in jobs {
            self.begin(&job);
            let delivery = Delivery {
                world: Arc::clone(&self.world),
                under_way: Arc::clone(&self.under_way),
                reports: reports.clone(),
                job,
            };
            tokio::spawn(delivery.run());
        }
    }

    fn abort(&self, id: &JobId) {
        lock(&self.under_way).remove(id);
    }
}

struct Delivery {
    world: Arc<World>,
    under_way: UnderWay,
    reports: Reports,
    job: Arc<Job>,
}

impl Delivery {
    async fn run(self) {
        let dice = Arc::new(self.world.dice.fork());
        let conduct = Conduct::roll(&dice, self.world.is_calm());
        let token = self.job.status.token;
        if conduct.detaches {
            self.world.sleep_ms(dice.between(0, 50)).await;
            let detach = Command::Detach { token, lease_ms: DETACHED_LEASE_MS };
            self.report(detach, None, conduct.deaf);
            runner::run(self.world, dice, self.job, conduct).await;
            return;
        }
        self.world.sleep_ms(conduct.takes_ms).await;
        if let Some((command, ending)) = conduct.report(&dice, token) {
            self.report(command, Some(ending), conduct.deaf);
        }
    }

    fn report(&self, command: Command, ending: Option<Ending>, deaf: bool) {
        let token = self.job.status.token;
        let mut under_way = lock(&self.under_way);
        let still_wanted = under_way.get(&self.job.id).is_some_and(|(current, _)| *current == token);
        if still_wanted {
            under_way.remove(&self.job.id);
        }
        if still_wanted || deaf {
            self.world.history.note(Event::Reporting { id: self.job.id, token, ending });
            self.reports.send(Report { tenant: self.job.tenant.clone(), id: self.job.id, command });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A client: submits jobs, repeats itself under the same key when it got no answer, and changes its mind.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Destination, Job, Priority, Spec, Target};
use tidewheel_core::limits::{IDEMPOTENCY_WINDOW_MS, SECOND_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::SubShard;
use tidewheel_core::retry::{Backoff, RetryPolicy};
use tidewheel_core::time::Timestamp;
use tidewheel_server::random::Random;
use tidewheel_store::{IdempotencyClaim, KeyUse, OnConflict, Submission, Submitted};
use tokio::task::JoinSet;

use crate::dice::Dice;
use crate::history::{Asked, Event};
use crate::owner;
use crate::world::{NoAnswer, World};

/// The queue nobody takes jobs from.
pub const DESERTED: &str = "deserted";
/// The queues that have workers.
pub const QUEUES: [&str; 2] = ["mail", "video"];
const HOSTS: [&str; 3] = ["http://one.example", "http://two.example", "http://three.example"];
/// Tries to get an answer before a client gives up.
const TRIES: usize = 12;
/// What tenants are spread over, one after the other.
const SPREADS: [usize; 6] = [1, 4, 16, 2, 1, 8];
/// How long each time.
const SPREAD_MS: u64 = 10_000;
/// Bits of a tail that are part of an id; one beyond says who has not heard of the newest spread.
const TAIL_BITS: u32 = 80;
/// How much less there is to do once the faults are over.
const CALM_SLOWDOWN: i64 = 4;

/// Submits jobs until the faults are over, then some more for a while, so that recovery can be seen.
pub async fn run(world: Arc<World>, after_ms: i64) {
    let dice = Arc::new(world.dice.fork());
    let mut requests = JoinSet::new();
    let mut calm_ms = after_ms;
    while calm_ms > 0 {
        let mut gap_ms = dice.between(1, world.plan.gap_ms_max);
        if world.is_calm() {
            gap_ms *= CALM_SLOWDOWN;
            calm_ms -= gap_ms;
        }
        world.sleep_ms(gap_ms).await;
        let count = if dice.percent(5) && !world.is_calm() { dice.count(10, 40) } else { dice.count(1, 2) };
        let request = Arc::new(Request::roll(&world, &dice, count));
        requests.spawn(Arc::clone(&request).submit(Arc::clone(&world), dice.fork()));
        if dice.percent(10) {
            // Somebody else of the same client sends the same thing at the same time.
            requests.spawn(request.submit(Arc::clone(&world), dice.fork()));
        }
    }
    while requests.join_next().await.is_some() {}
}

/// What a client wants submitted, in one call.
struct Request {
    tenant: Tenant,
    run_at: Timestamp,
    specs: Vec<Spec>,
}

impl Request {
    fn roll(world: &World, dice: &Dice, count: usize) -> Self {
        let now = world.now();
        let tenants = world.tenants();
        let tenant = tenants.get(dice.count(0, tenants.len().saturating_sub(1))).cloned().unwrap_or_default();
        let calm = world.is_calm();
        let run_at = match dice.between(0, 99) {
            _ if calm => now.plus_ms(dice.between(-500, 3_000)),
            0..=29 => now,
            30..=39 => now.plus_ms(-dice.between(0, 600_000)),
            40..=79 => now.plus_ms(dice.between(0, 5_000)),
            _ => now.plus_ms(dice.between(0, world.plan.ahead_ms_max)),
        };
        let specs = (0..count).map(|_| spec(dice, now, run_at)).collect();
        Self { tenant, run_at, specs }
    }

    /// Submits, and submits again what got no answer and has a key.
    async fn submit(self: Arc<Self>, world: Arc<World>, dice: Dice) {
        let mut open: Vec<&Spec> = self.specs.iter().collect();
        for _ in 0..TRIES {
            let jobs: Vec<Job> = open
                .iter()
                .map(|spec| {
                    let id = self.id(world.now(), dice.tail());
                    Job::with_id(self.tenant.clone(), (*spec).clone(), id)
                })
                .collect();
            match self.send(&world, &jobs).await {
                Ok(answers) => {
                    for (job, answer) in jobs.into_iter().zip(answers) {
                        self.answered(&world, &dice, job, answer);
                    }
                    return;
                }
                Err(NoAnswer::NotSent) => {}
                Err(NoAnswer::Unclear) => {
                    jobs.iter().for_each(|job| world.history.note(Event::SubmitUnclear { id: job.id }));
                    // Without a key a second submission would be a second job.
                    open.retain(|spec| spec.idempotency_key.is_some());
                }
            }
            if open.is_empty() {
                return;
            }
            world.sleep_ms(dice.between(10, 3_000)).await;
        }
    }

    /// The id of a job of a tenant that is spread over ever other shards, of which not everybody hears at once.
    fn id(&self, now: Timestamp, tail: u128) -> JobId {
        let is_behind = (tail >> TAIL_BITS) & 1 == 0;
        let turn = now.as_ms().unsigned_abs() / SPREAD_MS + u64::from(!is_behind);
        let count = usize::try_from(turn).ok().and_then(|turn| SPREADS.get(turn % SPREADS.len()));
        let number = usize::try_from(tail & 0xFF).unwrap_or(0) % count.copied().unwrap_or(1);
        JobId::in_sub_shard(self.run_at, tail, SubShard::all().nth(number).unwrap_or(SubShard::HOME))
    }

    async fn send(&self, world: &World, jobs: &[Job]) -> Result<Vec<Submitted>, NoAnswer> {
        let until = world.now().plus_ms(IDEMPOTENCY_WINDOW_MS);
        let submissions = jobs
            .iter()
            .map(|job| {
                let key = job.spec.idempotency_key.clone();
                let key = key.map(|key| IdempotencyClaim { key, fingerprint: [1; 16], until });
                Submission { job: job.clone(), key, fresh: false }
            })
            .collect();
        world
            .call(|engine| {
                jobs.iter().for_each(|job| world.history.note(Event::Submitting(asked(job))));
                async move { engine.submit(submissions, OnConflict::KeepOthers).await }
            })
            .await
    }

    fn answered(&self, world: &Arc<World>, dice: &Dice, job: Job, answer: Submitted) {
        let (tenant, key) = (self.tenant.clone(), job.spec.idempotency_key.clone());
        match (answer, key) {
            (Submitted::New, _) => {
                world.history.note(Event::Taken { id: job.id });
                if dice.percent(40) && !world.is_calm() {
                    tokio::spawn(owner::follow(Arc::clone(world), dice.fork(), tenant, job.id, self.run_at));
                }
            }
            (Submitted::Duplicate(id) | Submitted::Conflict(KeyUse::Job(id)), Some(key)) => {
                world.history.note(Event::Known { tenant, key, id });
            }
            (Submitted::Duplicate(_) | Submitted::Conflict(_), _) => {}
        }
    }
}

fn spec(dice: &Dice, now: Timestamp, run_at: Timestamp) -> Spec {
    let key = dice.percent(50).then(|| Arc::from(format!("key-{:x}", dice.next_u64())));
    Spec {
        kind: Arc::from("simulated"),
        payload: Bytes::from_static(b"{}"),
        destination: destination(dice),
        priority: dice.pick(&Priority::ALL, Priority::Normal),
        retry: retries(dice),
        timeout_ms: dice.between(1, 10) * SECOND_MS,
        expires_at: dice.percent(10).then(|| run_at.max(now).plus_ms(dice.between(1, 20_000))),
        idempotency_key: key,
        labels: Vec::new(),
        occurrence: None,
        trace: None,
        created_at: now,
    }
}

fn destination(dice: &Dice) -> Destination {
    if dice.percent(8) { Destination::Queue(Arc::from(DESERTED)) } else { served(dice) }
}

/// A destination where somebody takes jobs.
#[must_use]
pub fn served(dice: &Dice) -> Destination {
    if dice.percent(65) {
        Destination::Target(Arc::new(Target {
            url: dice.pick(&HOSTS, "http://one.example").into(),
            method: "POST".into(),
            headers: Vec::new(),
        }))
    } else {
        Destination::Queue(Arc::from(dice.pick(&QUEUES, "mail")))
    }
}

/// How often a job is tried, and when again.
#[must_use]
pub fn retries(dice: &Dice) -> RetryPolicy {
    RetryPolicy {
        max_attempts: u32::try_from(dice.between(1, 6)).unwrap_or(1),
        backoff: dice
            .pick(&[Backoff::Fixed, Backoff::Exponential, Backoff::ExponentialJitter], Backoff::Fixed),
        base_ms: dice.between(0, 3_000),
        multiplier: 2.0,
        max_ms: 10 * SECOND_MS,
    }
}

/// What the record keeps of a submission.
fn asked(job: &Job) -> Asked {
    Asked {
        tenant: job.tenant.clone(),
        id: job.id,
        key: job.spec.idempotency_key.clone(),
        run_at: job.status.due_at,
        expires_at: job.spec.expires_at,
        max_attempts: job.spec.retry.max_attempts,
        deserted: is_deserted(job),
    }
}

/// Whether nobody will ever take this job.
#[must_use]
pub fn is_deserted(job: &Job) -> bool {
    matches!(&job.spec.destination, Destination::Queue(name) if **name == *DESERTED)
}

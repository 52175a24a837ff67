//! Somebody who owns a schedule: makes it, then changes, pauses, triggers, backfills and deletes it, often at
//! the very instant it fires. One wish at a time; each but a trigger is repeated until it is answered, so what
//! the schedule was told to be at any time is known in the end.

use std::sync::Arc;

use jiff::tz::TimeZoneDatabase;
use tidewheel_core::limits::{IDEMPOTENCY_WINDOW_MS, SECOND_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{
    Definition, NewSchedule, Schedule, ScheduleId, State, backfill, backfill_job, next_nominal,
};
use tidewheel_server::random::Random;
use tidewheel_store::{Edited, IdempotencyClaim, ScheduleCommand, ScheduleOrder, ScheduleRefusal};

use crate::almanac;
use crate::dice::Dice;
use crate::history::Event;
use crate::schedule_wish::{Deed, ScheduleAnswer, ScheduleWish};
use crate::world::{NoAnswer, World};

/// How far ahead a planner waits for the next fire.
const AHEAD_MS_MAX: i64 = 20 * SECOND_MS;
/// Instants made up for at once.
const BACKFILL_COUNT_MAX: usize = 5;
/// From one backfilled job to the next.
const BACKFILL_GAP_MS: i64 = 200;
/// The wait after a call without an answer, at most.
const RETRY_MS_MAX: i64 = 1_500;

/// A planner and its schedule.
struct Planner {
    world: Arc<World>,
    dice: Dice,
    tenant: Tenant,
    zones: TimeZoneDatabase,
}

/// Plans until the faults are over; `after_ms` later, what fires too often to go on for hours is slowed down.
/// A schedule that was deleted makes room for another.
pub async fn run(world: Arc<World>, after_ms: i64) {
    let dice = world.dice.fork();
    let tenants = world.tenants();
    let tenant = tenants.get(dice.count(0, tenants.len().saturating_sub(1))).cloned().unwrap_or_default();
    let planner = Planner { world, dice, tenant, zones: TimeZoneDatabase::bundled() };
    loop {
        let wait_ms = planner.dice.between(0, 3_000);
        planner.world.sleep_ms(wait_ms).await;
        let mut schedule = Some(planner.create().await);
        while let Some(current) = schedule.take_if(|_| !planner.world.is_calm()) {
            planner.wait(&current).await;
            schedule = planner.act(current).await;
        }
        let Some(schedule) = schedule else { continue };
        planner.world.sleep_ms(after_ms + planner.dice.between(0, 2_000)).await;
        planner.wind_down(schedule).await;
        return;
    }
}

impl Planner {
    /// Waits a while, or for just about the next fire.
    async fn wait(&self, schedule: &Schedule) {
        let now = self.world.now();
        let next = next_nominal(&schedule.definition.rule, None, now).map(|next| next.fire_at.since_ms(now));
        let near_ms = next.filter(|ms| *ms < AHEAD_MS_MAX && self.dice.percent(60));
        let ms = match near_ms {
            Some(ms) => ms + self.dice.pick(&[-4, -2, -1, 0, 0, 0, 1, 2, 5], 0),
            None => self.dice.between(0, 10_000),
        };
        self.world.sleep_ms(ms).await;
    }

    /// Wishes for something; none once the schedule is deleted.
    async fn act(&self, schedule: Schedule) -> Option<Schedule> {
        match self.dice.between(0, 99) {
            0..=34 => {
                let (current, now) = (&schedule.definition, self.world.now());
                let definition = almanac::changed(&self.dice, &self.zones, current, now);
                Some(self.update(schedule, definition).await)
            }
            35..=64 if schedule.state == State::Paused => {
                self.order(&schedule, Deed::Resume, ScheduleCommand::Resume).await
            }
            35..=49 => self.order(&schedule, Deed::Pause, ScheduleCommand::Pause).await,
            50..=64 => Some(schedule),
            65..=69 => self.order(&schedule, Deed::Resume, ScheduleCommand::Resume).await,
            70..=81 => {
                self.trigger(&schedule).await;
                Some(schedule)
            }
            82..=91 => {
                let now = self.world.now();
                let from = now.plus_ms(-self.dice.between(0, 300_000));
                let to = now.plus_ms(self.dice.between(-10_000, 0));
                let instants = backfill(&schedule, None, from, to).take(BACKFILL_COUNT_MAX);
                let jobs = instants.zip(0_i64..).map(|(nominal, n)| {
                    let (mut job, _) = backfill_job(&schedule, nominal.fire_at, nominal.fire_at, now);
                    job.status.due_at = now.plus_ms(n * BACKFILL_GAP_MS);
                    job
                });
                let command = ScheduleCommand::Backfill(jobs.collect());
                self.order(&schedule, Deed::Backfill, command).await
            }
            92..=94 => {
                self.order(&schedule, Deed::Delete, ScheduleCommand::Delete).await;
                None
            }
            _ => self.order(&schedule, Deed::Pause, ScheduleCommand::Pause).await,
        }
    }

    /// Leaves behind what can go on for hours, in whatever state.
    async fn wind_down(&self, schedule: Schedule) {
        if almanac::is_fast(&schedule.definition.rule) {
            match self.dice.between(0, 9) {
                0 => {
                    self.order(&schedule, Deed::Pause, ScheduleCommand::Pause).await;
                }
                1 => {
                    self.order(&schedule, Deed::Delete, ScheduleCommand::Delete).await;
                }
                _ => {
                    let definition = almanac::slowed(&self.dice, &schedule.definition, self.world.now());
                    self.update(schedule, definition).await;
                }
            }
        } else if self.dice.percent(50) {
            self.order(&schedule, Deed::Resume, ScheduleCommand::Resume).await;
        }
    }

    async fn create(&self) -> Schedule {
        let definition = almanac::definition(&self.dice, &self.zones, self.world.now());
        let paused = self.dice.percent(10);
        // With a key, every try offers another id; without one it offers the same again.
        let key = self.dice.percent(50).then(|| Arc::from(format!("key-{:x}", self.dice.next_u64())));
        let until = self.world.now().plus_ms(IDEMPOTENCY_WINDOW_MS);
        let claim = key.map(|key| IdempotencyClaim { key, fingerprint: [2; 16], until });
        let fresh_id = || ScheduleId::from_bytes(self.dice.tail().to_be_bytes());
        let only_id = fresh_id();
        loop {
            let id = if claim.is_some() { fresh_id() } else { only_id };
            let new = NewSchedule {
                id,
                tenant: self.tenant.clone(),
                name: None,
                definition: definition.clone(),
                paused,
            };
            let command = ScheduleCommand::Create { new: Box::new(new), fresh: false };
            let wish = self.wish(id, Deed::Create, Some(&definition));
            if let Ok(Ok(edited)) = self.give_under(claim.clone(), wish, None, command).await {
                return edited.schedule;
            }
            self.pause_briefly().await;
        }
    }

    /// Reads the schedule, then changes what it read, as a client that patches it does.
    async fn update(&self, mut schedule: Schedule, definition: Definition) -> Schedule {
        loop {
            if let Some(read) = self.read(schedule.id).await {
                schedule = read;
                let command = ScheduleCommand::Update {
                    definition: Box::new(definition.clone()),
                    name: None,
                    paused: None,
                };
                let wish = self.wish(schedule.id, Deed::Update, Some(&definition));
                if let Ok(Ok(edited)) = self.give(wish, Some(schedule.version), command).await {
                    return edited.schedule;
                }
            }
            self.pause_briefly().await;
        }
    }

    /// Gives an order until it is answered; the schedule as it is then, none if it is gone.
    async fn order(&self, schedule: &Schedule, deed: Deed, command: ScheduleCommand) -> Option<Schedule> {
        loop {
            let wish = self.wish(schedule.id, deed, None);
            match self.give(wish, None, command.clone()).await {
                Ok(Ok(edited)) => return Some(edited.schedule),
                Ok(Err(ScheduleRefusal::NotFound)) => return None,
                Ok(Err(_)) | Err(_) => self.pause_briefly().await,
            }
        }
    }

    /// Asks once: a second time would be a second job.
    async fn trigger(&self, schedule: &Schedule) {
        let wish = self.wish(schedule.id, Deed::Trigger, None);
        self.give(wish, None, ScheduleCommand::Trigger).await.ok();
    }

    fn wish(&self, id: ScheduleId, deed: Deed, definition: Option<&Definition>) -> ScheduleWish {
        let definition = definition.map(|definition| Arc::new(definition.clone()));
        ScheduleWish { tenant: self.tenant.clone(), id, deed, definition }
    }

    async fn give(
        &self,
        wish: ScheduleWish,
        if_version: Option<u64>,
        command: ScheduleCommand,
    ) -> Result<Result<Edited, ScheduleRefusal>, NoAnswer> {
        self.give_under(None, wish, if_version, command).await
    }

    async fn give_under(
        &self,
        key: Option<IdempotencyClaim>,
        wish: ScheduleWish,
        if_version: Option<u64>,
        command: ScheduleCommand,
    ) -> Result<Result<Edited, ScheduleRefusal>, NoAnswer> {
        let history = &self.world.history;
        let (id, deed) = (wish.id, wish.deed);
        let order = ScheduleOrder { tenant: self.tenant.clone(), id, if_version, command, key };
        let answer = self.world.call(|engine| {
            history.note(Event::ScheduleWishing(Box::new(wish)));
            async move { engine.edit_schedules(vec![order]).await }
        });
        let result = answer.await?.pop().ok_or(NoAnswer::Unclear)?;
        history.note(match &result {
            Ok(Edited { schedule, changed, jobs, .. }) => Event::ScheduleGranted(Box::new(ScheduleAnswer {
                deed,
                schedule: schedule.clone(),
                changed: *changed,
                jobs: jobs.iter().map(|job| job.id).collect(),
            })),
            Err(_) => Event::ScheduleDeclined { id, deed },
        });
        Ok(result)
    }

    async fn read(&self, id: ScheduleId) -> Option<Schedule> {
        let tenant = &self.tenant;
        let read = |engine: tidewheel_server::engine::Engine| async move {
            engine.store().schedules(tenant, vec![id]).await
        };
        self.world.call(read).await.ok()?.pop().flatten()
    }

    async fn pause_briefly(&self) {
        self.world.sleep_ms(self.dice.between(10, RETRY_MS_MAX)).await;
    }
}

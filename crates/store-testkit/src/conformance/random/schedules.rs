//! The part of a random run that is about schedules.

use std::sync::Arc;

use jiff::tz::TimeZoneDatabase;
use tidewheel_core::cron::Cron;
use tidewheel_core::limits::DAY_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{
    Dates, Definition, Misfire, MisfirePolicy, NewSchedule, Overlap, Roll, Rule, Schedule, State, Timing,
    Zone, backfill, backfill_job,
};

use super::{KEYS, MINUTE_MS, Pair};
use crate::conformance::beat::{beat, dates};
use crate::conformance::walk;
use tidewheel_store::{
    Edited, Error, IdempotencyClaim, ScheduleCommand, ScheduleOrder, ScheduleQuery, ScheduleRefusal,
    Schedules, Store,
};

const CALENDARS: [&str; 3] = ["", "closed", "closed-2"];
const NAMES: [&str; 4] = ["a", "a/b", "ab", "nightly"];
const BACKFILL_COUNT_MAX: usize = 4;

impl Pair<'_> {
    /// A schedule that is there, as the model has it.
    async fn some_schedule(&mut self) -> Option<Schedule> {
        if self.schedules.is_empty() {
            return None;
        }
        let recent = self.schedules.len().saturating_sub(8);
        let from = if self.dice.percent(80) { recent } else { 0 };
        let (tenant, id) = self.dice.pick(&self.schedules[from..]).clone();
        self.model.schedules(&tenant, vec![id]).await.expect("looked up").remove(0)
    }

    pub(super) async fn edit_schedules(&mut self) {
        let mut orders = Vec::new();
        for _ in 0..self.dice.between(1, 4) {
            let order = match self.some_schedule().await {
                Some(schedule) if self.dice.percent(80) => self.edit_of(&schedule).await,
                Some(_) | None => self.creation(),
            };
            orders.push(order);
        }
        let now = self.trial.now;
        let real = self.trial.store.edit_schedules(now, orders.clone()).await;
        let model = self.model.edit_schedules(now, orders.clone()).await;
        let plain = |answers: Result<Vec<Result<Edited, ScheduleRefusal>>, Error>| {
            let answers = answers.expect("answered").into_iter();
            answers
                .map(|answer| answer.map(|edited| (edited.schedule, edited.changed, edited.jobs)))
                .collect::<Vec<_>>()
        };
        let (real, model) = (plain(real), plain(model));
        assert_eq!(real, model, "{}: {orders:?}", self.place);
        for (schedule, _, jobs) in model.into_iter().flatten() {
            let key = (schedule.tenant, schedule.id);
            if !self.schedules.contains(&key) {
                self.schedules.push(key);
            }
            self.learn(&jobs);
        }
    }

    fn creation(&mut self) -> ScheduleOrder {
        let tenant = self.dice.pick(&self.tenants).clone();
        let id = self.trial.schedule_id();
        let definition = self.definition();
        let name = self.dice.percent(40).then(|| Arc::from(*self.dice.pick(&NAMES)));
        let key = self.dice.percent(40).then(|| IdempotencyClaim {
            key: Arc::from(*self.dice.pick(&KEYS)),
            fingerprint: [*self.dice.pick(&[1, 1, 2]); 16],
            until: self.trial.now.plus_ms(self.dice.between(1, 3 * DAY_MS)),
        });
        let paused = self.dice.percent(10);
        let new = Box::new(NewSchedule { id, tenant: tenant.clone(), name, definition, paused });
        let fresh = self.dice.percent(50);
        ScheduleOrder { tenant, id, if_version: None, command: ScheduleCommand::Create { new, fresh }, key }
    }

    async fn edit_of(&mut self, schedule: &Schedule) -> ScheduleOrder {
        let command = match self.dice.below(100) {
            0..25 => {
                let same = self.dice.percent(30);
                let definition = if same { (*schedule.definition).clone() } else { self.definition() };
                let name = self.dice.percent(50).then(|| Arc::from(*self.dice.pick(&NAMES)));
                let paused = *self.dice.pick(&[None, None, Some(true), Some(false)]);
                ScheduleCommand::Update { definition: Box::new(definition), name, paused }
            }
            25..35 => ScheduleCommand::Pause,
            35..50 => ScheduleCommand::Resume,
            50..60 => ScheduleCommand::Delete,
            60..72 => ScheduleCommand::Trigger,
            72..80 => self.backfill_of(schedule).await,
            80..90 => ScheduleCommand::Retime(schedule.definition.rule.zone.clone()),
            90..95 => {
                let name = Arc::from(*self.dice.pick(&CALENDARS[1..]));
                // Not always what it had: whoever tells of a change may be told of another in between.
                let before = self.dice.percent(50).then(|| Arc::new(dates(&["2027-01-15", "2027-01-16"])));
                ScheduleCommand::Redate { name, before }
            }
            _ => ScheduleCommand::Rearm { set_back_ms: self.dice.between(0, 20 * MINUTE_MS) },
        };
        let guess = schedule.version.saturating_sub(u64::from(self.dice.percent(20)));
        let if_version = self.dice.percent(30).then_some(guess);
        let key = if self.dice.percent(20) { Some(self.claim()) } else { None };
        ScheduleOrder { tenant: schedule.tenant.clone(), id: schedule.id, if_version, command, key }
    }

    async fn backfill_of(&mut self, schedule: &Schedule) -> ScheduleCommand {
        let calendar = match &schedule.definition.rule.exclude.calendar {
            Some(name) => self.model.calendar(&schedule.tenant, name).await.expect("read"),
            None => None,
        };
        let now = self.trial.now;
        let from = now.plus_ms(-self.dice.between(0, 60 * MINUTE_MS));
        let instants = backfill(schedule, calendar.as_ref(), from, now).take(BACKFILL_COUNT_MAX);
        ScheduleCommand::Backfill(
            instants.map(|nominal| backfill_job(schedule, nominal.fire_at, now, now).0).collect(),
        )
    }

    fn definition(&mut self) -> Definition {
        let start_at = self.dice.percent(20).then(|| self.time());
        let end_at = self.dice.percent(10).then(|| self.time());
        let now = self.trial.now;
        let dice = &mut self.dice;
        let zone = *dice.pick(&["UTC", "Europe/Berlin", "Australia/Lord_Howe"]);
        let timing = if dice.percent(60) {
            Timing::Every { interval_ms: dice.between(1, 20) * 15_000, anchor: now }
        } else {
            let text = *dice.pick(&["*/2 * * * *", "0 * * * *", "30 2 * * *"]);
            Timing::Cron(Box::new(Cron::parse(text).expect("a cron expression")))
        };
        let mut definition = beat();
        definition.rule = Arc::new(Rule {
            timing,
            zone: Zone::named(&TimeZoneDatabase::bundled(), zone).expect("a zone"),
            start_at,
            end_at,
            ..(*definition.rule).clone()
        });
        if dice.percent(30) {
            let exclude = &mut Arc::make_mut(&mut definition.rule).exclude;
            exclude.calendar = Some(Arc::from(*dice.pick(&CALENDARS[1..])));
            exclude.roll = *dice.pick(&Roll::ALL);
        }
        definition.window_ms = *dice.pick(&[0, 0, 30_000]);
        definition.overlap = *dice.pick(&Overlap::ALL);
        let policy =
            *dice.pick(&[MisfirePolicy::FireAll { cap: 3 }, MisfirePolicy::FireLatest, MisfirePolicy::Skip]);
        definition.misfire = Misfire { policy, grace_ms: *dice.pick(&[1_000, MINUTE_MS]) };
        definition
    }

    pub(super) async fn put_calendar(&mut self) {
        let tenant = self.dice.pick(&self.tenants).clone();
        let name = *self.dice.pick(&CALENDARS[1..]);
        let dates: Option<Dates> =
            self.dice.percent(80).then(|| dates(&["2027-01-15", "2027-01-16", "2027-01-20"]));
        self.trial.store.put_calendar(&tenant, name, dates.clone()).await.expect("stored");
        self.model.put_calendar(&tenant, name, dates).await.expect("stored");
    }

    pub(super) async fn compare_schedules(&mut self) {
        let tenant = self.dice.pick(&self.tenants).clone();
        let query = ScheduleQuery {
            tenant: tenant.clone(),
            states: if self.dice.percent(50) { vec![*self.dice.pick(&State::ALL)] } else { Vec::new() },
            kind: self.dice.percent(20).then(|| Arc::from("mail.send")),
            calendar: self.dice.percent(20).then(|| Arc::from(CALENDARS[1])),
            after: None,
            count_max: *self.dice.pick(&[1, 3, 100]),
        };
        let real = walk::schedules(&*self.trial.store, query.clone()).await;
        let model = walk::schedules(&self.model, query.clone()).await;
        assert_eq!(real, model, "{}: {query:?}", self.place);
        self.compare_names(&tenant).await;
        if let Some(schedule) = self.some_schedule().await {
            let count_max = *self.dice.pick(&[1, 3, 100]);
            self.compare_ledger(&schedule, count_max).await;
        }
    }

    async fn compare_names(&self, tenant: &Tenant) {
        let (real, model): (&dyn Schedules, &dyn Schedules) = (&*self.trial.store, &self.model);
        for name in NAMES {
            let real = real.find_schedule(tenant, name).await.expect("read");
            assert_eq!(
                real,
                model.find_schedule(tenant, name).await.expect("read"),
                "{}: {name}",
                self.place
            );
        }
        for name in CALENDARS {
            let real = real.calendar(tenant, name).await.expect("read");
            assert_eq!(real, model.calendar(tenant, name).await.expect("read"), "{}: {name}", self.place);
        }
        let counted = real.count_schedules(tenant).await.expect("counted");
        assert_eq!(counted, model.count_schedules(tenant).await.expect("counted"), "{}", self.place);
        let tenants = real.schedule_tenants(None, 100).await.expect("read");
        assert_eq!(tenants, model.schedule_tenants(None, 100).await.expect("read"), "{}", self.place);
    }

    async fn compare_ledger(&self, schedule: &Schedule, count_max: usize) {
        let real = walk::ledger(&*self.trial.store, schedule, count_max).await;
        let model = walk::ledger(&self.model, schedule, count_max).await;
        assert_eq!(real, model, "{}: {}", self.place, schedule.id);
    }

    /// Everything about schedules, and that no chain is broken: each has its one occurrence, or none to wait for.
    pub(super) async fn compare_all_schedules(&mut self) {
        for tenant in self.tenants.clone() {
            self.compare_names(&tenant).await;
            let query = ScheduleQuery {
                tenant: tenant.clone(),
                states: Vec::new(),
                kind: None,
                calendar: None,
                after: None,
                count_max: 100,
            };
            let real = walk::schedules(&*self.trial.store, query.clone()).await;
            assert_eq!(real, walk::schedules(&self.model, query).await, "{}", self.place);
            for schedule in real {
                self.compare_ledger(&schedule, 100).await;
                assert_eq!(schedule.next.is_some(), schedule.state == State::Active, "{}", self.place);
                let Some(next) = schedule.next else { continue };
                let job = self.model.get(&tenant, vec![next.job_id]).await.expect("looked up").remove(0);
                let armed = job.as_ref().and_then(tidewheel_core::job::Job::armed_at);
                assert!(armed.is_some(), "{}: {} waits for {job:?}", self.place, schedule.id);
            }
        }
    }
}

//! The audit trail.

use bytes::Bytes;
use tidewheel_core::audit::{Change, Changes, Kind, Record, Walk, chain_of};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job, State};
use tidewheel_core::limits::{AUDIT_CHANGES_PER_RECORD_COUNT_MAX, DAY_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

use super::Home;
use super::trial::{Retry, Trial, amending, failing, keyed, keyless, order, stale, succeeding, tenant};
use tidewheel_store::{AuditOrder, AuditQuery, NewAct, OnConflict, Store};

const ALL: AuditQuery = AuditQuery {
    kind: None,
    from: Timestamp::from_ms(0),
    until: Timestamp::MAX,
    after: None,
    order: AuditOrder::OldestFirst,
    count_max: 100_000,
};

fn act(tenant: &Tenant, says: &str) -> NewAct {
    NewAct { tenant: tenant.clone(), content: Bytes::copy_from_slice(says.as_bytes()) }
}

async fn read(store: &dyn Store, query: AuditQuery) -> Vec<Record> {
    store.audit_records(query).await.expect("records are read")
}

/// Everything, after checking that each chain is whole from end to end.
pub(super) async fn sound_trail(store: &dyn Store) -> Vec<Record> {
    let ends = store.audit_chains().await.expect("chains are read");
    assert!(ends.windows(2).all(|pair| pair[0].chain < pair[1].chain));
    let records = read(store, ALL).await;
    let mut walk = Walk::between(&ends);
    for record in &records {
        walk.check(record).expect("a sound chain");
    }
    walk.end().expect("a whole chain");
    assert!(records.windows(2).all(|pair| pair[0].place() < pair[1].place()));
    records
}

fn texts(records: &[Record]) -> Vec<String> {
    let acts = records.iter().filter(|record| record.kind == Kind::Act);
    acts.map(|record| String::from_utf8_lossy(&record.content).into_owned()).collect()
}

fn changes(records: &[Record]) -> Vec<Change> {
    let packed = records.iter().filter(|record| record.kind == Kind::Changes);
    packed.flat_map(|record| Changes::of(&record.content)).collect::<Result<_, _>>().expect("readable")
}

/// What became of one job, in order.
async fn steps(store: &dyn Store, job: &Job) -> Vec<(Option<State>, Option<State>, u32)> {
    let all = changes(&sound_trail(store).await).into_iter();
    let own = all.filter(|change| change.tenant == job.tenant && change.step.id == job.id);
    own.map(|change| (change.step.from, change.step.to, change.step.attempt)).collect()
}

/// Each in the chain of its tenant's shard, byte for byte and in order, also over reopening.
pub async fn acts_are_kept_in_chains(home: &dyn Home) {
    let trial = Trial::start(home).await;
    let shards = trial.store.layout().shards;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    assert!(sound_trail(&*trial.store).await.is_empty());
    let first = vec![act(&acme, "one"), act(&globex, "\u{0}two"), act(&acme, "")];
    trial.store.append_acts(trial.now, first).await.expect("added");
    let mut trial = trial.reopen().await;
    trial.pass(5);
    trial.store.append_acts(trial.now, vec![act(&acme, "three")]).await.expect("added");
    // A clock that goes back does not take the chain back.
    let earlier = trial.now.plus_ms(-1_000);
    trial.store.append_acts(earlier, vec![act(&acme, "four")]).await.expect("added");
    let trial = trial.reopen().await;
    let records = sound_trail(&*trial.store).await;
    for (tenant, says) in [(&acme, vec!["one", "", "three", "four"]), (&globex, vec!["\u{0}two"])] {
        let own: Vec<_> =
            records.iter().filter(|record| record.chain == chain_of(tenant, shards)).cloned().collect();
        let found = texts(&own);
        assert_eq!(says.iter().filter(|text| found.iter().any(|found| found == *text)).count(), says.len());
        let positions = says.iter().map(|text| found.iter().position(|found| found == text));
        assert!(positions.is_sorted());
    }
    assert_eq!(records.len(), 5);
}

/// From the first to the last, with the attempt it was at.
pub async fn every_change_of_a_job_is_recorded(home: &dyn Home) {
    use State::{Cancelled, Dead, Retrying, Running, Scheduled, Succeeded};
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let job = trial.add(&acme, 0).await;
    let running = trial.claim(&job).await;
    let retrying = trial.order(&running, failing(&running, Retry::Yes)).await;
    trial.pass(10_000);
    let running = trial.claim(&retrying).await;
    let succeeded = trial.order(&running, succeeding(&running)).await;
    assert_eq!(
        steps(&*trial.store, &succeeded).await,
        [
            (None, Some(Scheduled), 0),
            (Some(Scheduled), Some(Running), 1),
            (Some(Running), Some(Retrying), 1),
            (Some(Retrying), Some(Running), 2),
            (Some(Running), Some(Succeeded), 2),
        ]
    );
    let dead = trial.add_running(&acme).await;
    let dead = trial.order(&dead, failing(&dead, Retry::No)).await;
    trial.order(&dead, Command::Discard).await;
    let moved = trial.add(&acme, 1_000).await;
    let moved = trial.order(&moved, amending(trial.now.plus_ms(9_000))).await;
    trial.order(&moved, Command::Cancel).await;
    let trial = trial.reopen().await;
    let found = steps(&*trial.store, &dead).await;
    assert_eq!(found[2..], [(Some(Running), Some(Dead), 1), (Some(Dead), None, 0)]);
    let found = steps(&*trial.store, &moved).await;
    assert_eq!(found[1..], [(Some(Scheduled), Some(Scheduled), 0), (Some(Scheduled), Some(Cancelled), 0)]);
}

/// Refusals, repeats, heartbeats, batches that were taken back, dropped history.
pub async fn what_changes_nothing_is_not_recorded(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let running = trial.add_running(&acme).await;
    let other = trial.job(&acme, 0);
    trial.submit(vec![keyed(&other, "k", 1)]).await;
    let before = sound_trail(&*trial.store).await.len();
    let beat = Command::Heartbeat { token: running.status.token, extend_ms: 60_000, progress: None };
    trial.order(&running, beat).await;
    drop(
        trial
            .try_order(&running, Command::Succeed { token: stale(), finding: super::trial::finding("") })
            .await,
    );
    drop(trial.try_order(&other, Command::Discard).await);
    trial.submit(vec![keyless(&other), keyed(&other, "k", 1)]).await;
    let (fresh, conflicting) = (trial.job(&acme, 0), trial.job(&acme, 0));
    trial.submit_or(vec![keyless(&fresh), keyed(&conflicting, "k", 2)], OnConflict::KeepNone).await;
    assert_eq!(sound_trail(&*trial.store).await.len(), before);
    trial.order(&running, succeeding(&running)).await;
    let before = sound_trail(&*trial.store).await.len();
    trial.store.drop_history(trial.now, trial.now.plus_ms(3 * DAY_MS)).await.expect("dropped");
    assert_eq!(sound_trail(&*trial.store).await.len(), before);
}

/// A batch is one record for every so many changes of a shard, not one for each.
pub async fn many_changes_make_few_records(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let jobs: Vec<_> = (0..AUDIT_CHANGES_PER_RECORD_COUNT_MAX + 10).map(|_| trial.job(&acme, 0)).collect();
    trial.take_in(&jobs).await;
    assert_eq!(sound_trail(&*trial.store).await.len(), 2);
    trial.orders(jobs.iter().map(|job| order(job, trial.claiming())).collect()).await;
    let records = sound_trail(&*trial.store).await;
    assert_eq!(records.len(), 4);
    let mut found: Vec<JobId> = changes(&records).iter().map(|change| change.step.id).collect();
    found.sort();
    let mut wanted: Vec<JobId> = jobs.iter().chain(&jobs).map(|job| job.id).collect();
    wanted.sort();
    assert_eq!(found, wanted);
}

/// Of all chains by time, forth and back, by kind, within bounds of time.
pub async fn records_are_read_page_by_page(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let start = trial.now;
    for n in 0..12 {
        let tenant = tenant(["a", "b", "c"][n % 3]);
        trial.store.append_acts(trial.now, vec![act(&tenant, &n.to_string())]).await.expect("added");
        if n % 4 == 0 {
            trial.add(&tenant, 0).await;
        }
        trial.pass(1_000);
    }
    let all = sound_trail(&*trial.store).await;
    assert_eq!(all.len(), 15);
    let mut backwards = all.clone();
    backwards.reverse();
    let late = start.plus_ms(4_000)..start.plus_ms(9_000);
    for (order, wanted) in [(AuditOrder::OldestFirst, all), (AuditOrder::NewestFirst, backwards)] {
        for (kind, range) in [
            (None, ALL.from..ALL.until),
            (Some(Kind::Act), ALL.from..ALL.until),
            (Some(Kind::Changes), ALL.from..ALL.until),
            (None, late.clone()),
        ] {
            let wanted: Vec<_> = wanted
                .iter()
                .filter(|record| kind.is_none_or(|kind| kind == record.kind) && range.contains(&record.at))
                .cloned()
                .collect();
            assert!(wanted.len() >= 3);
            for count_max in [1, 2, 7, 50] {
                let query = AuditQuery { kind, from: range.start, until: range.end, order, count_max, ..ALL };
                let mut found: Vec<Record> = Vec::new();
                loop {
                    let after = found.last().map(Record::place);
                    let page = read(&*trial.store, AuditQuery { after, ..query }).await;
                    let is_last = page.len() < count_max;
                    found.extend(page);
                    if is_last {
                        break;
                    }
                }
                assert_eq!(found, wanted, "{kind:?} {order:?}, {count_max} at a time");
            }
        }
    }
}

/// By whole days; what is left is linked to what was dropped, and what is added then to what is left.
pub async fn old_records_are_dropped_and_chains_stay_whole(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let first_day = trial.now;
    for n in 0..3 {
        trial.store.append_acts(trial.now, vec![act(&acme, &format!("day {n}"))]).await.expect("added");
        trial.add(&acme, 0).await;
        if n == 0 {
            trial.store.append_acts(trial.now, vec![act(&globex, "once")]).await.expect("added");
        }
        trial.pass(DAY_MS);
    }
    trial.store.drop_audit(first_day).await.expect("dropped");
    assert_eq!(texts(&sound_trail(&*trial.store).await).len(), 4, "nothing is older");
    trial.store.drop_audit(first_day.plus_ms(DAY_MS)).await.expect("dropped");
    assert_eq!(texts(&sound_trail(&*trial.store).await), ["day 1", "day 2"]);
    let trial = trial.reopen().await;
    assert_eq!(texts(&sound_trail(&*trial.store).await), ["day 1", "day 2"]);
    let shards = trial.store.layout().shards;
    let heads = trial.store.audit_chains().await.expect("chains are read");
    assert!(heads.iter().any(|ends| ends.chain == chain_of(&globex, shards) && ends.head.seq > 0));
    trial
        .store
        .append_acts(trial.now, vec![act(&globex, "again"), act(&acme, "day 3")])
        .await
        .expect("added");
    assert_eq!(sound_trail(&*trial.store).await.iter().filter(|record| record.kind == Kind::Act).count(), 4);
    trial.store.drop_audit(trial.now.plus_ms(9 * DAY_MS)).await.expect("dropped");
    assert!(sound_trail(&*trial.store).await.is_empty());
    trial.store.append_acts(trial.now, vec![act(&acme, "after all")]).await.expect("added");
    assert_eq!(texts(&sound_trail(&*trial.store).await), ["after all"]);
}

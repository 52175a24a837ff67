use super::*;
use std::sync::Arc;

use tidewheel_core::job::Priority;
use tidewheel_core::schedule::{NewSchedule, Schedule, create, occurrence_job};

use crate::definition::tests::{definition, unusual};
use crate::schedule_record::Stored;
use crate::sheet::Sheet;

const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_000);

fn schedule(definition: Definition) -> Schedule {
    let id = ScheduleId::from_bytes([7; 16]);
    let new = NewSchedule { id, tenant: Tenant::default(), name: None, definition, paused: true };
    create(new, None, NOW).schedule
}

fn occurrence(schedule: &Schedule, catch_up: bool) -> Job {
    occurrence_job(schedule, NOW.plus_ms(-5), NOW.plus_ms(300), catch_up, NOW.plus_ms(-1))
}

#[test]
fn occurrences_survive_the_round_trip() {
    for definition in [definition(), unusual()] {
        let schedule = schedule(definition);
        let stored = Stored { schedule: Arc::new(schedule.clone()), first_entry: 0, sheet: Sheet::default() };
        let on_disk = Bytes::from(stored.encode_definition());
        for catch_up in [false, true] {
            let job = occurrence(&schedule, catch_up);
            let record = encode(&schedule.definition, &job).unwrap();
            assert!(record.len() <= BYTES_MAX && record.len() < 32, "{}", record.len());
            let get = |keyspace, key: &[u8]| {
                assert_eq!(
                    (keyspace, key),
                    (Keyspace::Schedules, &*keys::schedule(&job.tenant, schedule.id))
                );
                Ok(Some(on_disk.clone()))
            };
            assert_eq!(read_job(get, &job.tenant, job.id, &record).unwrap(), job);
            assert_eq!(record::attempt_of(&job.tenant, job.id, &record), Ok(0));
            assert!(record::decode(&job.tenant, job.id, &record).is_err(), "it does not say all there is");
        }
    }
}

#[test]
fn whole_records_are_told_apart() {
    let schedule = schedule(unusual());
    let job = occurrence(&schedule, true);
    let record = record::encode(&job);
    assert_eq!(Lean::read(job.id, &record), Ok(None));
    assert_eq!(read_job(|_, _| Ok(None), &job.tenant, job.id, &record).unwrap(), job);
}

#[test]
fn what_is_cut_is_refused() {
    let schedule = schedule(definition());
    let job = occurrence(&schedule, false);
    let record = encode(&schedule.definition, &job).unwrap();
    for end in 2..record.len() {
        assert_eq!(Lean::read(job.id, &record[..end]), Err(NONSENSE), "{end}");
    }
    for end in 0..2 {
        assert!(read_job(|_, _| Ok(None), &job.tenant, job.id, &record[..end]).is_err());
    }
    let longer = [&*record, &[0]].concat();
    assert_eq!(Lean::read(job.id, &longer), Err(NONSENSE));
    let missing = read_job(|_, _| Ok(None), &job.tenant, job.id, &record);
    assert!(matches!(missing, Err(KvError::Corrupt(reason)) if reason.contains("missing")));
    let stored = Stored { schedule: Arc::new(schedule), first_entry: 0, sheet: Sheet::default() };
    let on_disk = Bytes::from(stored.encode_definition());
    for end in 0..on_disk.len() {
        let cut = read_job(|_, _| Ok(Some(on_disk.slice(..end))), &job.tenant, job.id, &record);
        assert!(matches!(cut, Err(KvError::Corrupt(_))), "{end}");
    }
}

#[test]
fn only_what_the_definition_says_is_left_out() {
    let schedule = schedule(unusual());
    let job = occurrence(&schedule, false);
    let definition = &schedule.definition;
    assert!(encode(definition, &job).is_some());
    let edits: [fn(&mut Spec); 9] = [
        |spec| spec.kind = "other".into(),
        |spec| spec.payload = Bytes::from_static(b"other"),
        |spec| spec.destination = tidewheel_core::job::Destination::Queue("other".into()),
        |spec| spec.priority = Priority::High,
        |spec| spec.retry.max_attempts += 1,
        |spec| spec.timeout_ms += 1,
        |spec| spec.expires_at = Some(NOW),
        |spec| spec.labels.clear(),
        |spec| spec.idempotency_key = None,
    ];
    for (number, edit) in edits.into_iter().enumerate() {
        let mut edited = job.clone();
        edit(Arc::make_mut(&mut edited.spec));
        assert_eq!(encode(definition, &edited), None, "edit {number}");
    }
    let mut moved = job.clone();
    moved.status.due_at = NOW;
    assert_eq!(encode(definition, &moved), None);
    assert_eq!(as_it_waited(&moved), None);
    let mut tried = job.clone();
    (tried.status.state, tried.status.attempt) = (State::Running, 1);
    assert_eq!(encode(definition, &tried), None);
    assert_eq!(as_it_waited(&tried), Some(job.clone()));
    tried.status.attempt = 2;
    assert_eq!(as_it_waited(&tried), None);
}

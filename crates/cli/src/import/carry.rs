//! From a crontab's entries to schedules: a name that stays the same, and a payload for a worker that runs commands.

use std::collections::BTreeMap;

use serde_json::json;
use tidewheel_core::cron::Cron;
use tidewheel_core::limits::{SCHEDULE_NAME_BYTES_MAX, TIMEOUT_MS_MAX};
use tidewheel_core::time::format_duration;
use xxhash_rust::xxh3::xxh3_64;

use super::crontab::{CronLine, Lost};
use crate::schedule::file::Entry;

/// The type of the jobs, which workers that run commands know.
const JOB_TYPE: &str = "command";
/// How much of a command's first word a name shows.
const WORD_CHARS_MAX: usize = 32;

/// Where imported schedules go, and what they are called.
#[derive(Debug)]
pub(super) struct Manner {
    /// What names begin with.
    pub(super) prefix: String,
    /// The zone of entries under no `CRON_TZ`.
    pub(super) timezone: String,
    /// Where jobs go.
    pub(super) destination: Destination,
}

/// Where jobs go.
#[derive(Debug)]
pub(super) enum Destination {
    /// To a queue.
    Queue(String),
    /// To a URL in which `{name}` stands for the schedule's name.
    Template(String),
}

/// An entry that became a schedule.
#[derive(Debug)]
pub(super) struct Carried {
    /// Where it stood.
    pub(super) source: CronLine,
    /// The schedule.
    pub(super) entry: Entry,
}

/// Makes a schedule of each entry that can be one.
pub(super) fn schedules(lines: Vec<CronLine>, manner: &Manner, lost: &mut Vec<Lost>) -> Vec<Carried> {
    let mut repeated: BTreeMap<String, usize> = BTreeMap::new();
    let mut carried = Vec::new();
    for source in lines {
        // Counted before anything is refused, so that a name does not depend on what was made of other lines.
        let base = name(&manner.prefix, &source.command);
        let count = repeated.entry(base.clone()).and_modify(|count| *count += 1).or_insert(1);
        let name = if *count == 1 { base } else { format!("{base}-{count}") };
        match schedule(&name, &source, manner) {
            Ok(entry) => carried.push(Carried { source, entry }),
            Err(why) => lost.push(Lost { line: source.line, text: source.text, why }),
        }
    }
    carried
}

fn schedule(name: &str, source: &CronLine, manner: &Manner) -> Result<Entry, String> {
    Cron::parse(&source.cron).map_err(|fault| fault.to_string())?;
    let mut document = json!({
        "name": name,
        "cron_expr": source.cron,
        "timezone": source.timezone.as_ref().unwrap_or(&manner.timezone),
        "type": JOB_TYPE,
        "payload": {"command": source.command, "env": source.env},
    });
    if let Some(fields) = document.as_object_mut() {
        match &manner.destination {
            Destination::Queue(queue) => {
                fields.insert("queue".to_owned(), queue.as_str().into());
                // cron lets a command take as long as it likes: here, as long as any job may.
                fields.insert("timeout".to_owned(), format_duration(TIMEOUT_MS_MAX).into());
            }
            Destination::Template(url) => {
                fields.insert("target_url".to_owned(), url.replace("{name}", name).into());
            }
        }
        if let Some(minutes) = source.random_delay_minutes {
            fields.insert("window".to_owned(), format!("{minutes}m").into());
        }
    }
    Entry::from_json(name, &document.to_string()).map_err(|fault| fault.to_string())
}

/// A name made of the command alone: another time for the same command is a change, not another schedule.
fn name(prefix: &str, command: &str) -> String {
    let word = command.split_whitespace().next().unwrap_or_default();
    let word = word.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    let word: String = word.chars().map(plain).take(WORD_CHARS_MAX).collect();
    let digest = xxh3_64(command.as_bytes()) >> 32;
    format!("{prefix}-{word}-{digest:08x}")
}

/// The longest prefix that leaves room for the rest of a name.
pub(super) const PREFIX_BYTES_MAX: usize =
    SCHEDULE_NAME_BYTES_MAX - WORD_CHARS_MAX - "--00000000-1000000".len();

#[cfg(test)]
mod tests {
    use super::super::crontab;
    use super::*;
    use tidewheel_core::schedule::check_name;

    fn carry(text: &str) -> (Vec<Carried>, Vec<Lost>) {
        let read = crontab::read(text, crontab::Owner::User);
        let manner = Manner {
            prefix: "crontab".to_owned(),
            timezone: "UTC".to_owned(),
            destination: Destination::Queue("q".to_owned()),
        };
        let mut lost = read.lost;
        let carried = schedules(read.entries, &manner, &mut lost);
        (carried, lost)
    }

    fn names(text: &str) -> Vec<String> {
        carry(text).0.into_iter().map(|carried| carried.entry.name).collect()
    }

    #[test]
    fn names_come_from_commands_and_stay() {
        let before = names("0 1 * * * /opt/a.sh --x\n0 2 * * * /opt/a.sh --x\n0 3 * * * $(weird) é\n");
        let after =
            names("# moved\nA=1\n5 5 * * * /opt/a.sh --x\n0 2 * * * /opt/a.sh --x\n0 3 * * * $(weird) é\n");
        assert_eq!(before, after);
        assert!(
            before[0].starts_with("crontab-a.sh-") && before[1] == format!("{}-2", before[0]),
            "{before:?}"
        );
        assert!(before.iter().all(|name| check_name(name).is_ok()), "{before:?}");
        let long = name(&"p".repeat(PREFIX_BYTES_MAX), &"x".repeat(500));
        assert!(check_name(&format!("{long}-1000000")).is_ok());
    }

    #[test]
    fn times_no_schedule_has_are_lost_with_the_reason() {
        let (carried, lost) = carry("0 0 31 2 * never\n61 * * * * wrong\n@fortnightly x\n0 0 * * 7 fine\n");
        assert_eq!(carried.len(), 1);
        assert_eq!(lost.iter().map(|lost| lost.line).collect::<Vec<_>>(), [1, 2, 3]);
    }
}

//! `import crontab`: reads, compares, creates or changes, and tells what became of every line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tidewheel_core::names::check_queue;
use tidewheel_core::schedule::check_name;

use super::carry::{self, Destination, Manner, PREFIX_BYTES_MAX};
use super::crontab::{self, CronLine, Lost, Owner};
use crate::connect::Link;
use crate::failure::Failure;
use crate::out::{Column, Out, Rows};
use crate::schedule::apply::{self, Done};
use crate::schedule::file::read_text;
use crate::schedule::plan::{self, Plan, Refused, Step, Strangers, Unchanged};

const EXAMPLES: &str = "\
Each entry becomes a schedule with the payload {\"command\": \"…\", \"env\": {…}}, for a worker that runs
commands and lets each take up to a day. The name is made of the command, so importing the same
file again changes nothing, and another time for the same command changes its schedule. Schedules
of entries that are gone from the file stay. Lines that cannot be carried over, and entries the
server refuses, are told one by one, and then the exit code is 1. Pushes have the usual timeout.

Examples:
  tidewheel import crontab jobs.cron --timezone America/New_York --queue commands
  crontab -l | tidewheel import crontab - --timezone Europe/Berlin --dry-run
  tidewheel import crontab jobs.cron --target-template https://runner.internal/run/{name}";

/// What is said of an entry the server would not have.
const REFUSED: &str = "refused";

/// The flags of `import crontab`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CrontabArgs {
    /// A user's crontab, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The zone of the machine it comes from, for entries under no CRON_TZ [default: UTC]
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// The queue of the workers that run the commands
    #[arg(long, value_name = "QUEUE", default_value = "commands", value_parser = queue)]
    queue: String,
    /// The URL jobs are pushed to instead, in which {name} stands for the schedule's name
    #[arg(long, value_name = "URL", conflicts_with = "queue")]
    target_template: Option<String>,
    /// What the schedules' names begin with
    #[arg(long, value_name = "NAME", default_value = "crontab", value_parser = prefix)]
    prefix: String,
    /// Shows what would be done, and does nothing
    #[arg(long)]
    dry_run: bool,
}

/// Whose crontab a file is, by where it lies.
fn owner(path: &Path) -> Owner {
    let is_system = path == Path::new("/etc/crontab") || path.parent() == Some(Path::new("/etc/cron.d"));
    if is_system { Owner::System } else { Owner::User }
}

fn queue(text: &str) -> Result<String, String> {
    check_queue(text).map(|()| text.to_owned()).map_err(|fault| fault.to_string())
}

fn prefix(text: &str) -> Result<String, String> {
    if text.len() > PREFIX_BYTES_MAX {
        return Err(format!("at most {PREFIX_BYTES_MAX} bytes"));
    }
    check_name(text).map(|()| text.to_owned()).map_err(|fault| fault.to_string())
}

/// What became, or would become, of one entry.
struct Report {
    source: CronLine,
    name: String,
    action: String,
    next: Option<String>,
    refusal: Option<String>,
}

/// Makes a schedule of each entry of a crontab.
pub(super) async fn crontab(args: CrontabArgs, link: &Link) -> Result<(), Failure> {
    let read = crontab::read(&read_text(&args.file)?, owner(&args.file));
    let zoneless = read.entries.iter().any(|entry| entry.timezone.is_none());
    if args.timezone.is_none() && zoneless {
        link.out.note("Times are taken as UTC; --timezone names the zone of the machine they come from.");
    }
    let manner = Manner {
        prefix: args.prefix,
        timezone: args.timezone.unwrap_or_else(|| "UTC".to_owned()),
        destination: match args.target_template {
            Some(url) => Destination::Template(url),
            None => Destination::Queue(args.queue),
        },
    };
    let mut lost = read.lost;
    let carried = carry::schedules(read.entries, &manner, &mut lost);
    lost.sort_by_key(|lost| lost.line);
    let (sources, entries): (Vec<_>, Vec<_>) = carried
        .into_iter()
        .map(|carried| ((carried.entry.name.clone(), carried.source), carried.entry))
        .unzip();
    let client = link.client()?;
    let plan = plan::make(entries, Strangers::Keep, &client).await?;
    let mut outcomes = settled(&plan);
    outcomes.extend(if args.dry_run {
        foreseen(&plan)
    } else {
        by_name(apply::carry_out(plan, &client).await?)
    });
    let reports = reports(sources, outcomes);
    print(&reports, &lost, link.out)?;
    let refused = reports.iter().any(|report| report.refusal.is_some());
    if refused || !lost.is_empty() { Err(Failure::Said) } else { Ok(()) }
}

/// What was or would be done to a schedule.
struct Outcome {
    action: String,
    next: Option<String>,
    refusal: Option<String>,
}

/// What is clear without doing anything.
fn settled(plan: &Plan) -> BTreeMap<String, Outcome> {
    let unchanged = plan.unchanged.iter().map(|Unchanged { name, next_fire_at }| {
        let outcome = Outcome { action: "unchanged".to_owned(), next: next_fire_at.clone(), refusal: None };
        (name.clone(), outcome)
    });
    let refused = plan.refused.iter().map(|Refused { name, why }| {
        (name.clone(), Outcome { action: REFUSED.to_owned(), next: None, refusal: Some(why.clone()) })
    });
    unchanged.chain(refused).collect()
}

fn foreseen(plan: &Plan) -> BTreeMap<String, Outcome> {
    let outcome = |action: &str, after: &[String]| Outcome {
        action: action.to_owned(),
        next: after.first().cloned(),
        refusal: None,
    };
    let steps = plan.steps.iter().filter_map(|step| match step {
        Step::Create { entry, after } => Some((entry.name.clone(), outcome("would be created", after))),
        Step::Change(changed) => {
            Some((changed.entry.name.clone(), outcome("would be changed", &changed.after)))
        }
        // Nothing is ever deleted by an import.
        Step::Delete { .. } => None,
    });
    steps.collect()
}

fn by_name(all: Vec<Done>) -> BTreeMap<String, Outcome> {
    let outcomes = all.into_iter().map(|Done { name, verb, next_fire_at, refusal, .. }| {
        let action = if refusal.is_some() { REFUSED } else { verb }.to_owned();
        (name, Outcome { action, next: next_fire_at, refusal })
    });
    outcomes.collect()
}

fn reports(sources: Vec<(String, CronLine)>, mut outcomes: BTreeMap<String, Outcome>) -> Vec<Report> {
    let reports = sources.into_iter().filter_map(|(name, source)| {
        let Outcome { action, next, refusal } = outcomes.remove(&name)?;
        Some(Report { source, name, action, next, refusal })
    });
    reports.collect()
}

const COLUMNS: &[Column] = &[
    Column::whole("LINE", 4),
    Column::whole("ACTION", 9),
    Column::whole("NEXT FIRE AT", 24),
    Column::whole("NAME", 0),
    Column::text("WHEN"),
    Column::text("COMMAND"),
];

fn print(reports: &[Report], lost: &[Lost], out: Out) -> Result<(), Failure> {
    if out.is_json() {
        return Ok(out.json(document(reports, lost).to_string().as_bytes())?);
    }
    let row = |report: &Report| {
        let Report { source, name, action, next, .. } = report;
        let line = source.line.to_string();
        vec![
            Some(line),
            Some(action.clone()),
            next.clone(),
            Some(name.clone()),
            Some(source.cron.clone()),
            Some(source.command.clone()),
        ]
    };
    out.table(COLUMNS, Rows { rows: reports.iter().map(row).collect(), titled: true })?;
    for (source, refusal) in reports.iter().filter_map(|r| Some((&r.source, r.refusal.as_ref()?))) {
        out.error(&format!("line {}: {}\n  {refusal}", source.line, source.text));
    }
    for Lost { line, text, why } in lost {
        out.error(&format!("line {line} is not carried over: {text}\n  {why}"));
    }
    Ok(())
}

fn document(reports: &[Report], lost: &[Lost]) -> Value {
    let schedules: Vec<Value> = reports
        .iter()
        .map(|Report { source, name, action, next, refusal }| {
            json!({
                "line": source.line, "name": name, "action": action, "next_fire_at": next,
                "cron_expr": source.cron, "command": source.command, "error": refusal,
            })
        })
        .collect();
    let lost: Vec<Value> =
        lost.iter().map(|Lost { line, text, why }| json!({"line": line, "text": text, "why": why})).collect();
    json!({"schedules": schedules, "not_carried_over": lost})
}

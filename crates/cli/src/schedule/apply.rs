//! `schedule apply`: makes the schedules what a file says.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};
use tidewheel_api::client::{Client, Error};

use super::file;
use super::plan::{self, Plan, Step, Strangers};
use super::remote;
use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::out::{Out, printable};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Applying the same file again changes nothing. `tidewheel schedule plan` shows what would be done, and
says what a file looks like.

Examples:
  tidewheel schedule apply schedules.yaml
  tidewheel schedule apply schedules.yaml --prune
  tidewheel schedule apply schedules.yaml --prune --yes -o json";

/// The flags of `schedule apply`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApplyArgs {
    /// A file of schedules, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Deletes schedules that are not in the file
    #[arg(long)]
    prune: bool,
    /// Deletes without asking
    #[arg(long, short)]
    yes: bool,
}

/// What was done to one schedule.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its name.
    pub(crate) name: String,
    /// What was done: created, changed or deleted; or what could not be.
    pub(crate) verb: &'static str,
    /// Its id.
    pub(crate) id: Option<String>,
    /// When it fires next.
    pub(crate) next_fire_at: Option<String>,
    /// Why the server would not.
    pub(crate) refusal: Option<String>,
}

/// Makes the schedules what a file says.
pub(super) async fn run(args: ApplyArgs, link: &Link) -> Result<(), Failure> {
    let entries = file::read(&args.file)?;
    let strangers = if args.prune { Strangers::Delete } else { Strangers::Keep };
    let client = link.client()?;
    let plan = plan::make(entries, strangers, &client).await?.all_granted()?;
    if plan.deletions() > 0 && !args.yes {
        confirm(&plan, link.out)?;
    }
    plan.tell_of_kept(link.out);
    let unchanged = plan.unchanged.len();
    let done = carry_out(plan, &client).await?;
    print(&done, unchanged, link.out)?;
    if done.iter().any(|done| done.refusal.is_some()) { Err(Failure::Said) } else { Ok(()) }
}

/// Asks whoever sits there; refuses where nobody does.
fn confirm(plan: &Plan, out: Out) -> Result<(), Failure> {
    let count = plan.deletions();
    let names = plan.steps.iter().filter_map(|step| match step {
        Step::Delete { name, .. } => Some(name.as_str()),
        Step::Create { .. } | Step::Change(_) => None,
    });
    let names = names.collect::<Vec<_>>().join(", ");
    if !io::stdin().is_terminal() {
        return Err(Failure::Refused(format!(
            "--prune would delete {count}: {names}\nNothing was changed. Say --yes to delete without being asked."
        )));
    }
    out.note(&format!("This deletes {count}: {names}\nGo on? [y/N]"));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Failure::Refused("Nothing was changed.".to_owned()))
    }
}

/// Does what was planned, step by step; goes on after a refusal.
pub(crate) async fn carry_out(plan: Plan, client: &Client) -> Result<Vec<Done>, Failure> {
    let mut all = Vec::new();
    let bar = Progress::new("schedules", u64::try_from(plan.steps.len()).ok());
    for (step, number) in plan.steps.into_iter().zip(1..) {
        let (name, verb, result) = match step {
            Step::Create { entry, .. } => {
                let result = remote::put(client, &entry).await;
                (entry.name, "created", result)
            }
            Step::Change(changed) => {
                let result = remote::put(client, &changed.entry).await;
                (changed.entry.name, "changed", result)
            }
            Step::Delete { id, name, .. } => {
                let result = remote::delete(client, &id).await;
                (name, "deleted", result.map(|()| Document::default()))
            }
        };
        all.push(done(name, verb, result).inspect_err(|_| bar.clear())?);
        bar.reach(number, number);
    }
    bar.clear();
    Ok(all)
}

fn done(name: String, verb: &'static str, result: Result<Document, Error>) -> Result<Done, Failure> {
    match result {
        Ok(schedule) => {
            let (id, next_fire_at) = (schedule.text("id"), schedule.text("next_fire_at"));
            Ok(Done { name, verb, id, next_fire_at, refusal: None })
        }
        Err(error) => match error.problem() {
            Some(problem) => {
                let refusal = Some(problem.to_string());
                Ok(Done { name, verb, id: None, next_fire_at: None, refusal })
            }
            None => Err(error.into()),
        },
    }
}

fn print(all: &[Done], unchanged: usize, out: Out) -> Result<(), Failure> {
    for (name, refusal) in all.iter().filter_map(|done| Some((&done.name, done.refusal.as_ref()?))) {
        out.error(&format!("{name}: {refusal}"));
    }
    let of = |verb| all.iter().filter(move |done| done.verb == verb && done.refusal.is_none());
    if out.is_json() {
        let mut document = Map::new();
        for verb in ["created", "changed", "deleted"] {
            let items = of(verb).map(Done::document).collect::<Vec<_>>();
            document.insert(verb.to_owned(), items.into());
        }
        let refused = all.iter().filter(|done| done.refusal.is_some()).map(Done::document);
        document.insert("refused".to_owned(), refused.collect::<Vec<_>>().into());
        document.insert("unchanged".to_owned(), unchanged.into());
        return Ok(out.json(Value::Object(document).to_string().as_bytes())?);
    }
    for Done { name, verb, next_fire_at, .. } in all.iter().filter(|done| done.refusal.is_none()) {
        let next = next_fire_at.as_ref().map(|at| format!("  next {at}")).unwrap_or_default();
        out.line(&printable(&format!("{verb}  {name}{next}")))?;
    }
    let [created, changed, deleted] = ["created", "changed", "deleted"].map(|verb| of(verb).count());
    Ok(out.line(&format!("{created} created, {changed} changed, {deleted} deleted, {unchanged} unchanged"))?)
}

impl Done {
    fn document(&self) -> Value {
        let Self { name, id, next_fire_at, refusal, .. } = self;
        match refusal {
            Some(refusal) => json!({"name": name, "error": refusal}),
            None => json!({"name": name, "id": id, "next_fire_at": next_fire_at}),
        }
    }
}

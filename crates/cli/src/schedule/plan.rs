//! `schedule plan`: what applying a file would change, and when things would fire before and after.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tidewheel_api::client::{Client, Error};

use super::file::{self, Entry};
use super::registered::Registered;
use super::remote;
use super::settled::{Change, Settled};
use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::out::{Out, printable};

const EXAMPLES: &str = "\
A file is YAML or JSON, with the fields of the API:
  schedules:
    - name: morning-report
      cron_expr: \"0 9 * * MON-FRI\"
      timezone: America/New_York
      target_url: https://acme.com/webhooks/morning-report
What a file does not say is what is registered for a schedule's type, or else at its default; but a
schedule that was paused by hand stays so. Schedules that are not in the file are left alone unless
--prune asks for their deletion; those without a name always are.

Examples:
  tidewheel schedule plan schedules.yaml
  tidewheel schedule plan schedules.yaml --prune -o json
  tidewheel schedule export | tidewheel schedule plan -";

/// The flags of `schedule plan`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    /// A file of schedules, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Shows as well which schedules that are not in the file would be deleted
    #[arg(long)]
    prune: bool,
}

/// What would be done.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Creations and changes, in the order of the file, then deletions.
    pub(crate) steps: Vec<Step>,
    /// Those that are what they should be.
    pub(crate) unchanged: Vec<Unchanged>,
    /// Those the server would not have, with its reason.
    pub(crate) refused: Vec<Refused>,
    /// Names of those that are not in the file and stay.
    pub(crate) kept: Vec<String>,
}

/// A schedule that is what it should be.
#[derive(Debug)]
pub(crate) struct Unchanged {
    /// Its name.
    pub(crate) name: String,
    /// When it fires next.
    pub(crate) next_fire_at: Option<String>,
}

/// A schedule the server would not have.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Its name.
    pub(crate) name: String,
    /// Why not.
    pub(crate) why: String,
}

/// One thing that would be done.
#[derive(Debug)]
pub(crate) enum Step {
    /// A new schedule.
    Create { entry: Entry, after: Vec<String> },
    /// Another definition.
    Change(Box<Changed>),
    /// An end.
    Delete { id: String, name: String, before: Vec<String>, paused: bool },
}

/// A schedule that would be changed.
#[derive(Debug)]
pub(crate) struct Changed {
    /// What it would be.
    pub(crate) entry: Entry,
    id: String,
    changes: Vec<Change>,
    paused_before: bool,
    before: Vec<String>,
    paused_after: bool,
    /// The next fires it would have.
    pub(crate) after: Vec<String>,
}

/// What becomes of schedules that are not in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strangers {
    /// They stay.
    Keep,
    /// They are deleted.
    Delete,
}

struct Existing {
    id: String,
    next_fire_at: Option<String>,
    settled: Settled,
}

/// Shows what applying a file would change.
pub(super) async fn run(args: PlanArgs, link: &Link) -> Result<(), Failure> {
    let entries = file::read(&args.file)?;
    let strangers = if args.prune { Strangers::Delete } else { Strangers::Keep };
    make(entries, strangers, &link.client()?).await?.all_granted()?.print(link.out)
}

/// Compares what is wanted with what is.
pub(crate) async fn make(
    entries: Vec<Entry>,
    strangers: Strangers,
    client: &Client,
) -> Result<Plan, Failure> {
    let registered = Registered::read(client).await?;
    let mut existing = named_schedules(client).await?;
    let mut plan = Plan::default();
    for entry in entries {
        let name = entry.name.clone();
        let existing = existing.remove(&name);
        let next_fire_at = existing.as_ref().and_then(|existing| existing.next_fire_at.clone());
        match step(entry, existing, &registered, client).await {
            Ok(Some(step)) => plan.steps.push(step),
            Ok(None) => plan.unchanged.push(Unchanged { name, next_fire_at }),
            Err(error) => match error.problem() {
                Some(problem) => plan.refused.push(Refused { name, why: problem.to_string() }),
                None => return Err(error.into()),
            },
        }
    }
    for (name, Existing { id, settled, .. }) in existing {
        match strangers {
            Strangers::Keep => plan.kept.push(name),
            Strangers::Delete => {
                let before = remote::next_fires(client, &id).await?;
                plan.steps.push(Step::Delete { id, name, before, paused: settled.is_paused() });
            }
        }
    }
    Ok(plan)
}

async fn named_schedules(client: &Client) -> Result<BTreeMap<String, Existing>, Failure> {
    let mut existing = BTreeMap::new();
    remote::each_schedule(client, |schedule: Document| {
        if let (Some(id), Some(name)) = (schedule.text("id"), schedule.text("name")) {
            let next_fire_at = schedule.text("next_fire_at");
            existing.insert(name, Existing { id, next_fire_at, settled: Settled::of(&schedule) });
        }
    })
    .await?;
    Ok(existing)
}

async fn step(
    entry: Entry,
    existing: Option<Existing>,
    registered: &Registered,
    client: &Client,
) -> Result<Option<Step>, Error> {
    let Some(existing) = existing else {
        let after = fires_after(&entry, None, entry.paused() == Some(true), client).await?;
        return Ok(Some(Step::Create { entry, after }));
    };
    let said = entry.paused();
    let changes = existing.settled.changes(&entry.settled(registered), said.is_some());
    if changes.is_empty() {
        return Ok(None);
    }
    let paused_before = existing.settled.is_paused();
    let paused_after = said.unwrap_or(paused_before);
    let before = remote::next_fires(client, &existing.id).await?;
    let moved = changes.iter().any(Change::is_of_timing);
    let after = if moved || paused_before != paused_after {
        fires_after(&entry, Some(&existing.id), paused_after, client).await?
    } else {
        before.clone()
    };
    let id = existing.id;
    Ok(Some(Step::Change(Box::new(Changed {
        entry,
        id,
        changes,
        paused_before,
        before,
        paused_after,
        after,
    }))))
}

/// The next fires of a schedule as it is wanted. The server is asked about one that is to be paused as well, which
/// fires nothing: it says what it would not have.
async fn fires_after(
    entry: &Entry,
    id: Option<&str>,
    paused: bool,
    client: &Client,
) -> Result<Vec<String>, Error> {
    let fires = remote::previewed_fires(client, entry, id).await?;
    Ok(if paused { Vec::new() } else { fires })
}

impl Plan {
    /// The plan, if the server would have all of it; otherwise everything it would not have, at once.
    pub(crate) fn all_granted(self) -> Result<Self, Failure> {
        if self.refused.is_empty() {
            return Ok(self);
        }
        let faults: Vec<_> =
            self.refused.iter().map(|Refused { name, why }| format!("{name}: {why}")).collect();
        Err(Failure::Refused(format!("the file cannot be applied:\n  {}", faults.join("\n  "))))
    }

    /// How many schedules would be deleted.
    pub(crate) fn deletions(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Delete { .. })).count()
    }

    /// Prints it.
    pub(crate) fn print(&self, out: Out) -> Result<(), Failure> {
        if out.is_json() {
            return Ok(out.json(self.document().to_string().as_bytes())?);
        }
        for step in &self.steps {
            for line in step.lines() {
                out.line(&printable(&line))?;
            }
        }
        out.line(&self.summary())?;
        self.tell_of_kept(out);
        Ok(())
    }

    fn summary(&self) -> String {
        let count = |wanted: fn(&Step) -> bool| self.steps.iter().filter(|step| wanted(step)).count();
        format!(
            "{} to create, {} to change, {} to delete, {} unchanged",
            count(|step| matches!(step, Step::Create { .. })),
            count(|step| matches!(step, Step::Change(_))),
            self.deletions(),
            self.unchanged.len(),
        )
    }

    /// Says which schedules nobody spoke of.
    pub(crate) fn tell_of_kept(&self, out: Out) {
        if !self.kept.is_empty() {
            let names = self.kept.join(", ");
            out.note(&format!("Not in the file and left alone; --prune deletes them: {names}"));
        }
    }

    fn document(&self) -> Value {
        let [mut create, mut change, mut delete] = [const { Vec::new() }; 3];
        for step in &self.steps {
            match step {
                Step::Create { .. } => create.push(step.document()),
                Step::Change(_) => change.push(step.document()),
                Step::Delete { .. } => delete.push(step.document()),
            }
        }
        json!({
            "create": create, "change": change, "delete": delete,
            "unchanged": self.unchanged.iter().map(|same| &same.name).collect::<Vec<_>>(), "not_in_file": self.kept,
        })
    }
}

impl Step {
    fn lines(&self) -> Vec<String> {
        match self {
            Self::Create { entry, after } => {
                let paused = entry.paused() == Some(true);
                vec![format!("+ {}", entry.name), format!("    next: {}", listed(after, paused))]
            }
            Self::Change(changed) => {
                let mut lines = vec![format!("~ {}", changed.entry.name)];
                lines.extend(changed.changes.iter().map(|change| {
                    let (before, after) = (shown(change.before.as_ref()), shown(change.after.as_ref()));
                    format!("    {}: {before} -> {after}", change.field)
                }));
                lines.push(format!("    next before: {}", listed(&changed.before, changed.paused_before)));
                lines.push(format!("    next after:  {}", listed(&changed.after, changed.paused_after)));
                lines
            }
            Self::Delete { name, before, paused, .. } => {
                vec![format!("- {name}"), format!("    next before: {}", listed(before, *paused))]
            }
        }
    }

    fn document(&self) -> Value {
        match self {
            Self::Create { entry, after } => json!({"name": entry.name, "next_after": after}),
            Self::Change(changed) => {
                let Changed { entry, id, changes, before, after, .. } = &**changed;
                let changes: Vec<Value> = changes
                    .iter()
                    .map(|Change { field, before, after }| json!({"field": field, "before": before, "after": after}))
                    .collect();
                json!({"name": entry.name, "id": id, "changes": changes, "next_before": before, "next_after": after})
            }
            Self::Delete { id, name, before, .. } => json!({"name": name, "id": id, "next_before": before}),
        }
    }
}

/// A value as the file would have it; an absent one is the default.
fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "(default)".to_owned(), Value::to_string)
}

fn listed(fires: &[String], paused: bool) -> String {
    match fires {
        [] if paused => "none, it is paused".to_owned(),
        [] => "none".to_owned(),
        fires => fires.join(", "),
    }
}

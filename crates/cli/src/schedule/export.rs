//! `schedule export`: the schedules as a file that, applied, changes nothing.

use clap::Args;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::registered::Registered;
use super::remote;
use super::settled::Settled;
use super::yaml;
use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Writes YAML, or JSON with -o json. Only what differs from the defaults is written; those registered
for a schedule's type come first. Schedules without a name are left out, and told.

Examples:
  tidewheel schedule export > schedules.yaml
  tidewheel schedule export -o json > schedules.json";

/// The flags of `schedule export`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {}

/// A file of schedules.
#[derive(serde::Serialize)]
struct Exported {
    schedules: Vec<Written>,
}

/// A schedule's fields, in their order.
struct Written(Vec<(&'static str, Value)>);

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Writes the schedules as a file.
pub(super) async fn run(ExportArgs {}: ExportArgs, link: &Link) -> Result<(), Failure> {
    let mut named = Vec::new();
    let mut unnamed = Vec::new();
    let client = link.client()?;
    let registered = Registered::read(&client).await?;
    remote::each_schedule(&client, |schedule: Document| match schedule.text("name") {
        Some(name) => {
            let said = registered.to_say(&schedule, &Settled::of(&schedule));
            named.push((name, Written(said.written())));
        }
        None => unnamed.extend(schedule.text("id")),
    })
    .await?;
    named.sort_by(|(one, _), (other, _)| one.cmp(other));
    let file = Exported { schedules: named.into_iter().map(|(_, written)| written).collect() };
    if link.out.is_json() {
        let text =
            serde_json::to_string_pretty(&file).map_err(|fault| Failure::Refused(fault.to_string()))?;
        link.out.line(&text)?;
    } else {
        link.out.line(yaml::write(&file).map_err(Failure::Refused)?.trim_end())?;
    }
    if !unnamed.is_empty() {
        let ids = unnamed.join(", ");
        link.out.note(&format!("Left out, as a file knows schedules by name and these have none: {ids}"));
    }
    Ok(())
}

//! A file of schedules, YAML or JSON: `schedules`, a list, each with a name and the fields the API knows.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;
use tidewheel_core::schedule::check_name;

use super::registered::Registered;
use super::settled::{FIELDS, Settled};
use super::yaml;
use crate::document::Document;
use crate::failure::Failure;
use crate::submission::Body;

/// The longest file that is read.
pub(crate) const FILE_BYTES_MAX: u64 = 16 * 1_024 * 1_024;
/// Faults of a file that are told.
const FAULTS_TOLD_MAX: usize = 20;
/// What stands for stdin.
const STDIN: &str = "-";

/// One schedule as it is wanted.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: String,
    document: Document,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Schedules {
    schedules: Vec<Document>,
}

impl Entry {
    /// From the JSON object a user could have written.
    pub(crate) fn from_json(name: &str, json: &str) -> Result<Self, serde_json::Error> {
        Ok(Self { name: name.to_owned(), document: serde_json::from_str(json)? })
    }

    /// What the server makes of it.
    pub(super) fn settled(&self, registered: &Registered) -> Settled {
        Settled::filled(&self.document, registered)
    }

    /// Whether it says that the schedule is to wait, or to go on; nothing said leaves it as it is.
    pub(super) fn paused(&self) -> Option<bool> {
        self.raw("paused").and_then(|value| value.parse().ok())
    }

    /// A field, as JSON.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        self.document.raw(name).map(|value| value.get())
    }

    /// What is sent: all but the name, which stands in the path. Values keep their bytes.
    pub(super) fn body(&self) -> String {
        let mut body = Body::default();
        for (name, value) in self.document.fields().filter(|(name, _)| *name != "name") {
            body.json(name, value.get());
        }
        body.finish()
    }
}

/// Reads a text file of bounded size, or stdin for `-`.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let unreadable = |fault: io::Error| Failure::Usage(format!("{}: {fault}", path.display()));
    let reader: Box<dyn Read> = if path == Path::new(STDIN) {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).map_err(unreadable)?)
    };
    let mut text = String::new();
    reader.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
        let detail = format!("is longer than {FILE_BYTES_MAX} bytes; split it");
        return Err(Failure::Usage(format!("{}: {detail}", path.display())));
    }
    Ok(text)
}

/// Reads a file of schedules. All that is wrong is told at once.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, Failure> {
    let text = read_text(path)?;
    entries(&text).map_err(|mut faults| {
        let count = faults.len();
        if count > FAULTS_TOLD_MAX {
            faults.truncate(FAULTS_TOLD_MAX);
            faults.push(format!("and {} more", count - FAULTS_TOLD_MAX));
        }
        Failure::Refused(format!("{} cannot be used:\n  {}", path.display(), faults.join("\n  ")))
    })
}

fn entries(text: &str) -> Result<Vec<Entry>, Vec<String>> {
    let one = |fault: String| vec![fault];
    // JSON is read as JSON, which keeps payloads to the byte.
    let json = text.trim_start().starts_with('{');
    let file: Schedules = if json {
        serde_json::from_str(text).map_err(|fault| one(fault.to_string()))?
    } else {
        let value = yaml::read(text).map_err(one)?;
        serde_json::from_str(&value.to_string()).map_err(|fault| {
            // The line would be one of a text nobody has seen.
            let fault = fault.to_string();
            one(fault.split(" at line ").next().unwrap_or_default().to_owned())
        })?
    };
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    let mut entries = Vec::new();
    for (index, document) in file.schedules.into_iter().enumerate() {
        let name = document.text("name").unwrap_or_default();
        let place = if name.is_empty() { format!("schedules[{index}]") } else { name.clone() };
        faults.extend(field_faults(&document).into_iter().map(|fault| format!("{place}: {fault}")));
        match check_name(&name) {
            Err(fault) => faults.push(format!("{place}: name: {fault}")),
            Ok(()) if !names.insert(name.clone()) => faults.push(format!("{place}: stands here twice")),
            Ok(()) => entries.push(Entry { name, document }),
        }
    }
    if faults.is_empty() { Ok(entries) } else { Err(faults) }
}

fn field_faults(document: &Document) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut faults = Vec::new();
    for (name, _) in document.fields() {
        if !FIELDS.contains(&name) {
            let near = FIELDS.iter().min_by_key(|known| strsim::osa_distance(name, known));
            let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            faults.push(format!("there is no field {name:?}{near}"));
        } else if !seen.insert(name) {
            faults.push(format!("{name}: stands here twice"));
        }
    }
    let beats = ["cron_expr", "every"].iter().filter(|name| document.text(name).is_some()).count();
    if beats != 1 {
        faults.push("one of cron_expr and every is needed".to_owned());
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_and_json_say_the_same() {
        let yaml = "# ours\nschedules:\n  - name: a\n    cron_expr: '*/5 * * * *'\n    payload: {n: 1}\n  - name: b\n    every: 90\n";
        let json = r#"{"schedules": [{"name": "a", "cron_expr": "*/5 * * * *", "payload": {"n": 1.50}}, {"name": "b", "every": "90s"}]}"#;
        let [yaml, json] = [yaml, json].map(|text| entries(text).unwrap());
        let nothing = Registered::default();
        assert_eq!(yaml[1].settled(&nothing), json[1].settled(&nothing));
        assert_eq!(yaml[0].body(), r#"{"cron_expr":"*/5 * * * *","payload":{"n":1}}"#);
        assert_eq!(json[0].body(), r#"{"cron_expr":"*/5 * * * *","payload":{"n": 1.50}}"#);
    }

    #[test]
    fn every_fault_is_told_at_once_with_its_schedule() {
        let text = "schedules:\n- {name: a, every: 5m, windw: 1m}\n- {name: a, every: 5m}\n- {every: 5m}\n- {name: b c, every: 5m, cron_expr: '@daily'}\n";
        let faults = entries(text).unwrap_err().join("\n");
        for part in [
            "a: there is no field \"windw\"; did you mean window?",
            "a: stands here twice",
            "schedules[2]: name: the name must not be empty",
            "b c: one of cron_expr and every is needed",
            "b c: name: the name has the character ' '",
        ] {
            assert!(faults.contains(part), "{part:?} is not in:\n{faults}");
        }
        for wrong in
            ["", "[]", "a", "schedules: 1", "schedules: []\nmore: 1", "{\"schedules\": [}", "schedules: [1]"]
        {
            assert_eq!(entries(wrong).unwrap_err().len(), 1, "{wrong}");
        }
        assert_eq!(entries("schedules: []").unwrap().len(), 0);
    }
}

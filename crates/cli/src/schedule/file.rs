//! A file of schedules, YAML or JSON: `schedules`, a list, each with a name and the fields the API knows.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::value::RawValue;

use super::check::Checker;
use super::registered::Registered;
use super::settled::Settled;
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
/// The one key of a file.
const KEY: &str = "schedules";
/// What a file looks like.
const FORM: &str = "the file must be a map with the key \"schedules\", a list of schedules";

/// One schedule as it is wanted.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: String,
    document: Document,
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

    /// Whether it says that the schedule is to wait, or to go on; nothing said leaves it as it is. What is neither has
    /// been refused with the file.
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
    let checker = Checker::new();
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    let mut entries = Vec::new();
    for (index, item) in items(text).map_err(|fault| vec![fault])?.iter().enumerate() {
        let Ok(document) = serde_json::from_str::<Document>(item.get()) else {
            faults.push(format!("schedules[{index}]: must be a map of fields, such as name and every"));
            continue;
        };
        let name = document.text("name").unwrap_or_default();
        let place = if name.is_empty() { format!("schedules[{index}]") } else { name.clone() };
        faults.extend(checker.faults(item.get()).into_iter().map(|fault| format!("{place}: {fault}")));
        if document.text("name").is_none() {
            faults.push(format!("{place}: name: is missing; a file knows schedules by their names"));
        } else if !names.insert(name.clone()) {
            faults.push(format!("{place}: stands here twice"));
        }
        entries.push(Entry { name, document });
    }
    if faults.is_empty() { Ok(entries) } else { Err(faults) }
}

/// The schedules of a file, each as JSON.
fn items(text: &str) -> Result<Vec<Box<RawValue>>, String> {
    // JSON is read as JSON, which keeps payloads to the byte.
    let is_json = text.trim_start().starts_with('{');
    let file: Document = if is_json {
        serde_json::from_str(text)
            .map_err(|fault| format!("what begins with {{ is read as JSON, and it is none: {fault}"))?
    } else {
        serde_json::from_str(&yaml::read(text)?.to_string()).map_err(|_| FORM.to_owned())?
    };
    if let Some((other, _)) = file.fields().find(|(name, _)| *name != KEY) {
        return Err(format!("{FORM}, and no other; it has {other:?}"));
    }
    let mut lists = file.fields().map(|(_, list)| list);
    match (lists.next(), lists.next()) {
        (Some(list), None) => serde_json::from_str(list.get()).map_err(|_| {
            "\"schedules\" must be a list: in YAML each schedule begins with -, and no schedule at all is []"
                .to_owned()
        }),
        (None, _) => Err(FORM.to_owned()),
        (Some(_), Some(_)) => Err("the key \"schedules\" stands twice; keep one list".to_owned()),
    }
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
        let text = "schedules:\n- {name: a, every: 5m, windw: 1m}\n- {name: a, every: 5m}\n- {every: 5m}\n- {name: b c, every: 5m, cron_expr: '@daily'}\n- {name: '', every: 5m}\n- {name: 5, every: 5m}\n- {name: c, paused: yes}\n- 1\n";
        let faults = entries(text).unwrap_err().join("\n");
        for part in [
            "a: windw: there is no field \"windw\"; the nearest known one is `window`",
            "a: stands here twice",
            "schedules[2]: name: is missing; a file knows schedules by their names",
            "b c: every: `cron_expr` and `every` exclude each other",
            "b c: name: the name has the character ' '",
            "schedules[4]: name: the name must not be empty",
            "5: name: expected a string, found a number; put it in quotes: \"5\"",
            "c: paused: expected true or false, found a string (\"yes\"); write paused: true or paused: false",
            "c: cron_expr: a schedule needs `cron_expr`",
            "schedules[7]: must be a map of fields",
        ] {
            assert!(faults.contains(part), "{part:?} is not in:\n{faults}");
        }
    }

    #[test]
    fn a_file_of_another_form_is_told_what_it_must_be() {
        for (wrong, wanted) in [
            ("", ""),
            ("# nothing\n", ""),
            ("[]", FORM),
            ("a", FORM),
            ("- name: a\n  every: 5m\n", FORM),
            ("{}", FORM),
            ("schedule: []", "and no other; it has \"schedule\""),
            ("schedules: []\nmore: 1", "and no other; it has \"more\""),
            ("schedules: 1", "\"schedules\" must be a list"),
            ("schedules:\n", "\"schedules\" must be a list"),
            ("schedules:\n  name: a\n  every: 5m\n", "\"schedules\" must be a list"),
            ("schedules: [1]", "schedules[0]: must be a map of fields"),
            ("{\"schedules\": [}", "is read as JSON, and it is none"),
            ("{\"schedules\": [], \"schedules\": []}", "stands twice"),
            ("schedules: []\n---\nschedules: []\n", "more than one YAML document"),
        ] {
            let faults = entries(wrong).unwrap_err();
            assert_eq!(faults.len(), 1, "{wrong}: {faults:?}");
            assert!(faults[0].contains(wanted), "{wrong}: {faults:?}");
        }
        assert_eq!(entries("schedules: []").unwrap().len(), 0);
    }
}

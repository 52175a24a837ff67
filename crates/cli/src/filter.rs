//! The flags that choose jobs, as a query and as a document.

use clap::Args;
use serde_json::{Map, Value};
use tidewheel_api::client::Call;
use tidewheel_core::job::State;
use tidewheel_core::time::Timestamp;

/// Which jobs are meant.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which jobs")]
pub(crate) struct FilterArgs {
    /// In this state; may be given more than once
    #[arg(long, value_name = "STATE", value_parser = state)]
    pub(crate) state: Vec<String>,
    /// The rest.
    #[command(flatten)]
    pub(crate) rest: StatelessFilterArgs,
}

/// Which jobs are meant, where their state is given.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which jobs")]
pub(crate) struct StatelessFilterArgs {
    /// Of this type
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Of this queue
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// Made by this schedule
    #[arg(long, value_name = "ID")]
    pub(crate) schedule: Option<String>,
    /// With this label; may be given more than once, and all must be there
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) label: Vec<(String, String)>,
    /// First set for this time or later
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) from: Option<String>,
    /// First set for before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) to: Option<String>,
}

impl FilterArgs {
    /// As the query of a list.
    pub(crate) fn query(&self, call: Call) -> Call {
        let call = if self.state.is_empty() { call } else { call.query("state", &self.state.join(",")) };
        self.rest.query(call)
    }

    /// As the `filter` of a bulk call.
    pub(crate) fn document(&self) -> Value {
        let mut map = self.rest.fields();
        if !self.state.is_empty() {
            map.insert("state".to_owned(), self.state.clone().into());
        }
        Value::Object(map)
    }
}

impl StatelessFilterArgs {
    /// As the query of a list.
    pub(crate) fn query(&self, call: Call) -> Call {
        let call = self.plain().into_iter().fold(call, |call, (name, value)| call.query(name, value));
        self.label.iter().fold(call, |call, (key, value)| call.query(&format!("label.{key}"), value))
    }

    /// As the `filter` of a bulk call.
    pub(crate) fn document(&self) -> Value {
        Value::Object(self.fields())
    }

    fn fields(&self) -> Map<String, Value> {
        let mut map: Map<_, _> =
            self.plain().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        if !self.label.is_empty() {
            let labels = self.label.iter().map(|(key, value)| (key.clone(), value.clone().into()));
            map.insert("labels".to_owned(), Value::Object(labels.collect()));
        }
        map
    }

    fn plain(&self) -> Vec<(&'static str, &str)> {
        let fields = [
            ("type", &self.kind),
            ("queue", &self.queue),
            ("schedule", &self.schedule),
            ("from", &self.from),
            ("to", &self.to),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))).collect()
    }
}

/// Reads a state's name. `ready` is known too: due, but not yet delivered.
fn state(text: &str) -> Result<String, String> {
    const READY: &str = "ready";
    if text == READY || State::from_name(text).is_some() {
        return Ok(text.to_owned());
    }
    let mut names: Vec<_> = State::ALL.iter().map(|state| state.as_str()).collect();
    names.push(READY);
    let near =
        names.iter().max_by(|a, b| strsim::jaro_winkler(text, a).total_cmp(&strsim::jaro_winkler(text, b)));
    let near = near.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    Err(format!("states are {}{near}", names.join(", ")))
}

/// Reads `key=value`.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("write it like key=value".to_owned()),
    }
}

/// Checks an instant; it is sent as written.
pub(crate) fn time(text: &str) -> Result<String, String> {
    text.parse::<Timestamp>().map(|_| text.to_owned()).map_err(|fault| fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter() -> FilterArgs {
        FilterArgs {
            state: vec!["dead".to_owned(), "retrying".to_owned()],
            rest: StatelessFilterArgs {
                kind: Some("mail".to_owned()),
                from: Some("2026-12-01T09:00:00+01:00".to_owned()),
                label: vec![("team".to_owned(), "a=b".to_owned())],
                ..StatelessFilterArgs::default()
            },
        }
    }

    #[test]
    fn a_filter_is_a_query_and_a_document() {
        let call = filter().query(Call::get(&["jobs"]));
        assert_eq!(
            call.path_and_query(),
            "/v1/jobs?state=dead%2Cretrying&type=mail&from=2026-12-01T09%3A00%3A00%2B01%3A00&label.team=a%3Db"
        );
        let document = filter().document();
        assert_eq!(document["state"][1], "retrying");
        assert_eq!(document["labels"]["team"], "a=b");
        assert_eq!(FilterArgs::default().document().to_string(), "{}");
    }

    #[test]
    fn slips_are_told_with_what_was_meant() {
        assert!(state("ded").unwrap_err().ends_with("did you mean dead?"));
        assert_eq!(state("ready").as_deref(), Ok("ready"));
        assert_eq!(label("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(label("=b").is_err() && label("a").is_err());
        assert!(time("tomorrow").is_err());
    }
}

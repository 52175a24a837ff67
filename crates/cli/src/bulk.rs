//! Doing one thing to many jobs: to each of some ids, or to all that a filter chooses, which the server does in
//! steps and this goes through to the end.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tidewheel_api::client::{Call, Client};
use tidewheel_server::random::{Random, SystemRandom};

use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::json;
use crate::progress::Progress;

/// Refusals of a filtered bulk verb that are told one by one.
const REFUSALS_TOLD_MAX: usize = 20;

/// The call under a key of its own, so that it can be sent again when its answer is lost and yet act once.
pub(crate) fn once(call: Call) -> Call {
    call.idempotency_key(format!("cli-{:032x}", SystemRandom.tail()))
}

/// Does `call` to each id, once; goes on after a refusal, and fails in the end if there was one.
pub(crate) async fn each(ids: &[String], call: impl Fn(&str) -> Call, link: &Link) -> Result<(), Failure> {
    let client = link.client()?;
    let mut refused = false;
    for id in ids {
        match client.send(&once(call(id))).await {
            Ok(answer) => print_one(id, &answer.body, link)?,
            Err(error) if error.problem().is_some() && ids.len() > 1 => {
                link.out.error(&format!("{id}: {error}"));
                refused = true;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if refused { Err(Failure::Said) } else { Ok(()) }
}

/// One line per job, or the server's document.
fn print_one(id: &str, body: &[u8], link: &Link) -> Result<(), Failure> {
    let document: Option<Document> = serde_json::from_slice(body).ok();
    if link.out.is_json() {
        let text = String::from_utf8_lossy(body);
        link.out.line(&if document.is_some() {
            json::compact(&text)
        } else {
            Value::from(id).to_string()
        })?;
        return Ok(());
    }
    let state = document.as_ref().and_then(|job| job.text("state"));
    let run_at =
        document.as_ref().and_then(|job| job.text("run_at")).map(|at| format!("  {at}")).unwrap_or_default();
    match state {
        Some(state) => link.out.line(&format!("{id}  {}{run_at}", link.out.state(&state)))?,
        None => link.out.line(id)?,
    }
    Ok(())
}

/// What was done over all steps: every number the server counts, added up.
#[derive(Debug, Default)]
pub(crate) struct Totals(BTreeMap<String, u64>);

impl Totals {
    fn add(&mut self, answer: &Document) {
        for (name, value) in answer.fields() {
            if let Ok(count) = value.get().parse::<u64>() {
                *self.0.entry(name.to_owned()).or_default() += count;
            }
        }
    }

    fn refused(&self) -> u64 {
        self.0.get("refused").copied().unwrap_or_default()
    }

    /// Prints the totals.
    fn print(&self, link: &Link) -> Result<(), Failure> {
        if link.out.is_json() {
            let map: Map<String, Value> =
                self.0.iter().map(|(name, count)| (name.clone(), (*count).into())).collect();
            return Ok(link.out.line(&Value::Object(map).to_string())?);
        }
        for (name, count) in self.0.iter().filter(|(name, count)| *name == "count" || **count > 0) {
            let name = if name == "count" { "done".to_owned() } else { name.replace('_', " ") };
            link.out.line(&format!("{count} {name}"))?;
        }
        Ok(())
    }
}

/// Makes the calls of a filtered bulk verb, one step after the other and each once, until the server has no more.
/// `step` gets the cursor and how many jobs were done before; `count` asks how many there are to do.
pub(crate) async fn all(
    client: &Client,
    count: Call,
    step: impl Fn(Option<&str>, u64) -> Call,
    link: &Link,
) -> Result<(), Failure> {
    let bar = Progress::new("jobs", length(client, count).await);
    let result = steps(client, step, &bar, link).await;
    bar.clear();
    let totals = result?;
    totals.print(link)?;
    if totals.refused() == 0 { Ok(()) } else { Err(Failure::Said) }
}

/// How many jobs there are to do, where somebody watches. It only tells how much longer it takes: without an answer, or
/// if there are too many to count, that is not told.
async fn length(client: &Client, count: Call) -> Option<u64> {
    if Progress::is_hidden() {
        return None;
    }
    let answer: Document = client.send(&count).await.ok()?.json().ok()?;
    answer.count("count").filter(|_| answer.text("complete").as_deref() == Some("true"))
}

async fn steps(
    client: &Client,
    step: impl Fn(Option<&str>, u64) -> Call,
    bar: &Progress,
    link: &Link,
) -> Result<Totals, Failure> {
    let mut totals = Totals::default();
    let mut done = 0;
    let mut told = 0;
    let mut cursor: Option<String> = None;
    loop {
        let answer: Document = client.send(&once(step(cursor.as_deref(), done))).await?.json()?;
        let [count, refused] = ["count", "refused"].map(|name| answer.count(name).unwrap_or_default());
        done += count + refused;
        bar.reach(done, done);
        totals.add(&answer);
        for (id, why) in refusals(&answer) {
            if told < REFUSALS_TOLD_MAX {
                link.out.note(&format!("{id}: {why}"));
            }
            told += 1;
        }
        let next = answer.text("next_cursor");
        if next.is_none() || next == cursor {
            return Ok(totals);
        }
        cursor = next;
    }
}

/// The jobs the server would not do it to, with its reason.
fn refusals(answer: &Document) -> Vec<(String, String)> {
    let items = answer.list("items").unwrap_or_default();
    let refused = items.iter().filter_map(|item| {
        let why = item.inner("error")?.first_text(&["detail", "title"])?;
        Some((item.text("id")?, why))
    });
    refused.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_steps_are_added_up() {
        let mut totals = Totals::default();
        for json in
            [r#"{"count": 3, "refused": 1, "next_cursor": "x"}"#, r#"{"count": 4, "next_cursor": null}"#]
        {
            totals.add(&serde_json::from_str(json).unwrap());
        }
        assert_eq!(totals.0, BTreeMap::from([("count".to_owned(), 7), ("refused".to_owned(), 1)]));
        assert_eq!(totals.refused(), 1);
    }

    #[test]
    fn refusals_name_the_job_and_the_reason() {
        let json = r#"{"items": [{"id": "a", "ok": true}, {"id": "b", "ok": false, "error": {"title": "t", "detail": "d"}}]}"#;
        let answer = serde_json::from_str(json).unwrap();
        assert_eq!(refusals(&answer), [("b".to_owned(), "d".to_owned())]);
    }
}

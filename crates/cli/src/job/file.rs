//! `job submit --file`: a file of jobs, batch by batch, with a bar to watch.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use indicatif::HumanCount;
use serde::Deserialize;
use tidewheel_api::client::{Answer, Call, Client, Error, Patience, Problem};

use super::lines::{Batch, Batches, LineFault};
use crate::connect::Link;
use crate::failure::Failure;
use crate::progress::{Progress, rate};

const RUN_NAME_CHARS_MAX: usize = 64;
const READ_BUFFER_BYTES: usize = 256 * 1_024;

/// Checks the name of a run, which becomes part of an idempotency key.
pub(super) fn run_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !text.is_empty() && text.len() <= RUN_NAME_CHARS_MAX && text.chars().all(plain) {
        return Ok(text.to_owned());
    }
    Err(format!("at most {RUN_NAME_CHARS_MAX} letters, digits and . _ -"))
}

/// What became of the jobs of a file.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    /// New ones.
    submitted: u64,
    /// Made by an earlier run, or under a key used before.
    duplicates: u64,
}

#[derive(Debug, Deserialize)]
struct BatchAnswer {
    jobs: Vec<BatchItem>,
}

#[derive(Debug, Deserialize)]
struct BatchItem {
    #[serde(default)]
    duplicate: bool,
}

/// Submits every job of the file at `path`, or of stdin for `-`.
pub(super) async fn submit(path: &Path, run: &str, link: &Link) -> Result<(), Failure> {
    let (reader, length): (Box<dyn Read>, _) = if path == Path::new("-") {
        (Box::new(io::stdin()), None)
    } else {
        let unreadable = |fault: io::Error| Failure::Usage(format!("--file {}: {fault}", path.display()));
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?;
        // A pipe or a device has a length of zero and still something to read.
        (Box::new(file), Some(length).filter(std::fs::Metadata::is_file).map(|file| file.len()))
    };
    let bar = Progress::new("jobs", length);
    let client = bar.told_of(link.patient_client(Patience::LONG)?);
    let mut tally = Tally::default();
    let mut batches = Batches::new(BufReader::with_capacity(READ_BUFFER_BYTES, reader));
    let result = send_all(&client, &mut batches, run, &mut tally, &bar).await;
    let took = bar.elapsed();
    bar.clear();
    if let Err(failure) = result {
        let taken = tally.submitted + tally.duplicates;
        if taken > 0 {
            let again = "submit the file again, and they will not be doubled";
            link.out.note(&format!("{} taken in before it stopped; {again}.", were(taken)));
        }
        return Err(failure);
    }
    for line in summary(tally, took, link.out.is_json()) {
        link.out.line(&line)?;
    }
    Ok(())
}

async fn send_all<R: io::BufRead>(
    client: &Client,
    batches: &mut Batches<R>,
    run: &str,
    tally: &mut Tally,
    bar: &Progress,
) -> Result<(), Failure> {
    while let Some(batch) = batches.next_batch().map_err(line_failure)? {
        let key = batch.key(run);
        let Batch { body, lines } = batch;
        let call = Call::post(&["jobs", "batch"]).ndjson(body).idempotency_key(key);
        let answer = client.send(&call).await.map_err(|error| batch_failure(error, &lines))?;
        count(&answer, tally)?;
        bar.reach(batches.bytes(), tally.submitted + tally.duplicates);
    }
    Ok(())
}

fn count(answer: &Answer, tally: &mut Tally) -> Result<(), Error> {
    for item in answer.json::<BatchAnswer>()?.jobs {
        if item.duplicate {
            tally.duplicates += 1;
        } else {
            tally.submitted += 1;
        }
    }
    Ok(())
}

/// The lines that tell what was done. The rate is of the new jobs, as the number before it is: what was there already is
/// told apart from them.
fn summary(tally: Tally, took: Duration, is_json: bool) -> Vec<String> {
    let Tally { submitted, duplicates } = tally;
    let per_second = rate(submitted, took);
    if is_json {
        let ms = took.as_millis();
        return vec![format!(
            "{{\"submitted\":{submitted},\"duplicates\":{duplicates},\"took_ms\":{ms},\"per_second\":{per_second}}}"
        )];
    }
    let per_second = if submitted > 0 { format!(" ({}/s)", HumanCount(per_second)) } else { String::new() };
    let seconds = took.as_secs_f64();
    let mut lines = vec![format!("{} submitted in {seconds:.1} s{per_second}", jobs(submitted))];
    if duplicates > 0 {
        lines.push(format!("{} there already; --run NAME submits them once more", were(duplicates)));
    }
    lines
}

fn jobs(count: u64) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{} jobs", HumanCount(count)) }
}

fn were(count: u64) -> String {
    if count == 1 { "1 job was".to_owned() } else { format!("{} jobs were", HumanCount(count)) }
}

fn line_failure(fault: LineFault) -> Failure {
    match fault {
        LineFault::Io(fault) => Failure::Usage(format!("the file cannot be read: {fault}")),
        LineFault::NoJob { .. } => Failure::Refused(fault.to_string()),
    }
}

/// Turns the server's pointers into a batch into lines of the file.
fn batch_failure(error: Error, lines: &[u64]) -> Failure {
    let Some(problem) = error.problem() else { return Failure::Call(error) };
    let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return Failure::Call(error) };
    let mut text = refused_lines(problem, lines).join("\n");
    if text.is_empty() {
        text = problem.to_string();
    }
    Failure::Refused(format!("{text}\nNothing of lines {first} to {last} was taken in."))
}

fn refused_lines(problem: &Problem, lines: &[u64]) -> Vec<String> {
    let line = |pointer: &str| {
        let pointer = pointer.strip_prefix("/jobs").unwrap_or(pointer).strip_prefix('/')?;
        let (index, field) = pointer.split_once('/').unwrap_or((pointer, ""));
        Some((lines.get(index.parse::<usize>().ok()?)?, field.to_owned()))
    };
    let told = problem.errors.iter().map(|fault| match line(&fault.pointer) {
        Some((line, field)) if field.is_empty() => format!("line {line}: {}", fault.detail),
        Some((line, field)) => format!("line {line}: {field}: {}", fault.detail),
        None => format!("{}: {}", fault.pointer, fault.detail),
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewheel_api::client::Fault;

    #[test]
    fn pointers_become_lines() {
        let fault = |pointer: &str| Fault { pointer: pointer.to_owned(), detail: "is wrong".to_owned() };
        let errors = ["/1/type", "/0", "/jobs/2/retry/base", "/type", ""].map(fault).to_vec();
        let problem = Problem { title: "No".to_owned(), errors, ..Problem::default() };
        assert_eq!(
            refused_lines(&problem, &[7, 9, 12]),
            [
                "line 9: type: is wrong",
                "line 7: is wrong",
                "line 12: retry/base: is wrong",
                "/type: is wrong",
                ": is wrong"
            ]
        );
    }

    #[test]
    fn run_names_are_plain() {
        assert!(run_name("2026-12-01_again.2").is_ok());
        for wrong in ["", "a b", "a:b", &"x".repeat(65)] {
            assert!(run_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_rate_is_of_the_jobs_the_line_counts() {
        let told = |submitted, duplicates, is_json| {
            summary(Tally { submitted, duplicates }, Duration::from_millis(1_500), is_json)
        };
        let there = |count: u64| format!("{} there already; --run NAME submits them once more", were(count));
        assert_eq!(told(3_000, 0, false), ["3,000 jobs submitted in 1.5 s (2,000/s)"]);
        assert_eq!(told(0, 3_000, false), ["0 jobs submitted in 1.5 s".to_owned(), there(3_000)]);
        assert_eq!(told(150, 1, false), ["150 jobs submitted in 1.5 s (100/s)".to_owned(), there(1)]);
        assert_eq!(
            told(0, 3_000, true),
            [r#"{"submitted":0,"duplicates":3000,"took_ms":1500,"per_second":0}"#]
        );
        assert_eq!(
            told(150, 1, true),
            [r#"{"submitted":150,"duplicates":1,"took_ms":1500,"per_second":100}"#]
        );
    }

    #[test]
    fn counts_read_well() {
        assert_eq!(
            (jobs(1), jobs(12_000), were(1)),
            ("1 job".into(), "12,000 jobs".into(), "1 job was".into())
        );
    }
}

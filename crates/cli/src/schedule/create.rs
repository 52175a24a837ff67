//! `schedule create`: one schedule from flags.

use clap::Args;
use tidewheel_api::client::Call;
use tidewheel_core::schedule::Overlap;

use super::timing::TimingArgs;
use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::filter::label;
use crate::submission::{Body, duration, payload, priority};

const EXAMPLES: &str = "\
What is not said of its jobs is what is registered for their type; the defaults shown hold where
nothing is.

Examples:
  tidewheel schedule create --name morning-report --cron '0 9 * * MON-FRI' \\
      --timezone America/New_York --target https://acme.com/webhooks/morning-report
  tidewheel schedule create --every 5m --queue health --type probe --overlap skip
  tidewheel schedule create --cron @hourly --window 10m --name sync --queue sync
  tidewheel schedule create --cron '30 1 * * *' --timezone Europe/Berlin --dst-gap skip --queue q";

/// The flags of `schedule create`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CreateArgs {
    /// A name, which no other schedule of the tenant has
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Words about it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Creates it without letting it fire until it is resumed
    #[arg(long)]
    paused: bool,
    /// What the keys of its jobs begin with [default: its id]; with the same one again within a day, no second schedule is made
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    timing: TimingArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    job: JobArgs,
}

/// What becomes of fires that were missed, or that meet an earlier run.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "When it cannot be as planned")]
struct PolicyArgs {
    /// Fires nobody was there for: fire_all, fire_latest or skip [default: fire_latest]
    #[arg(long, value_name = "POLICY", hide_possible_values = true, value_parser = ["fire_all", "fire_latest", "skip"])]
    misfire: Option<String>,
    /// How many of them fire_all makes up for [default: 10]
    #[arg(long, value_name = "COUNT")]
    misfire_cap: Option<u32>,
    /// How late a fire may be and still be on time [default: 1m]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    misfire_grace: Option<String>,
    /// A fire while an earlier run is not over: allow, skip, buffer_one or cancel_running [default: allow]
    #[arg(long, value_name = "POLICY", value_parser = overlap)]
    overlap: Option<String>,
}

/// The job each fire is.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "What it fires")]
struct JobArgs {
    /// The URL jobs are pushed to
    #[arg(long, value_name = "URL", conflicts_with = "queue")]
    target: Option<String>,
    /// The queue that workers pull jobs from [default: default]
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// The jobs' type, which their target or worker knows
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// What each job carries: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    payload: Option<String>,
    /// How urgent they are: critical, high, normal or low [default: normal]
    #[arg(long, value_name = "PRIORITY", value_parser = priority)]
    priority: Option<String>,
    /// How often a job is tried before it is dead [default: 5]
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<u32>,
    /// How long one attempt may take [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<String>,
    /// A label; may be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
}

fn overlap(text: &str) -> Result<String, String> {
    let names = || Overlap::ALL.map(Overlap::as_str).join(", ");
    Overlap::from_name(text).map(|_| text.to_owned()).ok_or_else(|| format!("policies are {}", names()))
}

/// Creates a schedule.
pub(super) async fn run(args: CreateArgs, link: &Link) -> Result<(), Failure> {
    let mut call = Call::post(&["schedules"]).json(body(&args)?);
    if args.idempotency_key.is_some() {
        call = call.repeatable();
    }
    let answer = link.client()?.send(&call).await?;
    link.out.document(&answer.body)?;
    if answer.json::<Document>()?.text("duplicate").as_deref() == Some("true") {
        link.out.note("The key was used before; this is the schedule it made then.");
    }
    Ok(())
}

fn body(args: &CreateArgs) -> Result<String, Failure> {
    let CreateArgs { policy, job, .. } = args;
    let mut body = Body::default();
    body.text("name", args.name.as_deref());
    body.text("note", args.note.as_deref());
    args.timing.add_to(&mut body);
    body.text("misfire", policy.misfire.as_deref());
    number(&mut body, "misfire_cap", policy.misfire_cap);
    body.text("misfire_grace", policy.misfire_grace.as_deref());
    body.text("overlap", policy.overlap.as_deref());
    body.text("type", job.kind.as_deref());
    if let Some(argument) = &job.payload {
        body.json("payload", &payload(argument)?);
    }
    body.text("target_url", job.target.as_deref());
    body.text("queue", job.queue.as_deref());
    body.text("priority", job.priority.as_deref());
    number(&mut body, "max_attempts", job.max_attempts);
    body.text("timeout", job.timeout.as_deref());
    body.map("labels", &job.label);
    body.text("idempotency_key", args.idempotency_key.as_deref());
    if args.paused {
        body.json("paused", "true");
    }
    Ok(body.finish())
}

fn number(body: &mut Body, name: &str, value: Option<u32>) {
    if let Some(value) = value {
        body.json(name, &value.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        create: CreateArgs,
    }

    fn read(line: &[&str]) -> Result<CreateArgs, clap::Error> {
        Line::try_parse_from([&["create"], line].concat()).map(|line| line.create)
    }

    #[test]
    fn flags_become_a_schedule() {
        let line = [
            "--cron",
            "0 9 * * MON-FRI",
            "--timezone",
            "Europe/Paris",
            "--name",
            "n",
            "--window",
            "10m",
            "--exclude",
            "2026-12-25",
            "--exclude",
            "2026-12-26",
            "--roll",
            "next_business_day",
            "--dst-fold",
            "both",
            "--misfire",
            "fire_all",
            "--misfire-cap",
            "3",
            "--overlap",
            "skip",
            "--target",
            "http://a/",
            "--payload",
            "{\"n\": 1.0}",
            "--paused",
        ];
        assert_eq!(
            body(&read(&line).unwrap()).ok().as_deref(),
            Some(
                r#"{"name":"n","cron_expr":"0 9 * * MON-FRI","timezone":"Europe/Paris","window":"10m","dst":{"fold":"both"},"exclude":{"dates":["2026-12-25","2026-12-26"],"roll":"next_business_day"},"misfire":"fire_all","misfire_cap":3,"overlap":"skip","payload":{"n": 1.0},"target_url":"http://a/","paused":true}"#
            )
        );
        assert_eq!(body(&read(&["--every", "5m"]).unwrap()).ok().as_deref(), Some(r#"{"every":"5m"}"#));
    }

    #[test]
    fn slips_are_refused_before_anything_is_sent() {
        for line in [
            &[][..],
            &["--cron", "@daily", "--every", "5m"],
            &["--cron", "0 0 30 2 *"],
            &["--every", "soon"],
            &["--every", "5m", "--queue", "q", "--target", "http://a/"],
            &["--every", "5m", "--overlap", "never"],
            &["--every", "5m", "--misfire", "all"],
            &["--every", "5m", "--start-at", "tomorrow"],
        ] {
            assert!(read(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn whoever_does_not_say_when_is_told_every_way_to() {
        let told = read(&["--name", "n"]).unwrap_err().to_string();
        assert!(told.contains("<--cron <EXPRESSION>|--every <DURATION>>"), "{told}");
    }
}

//! `job submit`: one job from flags. A file of jobs is read by [`super::file`].

use std::path::PathBuf;

use clap::Args;
use tidewheel_api::client::Call;

use super::file;
use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::filter::{label, time};
use crate::submission::{Body, duration, payload, priority};

const EXAMPLES: &str = "\
A file has one job per line, as the API takes it: {\"type\": \"send-email\", \"payload\": {}}. It is sent
in batches. A batch that may have got lost is sent again and never makes jobs twice; so after an
interruption, submit the same file again within a day. To submit the same jobs a second time,
give --run a name.

Examples:
  tidewheel job submit send-email --payload '{\"to\": \"a@example.com\"}' --at 2026-12-01T09:00:00Z
  tidewheel job submit ping --delay 5s --target http://127.0.0.1:9000/ping
  tidewheel job submit report --payload @report.json --queue reports --label team=ops
  tidewheel job submit invoice --idempotency-key invoice-17
  tidewheel job submit --file jobs.ndjson
  generate-jobs | tidewheel job submit --file -";

/// The flags of `job submit`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SubmitArgs {
    /// The job's type, which its target or worker knows
    #[arg(value_name = "TYPE", required_unless_present = "file")]
    kind: Option<String>,
    /// What the job carries: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    payload: Option<String>,
    /// When it runs, such as 2026-12-01T09:00:00Z [default: now]
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "delay")]
    at: Option<String>,
    /// How long from now it runs, such as 90s or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    delay: Option<String>,
    /// The URL it is pushed to
    #[arg(long, value_name = "URL", conflicts_with = "queue")]
    target: Option<String>,
    /// The queue that workers pull it from [default: default]
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// How urgent it is: critical, high, normal or low [default: normal]
    #[arg(long, value_name = "PRIORITY", value_parser = priority)]
    priority: Option<String>,
    /// How often it is tried before it is dead [default: 5]
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<u32>,
    /// How long one attempt may take [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<String>,
    /// When it is no longer worth starting
    #[arg(long, value_name = "TIME", value_parser = time)]
    expires_at: Option<String>,
    /// A name for this submission: with the same one again, no second job is made
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// A label; may be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    /// A file with one job per line, or - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "kind", "payload", "at", "delay", "target", "queue", "priority", "max_attempts", "timeout", "expires_at",
        "idempotency_key", "label",
    ])]
    file: Option<PathBuf>,
    /// Submits a file once more: what was submitted under another name does not count
    #[arg(long, value_name = "NAME", conflicts_with = "kind", value_parser = file::run_name)]
    run: Option<String>,
}

/// Submits.
pub(crate) async fn run(args: SubmitArgs, link: &Link) -> Result<(), Failure> {
    if let Some(path) = &args.file {
        return file::submit(path, args.run.as_deref().unwrap_or_default(), link).await;
    }
    let mut call = Call::post(&["jobs"]).json(body(&args)?);
    if args.idempotency_key.is_some() {
        call = call.repeatable();
    }
    let answer = link.client()?.send(&call).await?;
    link.out.document(&answer.body)?;
    if answer.json::<Document>()?.text("duplicate").as_deref() == Some("true") {
        link.out.note("The key was used before; this is the job it made then.");
    }
    Ok(())
}

fn body(args: &SubmitArgs) -> Result<String, Failure> {
    let mut body = Body::default();
    body.text("type", args.kind.as_deref());
    if let Some(argument) = &args.payload {
        body.json("payload", &payload(argument)?);
    }
    body.text("run_at", args.at.as_deref());
    body.text("delay", args.delay.as_deref());
    body.text("target_url", args.target.as_deref());
    body.text("queue", args.queue.as_deref());
    body.text("priority", args.priority.as_deref());
    if let Some(count) = args.max_attempts {
        body.json("max_attempts", &count.to_string());
    }
    body.text("timeout", args.timeout.as_deref());
    body.text("expires_at", args.expires_at.as_deref());
    body.text("idempotency_key", args.idempotency_key.as_deref());
    body.map("labels", &args.label);
    Ok(body.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        submit: SubmitArgs,
    }

    fn read(line: &[&str]) -> Result<SubmitArgs, clap::Error> {
        Line::try_parse_from([&["submit"], line].concat()).map(|line| line.submit)
    }

    #[test]
    fn flags_become_a_job() {
        let line = [
            "mail",
            "--payload",
            "{\"n\": 1.0}",
            "--delay",
            "5s",
            "--target",
            "http://a/",
            "--max-attempts",
            "3",
        ];
        let more = ["--priority", "high", "--idempotency-key", "k", "--label", "a=b", "--timeout", "1m"];
        let args = read(&[&line[..], &more[..]].concat()).unwrap();
        assert_eq!(
            body(&args).ok().as_deref(),
            Some(
                r#"{"type":"mail","payload":{"n": 1.0},"delay":"5s","target_url":"http://a/","priority":"high","max_attempts":3,"timeout":"1m","idempotency_key":"k","labels":{"a":"b"}}"#
            )
        );
        assert_eq!(body(&read(&["mail"]).unwrap()).ok().as_deref(), Some(r#"{"type":"mail"}"#));
    }

    #[test]
    fn what_excludes_each_other_is_refused() {
        for line in [
            &[][..],
            &["mail", "--file", "x"],
            &["--file", "x", "--delay", "5s"],
            &["--file", "x", "--label", "a=b"],
            &["mail", "--at", "2026-12-01T09:00:00Z", "--delay", "5s"],
            &["mail", "--queue", "q", "--target", "http://a/"],
            &["mail", "--run", "again"],
            &["mail", "--at", "tomorrow"],
            &["mail", "--delay", "-5s"],
        ] {
            assert!(read(line).is_err(), "{line:?}");
        }
        assert!(read(&["--file", "x", "--run", "again"]).is_ok());
        assert!(read(&["mail", "--payload", "-1"]).is_ok());
    }
}

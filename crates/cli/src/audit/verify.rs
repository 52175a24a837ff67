//! `tidewheel audit verify`: computes every hash anew, of what a server has or of what was exported.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;
use serde_json::json;
use tidewheel_api::client::{Call, Client};
use tidewheel_api::wire::audit::Line;
use tidewheel_api::wire::audit_ends::{EndLine, Ends as ExportEnds, Tally};
use tidewheel_core::audit::{Broken, ChainEnds, Digest, Link, Walk};
use tidewheel_core::time::Timestamp;

use super::read;
use crate::failure::Failure;
use crate::out::Out;

/// Records after which it is told how far the check has come.
const PROGRESS_COUNT: u64 = 100_000;
/// Said of an export that does not end as it should.
const NO_END: &str = "the export has no end line: it broke off, or its end was cut off; --without-end checks one that was made by a \
                      version that wrote none";
/// How often a check begins anew because old records were dropped under it.
const ROUNDS_MAX: usize = 5;

#[derive(Deserialize)]
struct Chains {
    items: Vec<Ends>,
}

#[derive(Deserialize)]
struct Ends {
    chain: u16,
    anchor: End,
    head: End,
}

#[derive(Deserialize)]
struct End {
    seq: u64,
    hash: String,
}

impl End {
    fn link(&self) -> Result<Link, Failure> {
        let hash: Digest = self.hash.parse().map_err(|fault| Failure::Refused(format!("{fault}")))?;
        Ok(Link { seq: self.seq, at: Timestamp::from_ms(0), hash })
    }
}

async fn ends(client: &Client) -> Result<Vec<ChainEnds>, Failure> {
    let chains: Chains = client.send(&Call::get(&["audit", "chains"])).await?.json()?;
    let ends = chains.items.iter().map(|ends| {
        Ok(ChainEnds { chain: ends.chain, anchor: ends.anchor.link()?, head: ends.head.link()? })
    });
    ends.collect()
}

/// What was found to be sound.
pub(super) struct Sound {
    records: u64,
    chains: usize,
    /// Whether it is known that nothing is missing at either end.
    has_ends: bool,
}

/// How a check ended early.
enum Fault {
    Broken(Broken),
    Failed(Failure),
}

/// Checks what a server has.
pub(super) async fn server(client: &Client, out: Out) -> Result<Sound, Failure> {
    let mut before = ends(client).await?;
    for _ in 0..ROUNDS_MAX {
        let broken = match walk(client, &before, out).await {
            Ok(walk) => {
                walk.confirm(&ends(client).await?).map_err(refused)?;
                return Ok(Sound { records: walk.checked(), chains: walk.chains(), has_ends: true });
            }
            Err(Fault::Failed(failure)) => return Err(failure),
            Err(Fault::Broken(broken)) => broken,
        };
        // Old records may have been dropped under the check: the anchors tell.
        let after = ends(client).await?;
        let anchors =
            |ends: &[ChainEnds]| ends.iter().map(|ends| (ends.chain, ends.anchor.seq)).collect::<Vec<_>>();
        let known = anchors(&before);
        if anchors(&after).iter().filter(|(_, seq)| *seq > 0).all(|anchor| known.contains(anchor)) {
            return Err(refused(broken));
        }
        before = after;
    }
    Err(Failure::Refused("records are dropped faster than they can be checked; try again".to_owned()))
}

async fn walk(client: &Client, ends: &[ChainEnds], out: Out) -> Result<Walk, Fault> {
    let mut walk = Walk::between(ends);
    let mut broken = None;
    let read = read::each_page(
        client,
        || Call::get(&["audit"]),
        |line| {
            let line: Line = serde_json::from_str(line.get())
                .map_err(|fault| Failure::Refused(format!("the server sent no record: {fault}")))?;
            check(&mut walk, &line, out).map_err(|found| {
                broken = Some(found);
                Failure::Said
            })
        },
    )
    .await;
    match (broken, read) {
        (Some(fault), _) => Err(fault),
        (None, Err(failure)) => Err(Fault::Failed(failure)),
        (None, Ok(())) => walk.end().map_err(Fault::Broken).map(|()| walk),
    }
}

fn check(walk: &mut Walk, line: &Line, out: Out) -> Result<(), Fault> {
    let place = format!("chain {}, record {}", line.chain, line.seq);
    let nothing = |fault| Fault::Failed(Failure::Refused(format!("{place}: {fault}")));
    let record = line.record().map_err(nothing)?;
    walk.check(&record).map_err(Fault::Broken)?;
    if walk.checked() > 0 && walk.checked().is_multiple_of(PROGRESS_COUNT) {
        out.note(&format!("{} records checked, up to {}", walk.checked(), line.at));
    }
    Ok(())
}

/// Checks an export. Without its end line it is refused, unless that is allowed.
pub(super) fn file(path: &Path, may_lack_end: bool, out: Out) -> Result<Sound, Failure> {
    let unreadable = |fault: io::Error| Failure::Usage(format!("--file {}: {fault}", path.display()));
    let reader: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(path).map_err(unreadable)?))
    };
    let (mut walk, mut tally) = (Walk::from_anywhere(), Tally::default());
    let mut end: Option<ExportEnds> = None;
    for (number, text) in reader.lines().enumerate() {
        let text = text.map_err(unreadable)?;
        if text.trim().is_empty() {
            continue;
        }
        let wrong = |fault: &dyn std::fmt::Display| Failure::Refused(format!("line {}: {fault}", number + 1));
        if end.is_some() {
            return Err(wrong(&"there is more after the line that ends the export"));
        }
        let line: Line = match serde_json::from_str(&text) {
            Ok(line) => line,
            Err(fault) => {
                let EndLine { end: stated } = serde_json::from_str(&text).map_err(|_| wrong(&fault))?;
                end = Some(stated);
                continue;
            }
        };
        check(&mut walk, &line, out).map_err(|fault| match fault {
            Fault::Broken(broken) => refused(broken),
            Fault::Failed(failure) => failure,
        })?;
        tally.note(&line);
    }
    match &end {
        Some(end) => tally.compare(end).map_err(refused)?,
        None if may_lack_end => {
            out.note("There is no end line: whether records are missing at its ends cannot be checked.")
        }
        None => return Err(Failure::Refused(NO_END.to_owned())),
    }
    Ok(Sound { records: walk.checked(), chains: walk.chains(), has_ends: end.is_some() })
}

fn refused(broken: impl std::fmt::Display) -> Failure {
    Failure::Refused(format!("the audit trail is broken: {broken}"))
}

/// Says what came of a check; as JSON also what is broken.
pub(super) fn told(result: Result<Sound, Failure>, out: Out) -> Result<(), Failure> {
    match result {
        Ok(Sound { records, chains, has_ends }) if out.is_json() => {
            let told = json!({"sound": true, "records": records, "chains": chains, "ends_checked": has_ends});
            Ok(out.json(told.to_string().as_bytes())?)
        }
        Ok(Sound { records, chains, .. }) => {
            Ok(out.line(&format!("{records} records in {chains} chains: sound"))?)
        }
        Err(Failure::Refused(text)) if out.is_json() => {
            out.json(json!({"sound": false, "fault": text}).to_string().as_bytes())?;
            Err(Failure::Refused(text))
        }
        Err(failure) => Err(failure),
    }
}

//! News as text: a line each, or several where one has more to say than fits. Names have none of the characters that stand
//! between them.

use std::fmt::Display;
use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Priority, Token};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Shard;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{News, Receipt, Want};

/// What stands between two news, between the parts of one, and between the parts of a part.
pub(crate) const BETWEEN: char = '\n';
const WITHIN: char = '\t';
const INSIDE: char = ' ';
const LISTED: char = ',';
/// Stands for a list that leaves nothing out.
const ALL: &str = "*";
/// Stands behind what is wanted by some who ask once. A program that does not know it passes it over.
const ONCE: &str = "once";

/// Writes news, in lines of at most so many bytes.
pub(crate) fn write(news: &News, bytes_max: usize) -> Vec<String> {
    match news {
        News::Due { tenant, shard, at } => {
            vec![format!("d{WITHIN}{tenant}{WITHIN}{}{WITHIN}{}", at.as_ms(), shard.0)]
        }
        News::Changed { tenant, id } => vec![format!("c{WITHIN}{tenant}{WITHIN}{id}")],
        News::Ended { tenant, id, token } => {
            vec![format!("e{WITHIN}{tenant}{WITHIN}{id}{WITHIN}{}", token.as_u64())]
        }
        News::Wants { node, said_ms, heard, wants } => {
            let head =
                format!("w{WITHIN}{node}{WITHIN}{said_ms}{WITHIN}{}", list(heard.iter().map(write_receipt)));
            lines(&head, wants.iter().map(write_want), bytes_max)
        }
        News::Handed { from, to, number, start_by_ms, jobs } => {
            let head = format!("h{WITHIN}{from}{WITHIN}{to}{WITHIN}{number}{WITHIN}{start_by_ms}");
            let job = |(tenant, id, token): &(Tenant, JobId, Token)| {
                format!("{tenant}{INSIDE}{id}{INSIDE}{}", token.as_u64())
            };
            lines(&head, jobs.iter().map(job), bytes_max)
        }
        News::Demands { node, demands } => {
            let demand = |(tenant, per_s): &(Tenant, f64)| format!("{tenant}{INSIDE}{per_s}");
            lines(&format!("l{WITHIN}{node}{WITHIN}"), demands.iter().map(demand), bytes_max)
        }
    }
}

/// As many parts behind the head as fit into each line; the head alone only if there are no parts.
fn lines(head: &str, parts: impl Iterator<Item = String>, bytes_max: usize) -> Vec<String> {
    let (mut lines, mut line, mut left_out, mut is_alone) = (Vec::new(), head.to_owned(), 0, true);
    for part in parts {
        is_alone = false;
        if head.len() + 1 + part.len() > bytes_max {
            left_out += 1;
            continue;
        }
        if line.len() + 1 + part.len() > bytes_max {
            lines.push(std::mem::replace(&mut line, head.to_owned()));
        }
        line.push(WITHIN);
        line.push_str(&part);
    }
    if left_out > 0 {
        tracing::debug!(left_out, "news were too long to be passed on");
    }
    if is_alone || line.len() > head.len() {
        lines.push(line);
    }
    lines
}

fn list(parts: impl Iterator<Item = impl Display>) -> String {
    let mut list = String::new();
    for (index, part) in parts.enumerate() {
        if index > 0 {
            list.push(LISTED);
        }
        list.push_str(&part.to_string());
    }
    list
}

fn write_receipt(Receipt { node, number, missed }: &Receipt) -> String {
    missed.iter().fold(format!("{node}{INSIDE}{number}"), |line, missed| format!("{line}{INSIDE}{missed}"))
}

fn write_want(want: &Want) -> String {
    let tenants = want.tenants.as_ref().map_or_else(|| ALL.to_owned(), |tenants| list(tenants.iter()));
    let kinds = if want.kinds.is_empty() { ALL.to_owned() } else { list(want.kinds.iter()) };
    let (queue, priority) = (&want.queue, want.priority_min.as_str());
    let (lease_ms, room) = (want.lease_ms, want.room);
    let once = if want.asks_once { format!("{INSIDE}{ONCE}") } else { String::new() };
    format!("{queue}{INSIDE}{tenants}{INSIDE}{kinds}{INSIDE}{priority}{INSIDE}{lease_ms}{INSIDE}{room}{once}")
}

/// What is no news to this program is left out: another version may say more.
pub(crate) fn read(line: &str) -> Option<News> {
    let mut parts = line.split(WITHIN);
    let (kind, whose, rest) = (parts.next()?, parts.next()?, parts.next()?);
    match kind {
        "d" => Some(News::Due {
            tenant: Tenant::new(whose).ok()?,
            shard: Shard(parts.next()?.parse().ok()?),
            at: Timestamp::from_ms(rest.parse().ok()?),
        }),
        "c" => Some(News::Changed { tenant: Tenant::new(whose).ok()?, id: rest.parse::<JobId>().ok()? }),
        "e" => Some(News::Ended {
            tenant: Tenant::new(whose).ok()?,
            id: rest.parse::<JobId>().ok()?,
            token: Token::from_u64(parts.next()?.parse().ok()?),
        }),
        "w" => {
            let heard = parts.next()?.split(LISTED).filter(|part| !part.is_empty()).map(read_receipt);
            Some(News::Wants {
                node: Arc::from(whose),
                said_ms: rest.parse().ok()?,
                heard: heard.collect::<Option<_>>()?,
                wants: parts.map(read_want).collect::<Option<_>>()?,
            })
        }
        "h" => Some(News::Handed {
            from: Arc::from(whose),
            to: Arc::from(rest),
            number: parts.next()?.parse().ok()?,
            start_by_ms: parts.next()?.parse().ok()?,
            jobs: parts.map(read_job).collect::<Option<_>>()?,
        }),
        "l" => Some(News::Demands {
            node: Arc::from(whose),
            demands: parts.map(read_demand).collect::<Option<_>>()?,
        }),
        _ => None,
    }
}

fn read_receipt(part: &str) -> Option<Receipt> {
    let mut parts = part.split(INSIDE);
    Some(Receipt {
        node: Arc::from(parts.next()?),
        number: parts.next()?.parse().ok()?,
        missed: parts.map(|missed| missed.parse().ok()).collect::<Option<_>>()?,
    })
}

fn read_job(part: &str) -> Option<(Tenant, JobId, Token)> {
    let mut parts = part.split(INSIDE);
    let (tenant, id, token) = (parts.next()?, parts.next()?, parts.next()?);
    Some((Tenant::new(tenant).ok()?, id.parse().ok()?, Token::from_u64(token.parse().ok()?)))
}

fn read_demand(part: &str) -> Option<(Tenant, f64)> {
    let (tenant, per_s) = part.split_once(INSIDE)?;
    Some((Tenant::new(tenant).ok()?, per_s.parse().ok().filter(|per_s: &f64| per_s.is_finite())?))
}

fn read_want(part: &str) -> Option<Want> {
    let mut parts = part.split(INSIDE);
    let (queue, tenants, kinds) = (parts.next()?, parts.next()?, parts.next()?);
    let tenants = match tenants {
        ALL => None,
        names => Some(names.split(LISTED).map(Tenant::new).collect::<Result<_, _>>().ok()?),
    };
    let kinds = if kinds == ALL { Vec::new() } else { kinds.split(LISTED).map(Arc::from).collect() };
    Some(Want {
        queue: Arc::from(queue),
        tenants,
        kinds,
        priority_min: Priority::from_name(parts.next()?)?,
        lease_ms: parts.next()?.parse().ok()?,
        room: parts.next()?.parse().ok()?,
        asks_once: parts.next() == Some(ONCE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 1_000;

    fn want(queue: &str, tenants: Option<usize>, kinds: &[&str]) -> Want {
        let tenant = |n: usize| Tenant::new(&format!("tenant-{n}")).unwrap();
        Want {
            queue: Arc::from(queue),
            tenants: tenants.map(|count| (0..count).map(tenant).collect()),
            kinds: kinds.iter().map(|kind| Arc::from(*kind)).collect(),
            priority_min: Priority::High,
            lease_ms: 30_000,
            room: 7,
            asks_once: tenants.is_some(),
        }
    }

    fn wants(wants: Vec<Want>) -> News {
        let receipt =
            |node, missed: &[u64]| Receipt { node: Arc::from(node), number: 8, missed: missed.to_vec() };
        let heard = vec![receipt("n2", &[]), receipt("n3", &[5, 7])];
        News::Wants { node: Arc::from("n1"), said_ms: 1_234, heard, wants }
    }

    #[test]
    fn what_is_written_is_read_and_nonsense_is_left_out() {
        let id = JobId::new(Timestamp::from_ms(1_700_000_000_000), 9);
        let jobs = vec![
            (Tenant::default(), id, Token::new(3, 1)),
            (Tenant::new("b").unwrap(), id, Token::new(4, 2)),
        ];
        let (from, to): (Arc<str>, Arc<str>) = (Arc::from("n1"), Arc::from("n2"));
        for news in [
            News::Due {
                tenant: Tenant::new("acme").unwrap(),
                shard: Shard(4_095),
                at: Timestamp::from_ms(7),
            },
            News::Changed { tenant: Tenant::default(), id },
            News::Ended { tenant: Tenant::default(), id, token: Token::new(3, 1) },
            wants(vec![want("q1", None, &[]), want("q.2", Some(3), &["t1", "t:2"])]),
            News::Wants { node: Arc::from("n1"), said_ms: -1, heard: Vec::new(), wants: Vec::new() },
            News::Handed { from, to, number: 12, start_by_ms: 1_500, jobs },
            News::Demands {
                node: Arc::from("n1"),
                demands: vec![(Tenant::default(), 0.0), (Tenant::new("b").unwrap(), 12.625)],
            },
        ] {
            let lines = write(&news, BYTES_MAX);
            assert_eq!(lines.iter().map(|line| read(line)).collect::<Vec<_>>(), [Some(news)], "{lines:?}");
        }
        for line in [
            "",
            "d",
            "d\tacme",
            "d\tacme\tsoon",
            "d\tacme\t7",
            "d\tacme\t7\t65536",
            "x\tacme\t1",
            "c\tacme\tjob_1",
            "e\tacme\tjob_1",
            "e\tacme\tjob_1\t1",
            "w\tn1",
            "w\tn1\t1",
            "w\tn1\tsoon\t",
            "w\tn1\t1\tn2",
            "w\tn1\t1\tn2 8 x",
            "w\tn1\t1\t\tq * *",
            "h\tn1\tn2",
            "h\tn1\tn2\t1",
            "h\tn1\tn2\t1\t1\tacme job_1 1",
            "l\tn1\t\tacme much",
            "l\tn1\t\tacme NaN",
        ] {
            assert_eq!(read(line), None, "{line:?}");
        }
    }

    #[test]
    fn what_is_long_is_cut_and_what_is_too_long_left_out() {
        let mut all: Vec<Want> = (0..100).map(|n| want(&format!("q{n}"), Some(2), &["t"])).collect();
        let fitting = all.clone();
        all.insert(50, want("q", Some(BYTES_MAX), &[]));
        let lines = write(&wants(all), BYTES_MAX);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= BYTES_MAX));
        let mut back = Vec::new();
        for line in &lines {
            let Some(News::Wants { heard, wants, .. }) = read(line) else { panic!("{line}") };
            assert_eq!(heard.len(), 2);
            back.extend(wants);
        }
        assert_eq!(back, fitting);
        assert!(
            write(&wants(vec![want("q", Some(BYTES_MAX), &[])]), BYTES_MAX).is_empty(),
            "not a want of nothing"
        );
    }
}

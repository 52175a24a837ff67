//! News between nodes, by the database's own notifications: sent by themselves, never in the transaction of a write, which
//! would make all writes wait for each other.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_fn;
use tidewheel_store::{Error, News};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_postgres::AsyncMessage;

use crate::connections::{Connections, Lane};
use crate::fault::{Trouble, store_error};
use crate::hosts::Hosts;
use crate::news_text::{BETWEEN, read, write};
use crate::options::Options;

/// Bytes of one notification; the database takes less than 8000.
const PAYLOAD_BYTES_MAX: usize = 7_900;
/// Batches of news that wait to be heard; what is more is as if it had been missed.
const HEARD_COUNT_MAX: usize = 256;
/// How often the connection is tried: a server that hangs says nothing, and neither does one without news.
const TRY_EVERY: Duration = Duration::from_secs(5);
/// Until a lost connection is made anew.
const RECONNECT: Duration = Duration::from_millis(500);

/// Cuts news into notifications. What does not fit into one is left out: nothing rests on it.
fn payloads(news: &[News]) -> Vec<String> {
    let mut payloads: Vec<String> = Vec::new();
    for line in news.iter().flat_map(|news| write(news, PAYLOAD_BYTES_MAX)) {
        match payloads.last_mut() {
            Some(last) if last.len() + line.len() < PAYLOAD_BYTES_MAX => {
                last.push(BETWEEN);
                last.push_str(&line);
            }
            Some(_) | None => payloads.push(line),
        }
    }
    payloads
}

/// The channel of one schema.
fn channel(schema: &str) -> String {
    format!("{schema}_news")
}

pub(crate) async fn tell(connections: &Connections, schema: &str, news: &[News]) -> Result<(), Trouble> {
    let client = connections.get(Lane::Scheduler).await?;
    let statement = client.prepare_cached("SELECT pg_notify($1, line) FROM unnest($2::text[]) line").await?;
    client.execute(&statement, &[&channel(schema), &payloads(news)]).await?;
    Ok(())
}

/// Listens on a connection of its own until nobody wants to hear any more.
pub(crate) fn listen(options: &Options, connections: &Connections) -> mpsc::Receiver<Vec<News>> {
    let (sender, receiver) = mpsc::channel(HEARD_COUNT_MAX);
    let (options, hosts) = (options.clone(), Arc::clone(&connections.hosts));
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(RECONNECT);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !sender.is_closed() {
            tick.tick().await;
            let listening = listen_once(&options, &hosts, &sender);
            let ended = tokio::select! {
                ended = listening => ended,
                () = sender.closed() => return,
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "news of other nodes cannot be heard; trying again");
            }
            // Some may have been missed, and will be until the next connection stands.
            drop(sender.try_send(Vec::new()));
        }
    });
    receiver
}

/// The server says nothing.
fn silent() -> Error {
    Error::Unavailable("the database does not answer".to_owned())
}

async fn listen_once(
    options: &Options,
    hosts: &Hosts,
    sender: &mpsc::Sender<Vec<News>>,
) -> Result<(), Error> {
    let failed = |error: tokio_postgres::Error| store_error(&error);
    let connecting = tokio::time::timeout(options.call, hosts.connect());
    let (client, mut connection) = connecting.await.map_err(|_| silent())?.map_err(failed)?;
    let (heard, mut hear) = mpsc::channel(HEARD_COUNT_MAX);
    let driving = async move {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    // One that finds no room is lost, and nothing rests on it.
                    drop(heard.try_send(Arc::<str>::from(notification.payload())));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(store_error(&error)),
                None => return Ok(()),
            }
        }
    };
    let hearing = async {
        client.batch_execute(&format!("LISTEN \"{}\"", channel(&options.schema))).await.map_err(failed)?;
        // What was said before it listened.
        drop(sender.try_send(Vec::new()));
        let mut tries = tokio::time::interval(TRY_EVERY);
        tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let payload = tokio::select! {
                payload = hear.recv() => payload,
                _ = tries.tick() => {
                    let tried = tokio::time::timeout(options.call, client.simple_query("")).await;
                    drop(tried.map_err(|_| silent())?.map_err(failed)?);
                    continue;
                }
            };
            let Some(payload) = payload else { return Ok(()) };
            let news: Vec<News> = payload.split(BETWEEN).filter_map(read).collect();
            if !news.is_empty() {
                drop(sender.try_send(news));
            }
        }
    };
    // Whichever ends first: without the one, the other would wait for ever.
    tokio::select! {
        driven = driving => driven,
        heard = hearing => heard,
    }
}

#[cfg(test)]
mod tests {
    use tidewheel_core::names::Tenant;
    use tidewheel_core::place::Shard;
    use tidewheel_core::time::Timestamp;

    use super::*;

    fn due(n: i64) -> News {
        let tenant = Tenant::new(&format!("tenant-{n}")).unwrap();
        News::Due { tenant, shard: Shard(7), at: Timestamp::from_ms(n) }
    }

    #[test]
    fn many_are_cut_into_notifications_that_fit() {
        let news: Vec<News> = (0..2_000).map(due).collect();
        let payloads = payloads(&news);
        assert!(payloads.len() > 1 && payloads.iter().all(|payload| payload.len() <= PAYLOAD_BYTES_MAX));
        let back: Vec<News> =
            payloads.iter().flat_map(|payload| payload.split(BETWEEN)).filter_map(read).collect();
        assert_eq!(back, news);
    }
}

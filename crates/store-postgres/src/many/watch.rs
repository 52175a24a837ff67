//! Finds out whether a database answers, on a connection of its own, so that a crowd at the pools is not taken for silence. One
//! that could not be reached at the start is opened here once it can be. Where its URL names several servers, one that hangs
//! is left for another that takes writes.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::open::open_part;
use super::part::Part;
use crate::fault::reason;

/// How often it is asked, and tried again while it does not answer.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// What a look at a database found.
enum Found {
    /// It answers.
    Client(Client),
    /// It answers that it has no room for another connection.
    Crowded,
    /// It does not answer.
    Nothing(String),
}

/// Watches until it is aborted.
pub(super) fn spawn(part: &Arc<Part>, first: &Arc<Part>) -> JoinHandle<()> {
    let (part, first) = (Arc::clone(part), Arc::clone(first));
    tokio::spawn(async move {
        let mut tick = interval(ASK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            match connect(&part).await {
                Found::Client(client) => match opened(&part, &first).await {
                    Ok(()) => ask_on(&part, &client).await,
                    Err(reason) => part.went_away(&reason),
                },
                Found::Crowded if part.is_open() => part.came_back(None),
                Found::Crowded => {}
                Found::Nothing(reason) => part.went_away(&reason),
            }
        }
    })
}

async fn connect(part: &Part) -> Found {
    let connect = async {
        let hosts = part.hosts().map_err(|error| Found::Nothing(error.to_string()))?;
        hosts.connect_driven().await.map_err(|error| {
            let is_crowded = error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS);
            if is_crowded { Found::Crowded } else { Found::Nothing(reason(&error)) }
        })
    };
    match timeout(part.options.connect, connect).await {
        // What drives it ends when the client is dropped, or the database is gone: the next question shows that.
        Ok(Ok((client, _))) => Found::Client(client),
        Ok(Err(found)) => found,
        Err(_) => Found::Nothing("no connection can be made in time".to_owned()),
    }
}

/// Opens what was not reached before; says what is wrong with it, if something is.
async fn opened(part: &Part, first: &Part) -> Result<(), String> {
    let opened = if part.is_open() {
        None
    } else {
        let store = open_part(part.options.clone()).await.map_err(|error| error.to_string())?;
        // One that was used before is known to be: it comes back whether or not the first answers.
        if part.options.makes_tables {
            first.note_used(part).await.map_err(|error| error.to_string())?;
        }
        Some(store)
    };
    part.came_back(opened);
    Ok(())
}

/// Asks until there is no answer. A connection that was ended is no sign of trouble yet; silence is: a statement that does nothing
/// waits for nobody but the machine.
async fn ask_on(part: &Part, client: &Client) {
    let silence = part.options.silence;
    let mut tick = interval(ASK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        match timeout(silence, client.simple_query("SELECT 1")).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::debug!(database = part.index, reason = reason(&error), "a connection ended");
                return;
            }
            Err(_) => {
                part.went_away(&format!("no answer within {silence:?}"));
                return;
            }
        }
    }
}

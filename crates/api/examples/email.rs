//! An e-mail worker: takes `send-email` jobs of the queue `mail`, and hands them to a relay.
//!
//! ```sh
//! tidewheel job submit send-email --queue mail --payload '{"to": "ada@example.com", "subject": "Hello"}'
//! cargo run --example email
//! ```
//!
//! The relay here only prints. A real one is given the idempotency key as the message id, so that a mail whose sending
//! was not confirmed is not sent twice.

use std::io::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidewheel_api::worker::{Classify as _, Context, Failure, Worker, WorkerConfig};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Deserialize)]
struct Mail {
    to: String,
    subject: String,
}

#[derive(Serialize)]
struct Sent {
    message_id: String,
}

async fn send(context: Context, mail: Mail) -> Result<Sent, Failure> {
    // An address without a host does not get one by waiting.
    let (_, host) = mail.to.split_once('@').ok_or("the address has no @").or_final()?;
    let message_id = format!("<{}@tidewheel>", context.idempotency_key());
    // A relay that is down is tried again, but not before it had a minute.
    relay(host, &mail, &message_id).or_retry_after(Duration::from_secs(60))?;
    Ok(Sent { message_id })
}

fn relay(host: &str, mail: &Mail, message_id: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "to {} by {host}: {} {message_id}", mail.to, mail.subject)?;
    stdout.flush()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("TIDEWHEEL_URL").unwrap_or_else(|_| "http://127.0.0.1:7400".to_owned());
    let mut worker = Worker::connect(WorkerConfig::new(url, "mail")).await?;
    worker.handle("send-email", send);
    let stopper = worker.stopper();
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        stopper.drain();
    });
    worker.run().await?;
    Ok(())
}

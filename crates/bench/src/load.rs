//! Sends rendered requests over many connections at once, for a time.

use std::time::Duration;

use tokio::task::JoinSet;

use super::connection::Connection;
use super::figures::{Meter, Rate};
use super::subject::Subject;

/// The load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Connections, each with one request under way.
    pub(super) connections: usize,
    /// Different requests per connection, sent in turn.
    pub(super) requests: usize,
    /// Jobs in each request.
    pub(super) jobs: u64,
    /// How long.
    pub(super) time: Duration,
}

impl Load {
    /// Sends what `render` makes, and tells how many jobs were acknowledged how fast.
    pub(super) async fn send(self, subject: &Subject, render: impl Fn() -> Vec<u8>) -> anyhow::Result<Rate> {
        self.send_to(&[subject], render).await
    }

    /// The same, the connections being spread over several servers.
    pub(super) async fn send_to(
        self,
        subjects: &[&Subject],
        render: impl Fn() -> Vec<u8>,
    ) -> anyhow::Result<Rate> {
        let mut senders = Vec::with_capacity(self.connections);
        for subject in subjects.iter().cycle().take(self.connections) {
            let requests: Vec<Vec<u8>> = (0..self.requests).map(|_| render()).collect();
            senders.push((subject.connect().await?, requests));
        }
        let meter = Meter::start()?;
        let mut tasks = JoinSet::new();
        for (connection, requests) in senders {
            tasks.spawn(self.repeat(connection, requests, meter));
        }
        let mut acknowledged = 0;
        while let Some(done) = tasks.join_next().await {
            acknowledged += done??;
        }
        meter.stop(acknowledged)
    }

    async fn repeat(
        self,
        mut connection: Connection,
        requests: Vec<Vec<u8>>,
        meter: Meter,
    ) -> anyhow::Result<u64> {
        let mut acknowledged = 0;
        for request in requests.iter().cycle() {
            connection.must(request).await?;
            acknowledged += self.jobs;
            if meter.elapsed() >= self.time {
                break;
            }
        }
        Ok(acknowledged)
    }
}

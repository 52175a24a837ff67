//! News between the nodes that share the model: every open handle has an inbox, and whoever looks on decides what becomes
//! of each batch on its way.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::{Call, Data, MemoryStore, Passage};
use tidewheel_store::{Error, News};

/// Batches that wait to be heard; the oldest give way to what is more, and are missed.
const INBOX_COUNT_MAX: usize = 1_024;

/// What is on its way to one handle.
pub(super) struct Inbox {
    /// By which node each was told.
    batches: VecDeque<(u64, Arc<[News]>)>,
    /// Some may have been missed.
    missed: bool,
    waker: Option<Waker>,
}

/// What was said before it listened was missed.
impl Default for Inbox {
    fn default() -> Self {
        Self { batches: VecDeque::new(), missed: true, waker: None }
    }
}

/// What comes next to a handle.
enum Next {
    Missed,
    Batch(u64, Arc<[News]>),
}

impl Inbox {
    fn add(&mut self, from_node: u64, batch: &Arc<[News]>) {
        if self.batches.len() >= INBOX_COUNT_MAX {
            self.batches.pop_front();
            self.missed = true;
        }
        self.batches.push_back((from_node, Arc::clone(batch)));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn next(&mut self) -> Option<Next> {
        if std::mem::take(&mut self.missed) {
            return Some(Next::Missed);
        }
        self.batches.pop_front().map(|(from_node, batch)| Next::Batch(from_node, batch))
    }
}

impl MemoryStore {
    pub(super) async fn pass_on(&self, news: Vec<News>) -> Result<(), Error> {
        let batch: Arc<[News]> = Arc::from(news);
        self.call_data(Call::Tell, |data: &mut Data, _| {
            data.open.values_mut().for_each(|inbox| inbox.add(self.node, &batch));
            Ok(())
        })
        .await
    }

    pub(super) async fn next_news(&self) -> Vec<News> {
        loop {
            let next = poll_fn(|context| {
                let mut data = self.lock();
                // A handle that is closed hears nothing any more.
                let Some(inbox) = data.open.get_mut(&self.handle) else { return Poll::Pending };
                match inbox.next() {
                    Some(next) => Poll::Ready(next),
                    None => {
                        inbox.waker = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            });
            let Next::Batch(from_node, batch) = next.await else { return Vec::new() };
            let passage = self.faults.as_ref().map_or(Passage::Free, |faults| faults.passage(from_node));
            match passage {
                Passage::Free => return batch.to_vec(),
                Passage::Slow(wait) => {
                    wait.await;
                    return batch.to_vec();
                }
                Passage::Missed => return Vec::new(),
                Passage::Lost => {}
            }
        }
    }
}

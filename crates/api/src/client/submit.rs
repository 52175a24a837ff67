//! Submitting jobs: one by one, or gathered into batches.
//!
//! Every job goes out with an idempotency key, its own or one made here, so a submission whose answer was lost is sent
//! again without making a second job.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use tidewheel_core::limits::BATCH_COUNT_MAX;
use tokio::sync::{mpsc, oneshot};

use super::{Call, Client, Error, Problem};
use crate::proto::v1::{NewJob, SubmitAnswer, SubmitBatchAnswer, SubmitResponse};
use crate::wire::fault::Code;

/// Jobs gathered into one request; the server takes up to 10,000.
const GATHERED_COUNT_MAX: usize = 1_000;
/// Jobs that wait to be gathered; beyond it, who submits waits.
const WAITING_COUNT_MAX: usize = 4_096;

const _: () = assert!(GATHERED_COUNT_MAX <= BATCH_COUNT_MAX);

/// A job that was taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// Its id.
    pub id: String,
    /// The key was used before: this is the first job.
    pub duplicate: bool,
}

impl Client {
    /// Submits one job, more than once if it is unclear what became of it: with its idempotency key, or with one made
    /// for it.
    ///
    /// # Errors
    /// When the server refuses it, or there was no answer for as long as the client's patience lasts.
    pub async fn submit(&self, mut job: NewJob) -> Result<Submitted, Error> {
        give_key(&mut job);
        let answer: SubmitResponse =
            self.send(&Call::post(&["jobs"]).json(json(&job)?).repeatable()).await?.json()?;
        Ok(Submitted { id: answer.id, duplicate: answer.duplicate })
    }

    /// Submits many jobs in one request, or in several if they are more at once than the tenant may have waiting or than
    /// the server takes; each is answered for by itself, in the order given.
    ///
    /// # Errors
    /// As for [`Self::submit`], where all of them are concerned.
    pub async fn submit_all(&self, mut jobs: Vec<NewJob>) -> Result<Vec<Result<Submitted, Error>>, Error> {
        jobs.iter_mut().for_each(give_key);
        let mut answers = self.send_all(&jobs).await?;
        loop {
            // Those the server had no room for beside more urgent ones. Alone, they wait for as long as patience lasts.
            let shed: Vec<usize> =
                (0..).zip(&answers).filter(|(_, it)| is_shed(it)).map(|(place, _)| place).collect();
            let again: Vec<NewJob> = shed.iter().filter_map(|place| jobs.get(*place)).cloned().collect();
            if again.is_empty() {
                break;
            }
            // What became of the others is told whatever becomes of these.
            let Ok(later) = self.send_all(&again).await else { break };
            for (place, answer) in shed.into_iter().zip(later) {
                if let Some(slot) = answers.get_mut(place) {
                    *slot = answer;
                }
            }
        }
        let read = |answer: SubmitAnswer| match answer.error {
            None => Ok(Submitted { id: answer.id, duplicate: answer.duplicate }),
            Some(problem) => {
                let status = status_of(&problem.code);
                let (title, code) = (problem.detail, Some(problem.code));
                Err(Error::Refused(Box::new(Problem { title, code, status, ..Problem::default() })))
            }
        };
        Ok(answers.into_iter().map(|answer| answer.and_then(read)).collect())
    }

    /// Sends all at once, and halves of what cannot be sent so: what is wrong with some, or with their number, is not the
    /// others' fault. Fails as a whole only where none was sent apart from the others.
    async fn send_all(&self, jobs: &[NewJob]) -> Result<Vec<Answered>, Error> {
        let mut answers: Vec<Answered> = Vec::with_capacity(jobs.len());
        // Those that come first lie on top.
        let mut parts = vec![jobs];
        while let Some(part) = parts.pop() {
            match self.send_part(part).await {
                Ok(answered) => answers.extend(answered.into_iter().map(Ok)),
                Err(error) if part.len() > 1 && may_do_in_parts(&error) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Err(error) if part.len() == jobs.len() => return Err(error),
                Err(error) => {
                    // What may do better later was waited for as long as patience lasts. The others would wait as long, one
                    // part after the other.
                    let unsent = if error.is_retryable() { std::mem::take(&mut parts) } else { Vec::new() };
                    let count = part.len() + unsent.into_iter().map(<[NewJob]>::len).sum::<usize>();
                    answers.extend(std::iter::repeat_n(Err(error), count));
                }
            }
        }
        Ok(answers)
    }

    async fn send_part(&self, jobs: &[NewJob]) -> Result<Vec<SubmitAnswer>, Error> {
        let call = Call::post(&["jobs", "batch"]).query("partial", "true").json(json(&jobs)?).repeatable();
        let answer = self.send(&call).await?;
        let answers = answer.json::<SubmitBatchAnswer>()?.jobs;
        if answers.len() != jobs.len() {
            let fault = format!("{} answers to {} jobs", answers.len(), jobs.len());
            return Err(Error::unexpected(answer.status, &answer.body, Some(fault)));
        }
        Ok(answers)
    }
}

/// What became of a job, or why nothing is known to have.
type Answered = Result<SubmitAnswer, Error>;

fn is_shed(answer: &Answered) -> bool {
    let problem = answer.as_ref().ok().and_then(|answer| answer.error.as_ref());
    problem.is_some_and(|problem| problem.code == Code::Overloaded.as_str())
}

/// Whether fewer jobs may be taken where these are not: they are too many, or one of them cannot be put into a request.
fn may_do_in_parts(error: &Error) -> bool {
    let code = error.problem().and_then(|problem| problem.code.as_deref());
    let too_many = [Code::BatchOverLimit, Code::BatchTooLarge, Code::BodyTooLarge].map(Code::as_str);
    matches!(error, Error::Setup(_)) || code.is_some_and(|code| too_many.contains(&code))
}

/// What a job would have been answered with by itself. A code that is not known here says only that it was refused.
fn status_of(code: &str) -> u16 {
    let known = Code::ALL.iter().find(|known| known.as_str() == code);
    known.map_or(422, |known| known.status())
}

fn json<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|fault| Error::Setup(fault.to_string()))
}

/// Without a key, a submission cannot be repeated safely.
fn give_key(job: &mut NewJob) {
    if job.idempotency_key.is_empty() {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Keyed by the system's randomness: no two processes share it, and no two keys of one.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (high, low) = (RandomState::new().hash_one(number), RandomState::new().hash_one(!number));
        job.idempotency_key = format!("auto-{high:016x}{low:016x}");
    }
}

/// Submits jobs of many callers in batches. One batch is under way at a time and the next is gathered meanwhile, so
/// batches grow with the load, and a server that asks for patience (429, 503) slows all callers down. A batch that is more
/// than the tenant may have waiting goes out in parts. Clones share it.
///
/// ```no_run
/// use tidewheel_api::client::{Client, ClientConfig, Patience, Submitter};
/// use tidewheel_api::proto::v1::NewJob;
///
/// # async fn example() -> Result<(), tidewheel_api::client::Error> {
/// let config = ClientConfig { patience: Patience::LONG, ..ClientConfig::new("http://127.0.0.1:7400") };
/// let submitter = Submitter::new(Client::new(config)?);
/// let job = NewJob { r#type: "send-email".into(), queue: "mail".into(), ..NewJob::default() };
/// let submitted = submitter.submit(job).await?;
/// println!("{}", submitted.id);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Submitter {
    jobs: mpsc::Sender<Waiting>,
}

type Waiting = (NewJob, oneshot::Sender<Result<Submitted, Error>>);

impl Submitter {
    /// Starts one, in the runtime this is called in. It ends with its last clone.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let (jobs, waiting) = mpsc::channel(WAITING_COUNT_MAX);
        tokio::spawn(gather(client, waiting));
        Self { jobs }
    }

    /// Submits a job; returns once it is stored.
    ///
    /// # Errors
    /// As for [`Client::submit`].
    pub async fn submit(&self, job: NewJob) -> Result<Submitted, Error> {
        let ended = || Error::Setup("the submitter's runtime has ended".to_owned());
        let (reply, answer) = oneshot::channel();
        self.jobs.send((job, reply)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

async fn gather(client: Client, mut waiting: mpsc::Receiver<Waiting>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, GATHERED_COUNT_MAX).await > 0 {
        let (jobs, replies): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
        match client.submit_all(jobs).await {
            Ok(answers) => {
                for (reply, answer) in replies.into_iter().zip(answers) {
                    // Who no longer waits does not want to know.
                    reply.send(answer).ok();
                }
            }
            Err(error) => replies.into_iter().for_each(|reply| drop(reply.send(Err(error.clone())))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_without_a_key_gets_one_of_its_own_and_keeps_what_it_has() {
        let (mut a, mut b) = (NewJob::default(), NewJob::default());
        give_key(&mut a);
        give_key(&mut b);
        assert_ne!(a.idempotency_key, b.idempotency_key);
        let key = a.idempotency_key.clone();
        give_key(&mut a);
        assert_eq!(a.idempotency_key, key);
    }
}

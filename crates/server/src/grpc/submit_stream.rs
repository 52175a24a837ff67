//! Taking jobs in, batch by batch. The next batch is read when the one before is stored and answered for, so a client
//! that sends faster is held up by the stream.

use std::pin::Pin;

use futures_util::{Stream, stream};
use http::Method;
use tidewheel_api::proto::v1::{
    NewJob, Problem as ProblemMessage, SubmitAnswer, SubmitBatch, SubmitBatchAnswer,
};
use tidewheel_api::wire::fault::Code;
use tonic::metadata::MetadataMap;
use tonic::{Status, Streaming};

use super::bridge::{Bridge, Call, as_json};

/// What became of the batches.
pub(super) type Answers = Pin<Box<dyn Stream<Item = Result<SubmitBatchAnswer, Status>> + Send>>;

/// The stream's own key is one for all its batches, so it cannot be one for each.
const KEY: &str = "idempotency-key";

pub(super) fn answer_batches(
    bridge: Bridge,
    mut metadata: MetadataMap,
    batches: Streaming<SubmitBatch>,
) -> Answers {
    metadata.remove(KEY);
    let open = Some((bridge, metadata, batches));
    Box::pin(stream::unfold(open, |open| async move {
        let (bridge, metadata, mut batches) = open?;
        match batches.message().await {
            Ok(Some(batch)) => match answer(&bridge, &metadata, batch).await {
                Ok(answer) => Some((Ok(answer), Some((bridge, metadata, batches)))),
                Err(refused) => Some((Err(refused), None)),
            },
            Ok(None) => None,
            Err(broken) => Some((Err(broken), None)),
        }
    }))
}

async fn answer(
    bridge: &Bridge,
    metadata: &MetadataMap,
    batch: SubmitBatch,
) -> Result<SubmitBatchAnswer, Status> {
    // What cannot even be put as JSON must not spoil the rest of its batch.
    let jobs: Vec<Result<Vec<u8>, SubmitAnswer>> = batch.jobs.iter().map(readable).collect();
    let mut body = Vec::with_capacity(2 + jobs.iter().flatten().map(|job| job.len() + 1).sum::<usize>());
    for job in jobs.iter().flatten() {
        body.push(if body.is_empty() { b'[' } else { b',' });
        body.extend_from_slice(job);
    }
    let mut stored = SubmitBatchAnswer::default();
    if !body.is_empty() {
        body.push(b']');
        let call = Call::new(metadata, Method::POST, "/v1/jobs/batch").parameter("partial", "true");
        stored = bridge.call(call.body(body)).await?;
    }
    let mut stored = stored.jobs.into_iter();
    let each = |job: Result<Vec<u8>, SubmitAnswer>| match job {
        Ok(_) => stored.next().unwrap_or_default(),
        Err(refused) => refused,
    };
    Ok(SubmitBatchAnswer { jobs: jobs.into_iter().map(each).collect() })
}

fn readable(job: &NewJob) -> Result<Vec<u8>, SubmitAnswer> {
    as_json(job).map_err(|refused| SubmitAnswer {
        error: Some(ProblemMessage {
            code: Code::MalformedJson.as_str().to_owned(),
            detail: refused.message().to_owned(),
        }),
        ..SubmitAnswer::default()
    })
}

//! How much a job takes on its way to a worker.

use tidewheel_core::job::Job;

/// What a label takes beside its text.
const LABEL_BYTES: usize = 8;

/// About how many bytes a job is in a message, rather too many than too few.
pub(crate) fn sent_bytes(job: &Job) -> usize {
    let labels = job.spec.labels.iter().map(|(key, value)| key.len() + value.len() + LABEL_BYTES);
    job.size_bytes() + job.spec.idempotency_key.as_ref().map_or(0, |key| key.len()) + labels.sum::<usize>()
}

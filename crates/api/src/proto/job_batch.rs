//! `tidewheel.v1.JobBatch`, whose jobs stay encoded. On the wire it is the message of that name in `proto/`.
//!
//! A batch holds thousands of jobs of some twenty fields each. The server writes them from what it has in memory, and a
//! worker reads each to where it is kept, so that none is taken apart, or moved as a whole, on its way.

use bytes::Bytes;
use prost::{DecodeError, Message};

use super::v1::LeasedJob;

/// Jobs to run.
#[derive(Clone, PartialEq, Message)]
pub struct JobBatch {
    /// Each took one credit.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    encoded: Vec<Bytes>,
}

impl JobBatch {
    /// A batch of these jobs.
    #[must_use]
    pub fn new(jobs: &[LeasedJob]) -> Self {
        Self { encoded: jobs.iter().map(|job| job.encode_to_vec().into()).collect() }
    }

    /// A batch of `count` jobs, each of which `write` encodes behind the one before; about so many `bytes` in all.
    #[must_use]
    pub fn written(count: usize, bytes: usize, mut write: impl FnMut(usize, &mut Vec<u8>)) -> Self {
        let mut buffer = Vec::with_capacity(bytes);
        let mut ends = Vec::with_capacity(count);
        for place in 0..count {
            write(place, &mut buffer);
            ends.push(buffer.len());
        }
        let mut rest = Bytes::from(buffer);
        let mut start = 0;
        let encoded = ends.into_iter().map(|end| {
            let job = rest.split_to(end - start);
            start = end;
            job
        });
        Self { encoded: encoded.collect() }
    }

    /// How many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.encoded.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.encoded.is_empty()
    }

    /// The jobs as they are encoded.
    pub fn into_encoded(self) -> impl Iterator<Item = Bytes> {
        self.encoded.into_iter()
    }

    /// The jobs.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn jobs(self) -> Result<Vec<LeasedJob>, DecodeError> {
        self.encoded.into_iter().map(LeasedJob::decode).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(number: u64) -> LeasedJob {
        let id = format!("job-{number}");
        let labels = [("a".to_owned(), "b".to_owned())].into();
        LeasedJob { id, token: number, payload: "null".into(), labels, ..LeasedJob::default() }
    }

    /// The message as it is made from `proto/`.
    #[derive(Clone, PartialEq, Message)]
    struct Usual {
        #[prost(message, repeated, tag = "1")]
        jobs: Vec<LeasedJob>,
    }

    #[test]
    fn on_the_wire_it_is_the_usual_message() {
        for count in [0, 1, 300] {
            let jobs: Vec<LeasedJob> = (0..count).map(job).collect();
            let batch = JobBatch::new(&jobs);
            let written = JobBatch::written(jobs.len(), 0, |place, buffer| {
                jobs[place].encode(buffer).unwrap();
            });
            assert_eq!(written, batch);
            let usual = Usual { jobs: jobs.clone() };
            assert_eq!(batch.encode_to_vec(), usual.encode_to_vec());
            let read = JobBatch::decode(Bytes::from(usual.encode_to_vec())).unwrap();
            assert_eq!((read.len(), read.is_empty()), (jobs.len(), jobs.is_empty()));
            assert_eq!(read.jobs().unwrap(), jobs);
        }
        assert!(JobBatch { encoded: vec![Bytes::from_static(b"\x0a\xff")] }.jobs().is_err());
    }
}

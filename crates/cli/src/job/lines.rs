//! A file of jobs, cut into batches. Where a batch begins and ends depends on the file alone, so the same file
//! gives the same batches, and a batch can be named by its place and content.

use std::io::{self, BufRead};

use serde::de::IgnoredAny;
use tidewheel_core::limits::PAYLOAD_BYTES_MAX;
use xxhash_rust::xxh3::xxh3_64;

/// Jobs in one batch.
pub(super) const BATCH_COUNT_MAX: usize = 1_000;
/// Bytes in one batch, line breaks included; a single longer line still makes one.
pub(super) const BATCH_BYTES_MAX: usize = 4 * 1_024 * 1_024;
/// One line. The largest payload and all there can be around it stay well below.
pub(super) const LINE_BYTES_MAX: usize = 4 * PAYLOAD_BYTES_MAX;

/// Some jobs of a file, in order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// One job per line.
    pub(super) body: Vec<u8>,
    /// The line in the file of each job.
    pub(super) lines: Vec<u64>,
}

impl Batch {
    /// The name that makes sending the batch twice harmless: its place, its content, and the name of the run.
    /// Short, as the server keeps it with every job; two batches that share one are refused, never mixed up.
    pub(super) fn key(&self, run: &str) -> String {
        let first = self.lines.first().copied().unwrap_or_default();
        format!("file:{run}:{first}:{:016x}", xxh3_64(&self.body))
    }
}

/// Why a file cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineFault {
    /// The system says so.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A line that cannot be a job.
    #[error("line {line}: {detail}")]
    NoJob {
        /// Which.
        line: u64,
        /// Why.
        detail: String,
    },
}

/// Reads a file of jobs batch by batch.
pub(super) struct Batches<R> {
    reader: R,
    line: u64,
    bytes: u64,
    /// Read, but left for the next batch.
    left: Option<Vec<u8>>,
    /// What went wrong after the jobs of the last batch; told once they are sent.
    fault: Option<LineFault>,
}

impl<R: BufRead> Batches<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, line: 0, bytes: 0, left: None, fault: None }
    }

    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next batch; `None` at the end. A line that cannot be a job ends the batch before it, so that all
    /// before it is submitted and it is told next.
    pub(super) fn next_batch(&mut self) -> Result<Option<Batch>, LineFault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let mut batch = Batch::default();
        while batch.lines.len() < BATCH_COUNT_MAX {
            let text = match self.left.take().map_or_else(|| self.next_line(), |text| Ok(Some(text))) {
                Ok(Some(text)) => text,
                Ok(None) => break,
                Err(fault) if batch.lines.is_empty() => return Err(fault),
                Err(fault) => {
                    self.fault = Some(fault);
                    break;
                }
            };
            if !batch.lines.is_empty() && batch.body.len() + text.len() > BATCH_BYTES_MAX {
                self.left = Some(text);
                break;
            }
            batch.lines.push(self.line);
            batch.body.extend_from_slice(&text);
            batch.body.push(b'\n');
        }
        Ok(Some(batch).filter(|batch| !batch.lines.is_empty()))
    }

    /// The next line that is not blank, without the space around it.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, LineFault> {
        loop {
            let mut text = Vec::new();
            let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
            let count = io::Read::take(&mut self.reader, limit).read_until(b'\n', &mut text)?;
            if count == 0 {
                return Ok(None);
            }
            self.line += 1;
            self.bytes = self.bytes.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
            let no_job = |detail: String| LineFault::NoJob { line: self.line, detail };
            if count > LINE_BYTES_MAX {
                return Err(no_job(format!("is longer than {LINE_BYTES_MAX} bytes; no job is")));
            }
            let text =
                text.strip_prefix(b"\xef\xbb\xbf").filter(|_| self.line == 1).unwrap_or(&text).trim_ascii();
            if text.is_empty() {
                continue;
            }
            if text.first() != Some(&b'{') {
                return Err(no_job(
                    "is not a JSON object; write one like {\"type\": \"send-email\"}".to_owned(),
                ));
            }
            if let Err(fault) = serde_json::from_slice::<IgnoredAny>(text) {
                return Err(no_job(format!("is not JSON: column {}: {fault}", fault.column())));
            }
            return Ok(Some(text.to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(text: &[u8]) -> (Vec<Batch>, Option<LineFault>) {
        let mut reader = Batches::new(text);
        let mut all = Vec::new();
        loop {
            match reader.next_batch() {
                Ok(Some(batch)) => all.push(batch),
                Ok(None) => return (all, None),
                Err(fault) => return (all, Some(fault)),
            }
        }
    }

    #[test]
    fn a_file_is_cut_by_count_and_blank_lines_keep_their_numbers() {
        let mut text = String::from("\u{feff}{\"type\":\"a\"}\r\n\n  \n");
        for _ in 0..BATCH_COUNT_MAX {
            text.push_str("{\"type\":\"b\"}\n");
        }
        text.push_str("{\"type\":\"last\"}");
        let (all, fault) = batches(text.as_bytes());
        assert!(fault.is_none());
        assert_eq!(all.iter().map(|batch| batch.lines.len()).collect::<Vec<_>>(), [BATCH_COUNT_MAX, 2]);
        assert_eq!(all[0].lines[..2], [1, 4]);
        assert!(all[0].body.starts_with(b"{\"type\":\"a\"}\n{"));
        assert_eq!(all[1].lines, [1_003, 1_004]);
    }

    #[test]
    fn a_file_is_cut_by_size() {
        let line = format!("{{\"type\":\"a\",\"payload\":\"{}\"}}\n", "x".repeat(60_000));
        let (all, fault) = batches(line.repeat(100).as_bytes());
        assert!(fault.is_none());
        assert!(all.len() > 1 && all.iter().all(|batch| batch.body.len() <= BATCH_BYTES_MAX));
        let lines: Vec<u64> = all.iter().flat_map(|batch| batch.lines.clone()).collect();
        assert_eq!(lines, (1..=100).collect::<Vec<_>>());
    }

    #[test]
    fn what_stands_before_a_bad_line_is_sent_and_the_line_is_named() {
        let (all, fault) = batches(b"{\"type\":\"a\"}\n\n{\"type\":}\n{\"type\":\"b\"}\n");
        assert_eq!(all.len(), 1);
        let text = fault.map(|fault| fault.to_string()).unwrap_or_default();
        assert!(text.starts_with("line 3: is not JSON: column 9"), "{text}");
        let (all, fault) = batches(b"[]\n");
        assert!(
            all.is_empty()
                && fault.is_some_and(|fault| fault.to_string().starts_with("line 1: is not a JSON object"))
        );
        let long = format!("{{\"type\":\"{}\"}}", "x".repeat(LINE_BYTES_MAX));
        assert!(matches!(batches(long.as_bytes()).1, Some(LineFault::NoJob { line: 1, .. })));
    }

    #[test]
    fn a_key_depends_on_place_content_and_run_alone() {
        let batch = |text: &[u8]| batches(text).0.remove(0);
        let key = batch(b"{\"a\":1}\n").key("");
        assert_eq!(batch(b"{\"a\":1}").key(""), key);
        assert_ne!(batch(b"{\"a\":2}").key(""), key);
        assert_ne!(batch(b"\n{\"a\":1}").key(""), key);
        assert_ne!(batch(b"{\"a\":1}").key("again"), key);
        assert!(key.starts_with("file::1:") && key.len() == "file::1:".len() + 16, "{key}");
    }
}

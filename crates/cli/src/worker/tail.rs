//! The end of what a command printed: its result, or why it failed.

use std::collections::VecDeque;

use bytes::Bytes;
use tidewheel_core::limits::{EXCERPT_BYTES_MAX, RESULT_BYTES_MAX};
use tokio::io::{AsyncRead, AsyncReadExt};

const READ_BYTES: usize = 8_192;

/// The last bytes of a stream.
#[derive(Debug, Default)]
pub(super) struct Tail {
    kept: VecDeque<u8>,
    cut: bool,
}

impl Tail {
    /// Reads to the end and keeps the last of it, as much as a result may hold.
    pub(super) async fn read(&mut self, mut from: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; READ_BYTES];
        // A pipe that breaks has said all it will say.
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            self.push(buffer.get(..count).unwrap_or_default());
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.kept.extend(bytes);
        let over = self.kept.len().saturating_sub(RESULT_BYTES_MAX);
        self.kept.drain(..over);
        self.cut |= over > 0;
    }

    /// As text; a first line that was cut is left out.
    fn text(&self) -> String {
        let bytes: Vec<u8> = self.kept.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let whole = match text.split_once('\n') {
            Some((_, rest)) if self.cut => rest,
            Some(_) | None => &text,
        };
        whole.trim().to_owned()
    }

    /// The job's result: the last line if it is JSON, else the last lines as a text, else nothing. What was no text takes
    /// more room than it did once it is one, so the size is looked at after that.
    pub(super) fn result(&self) -> Bytes {
        let text = self.text();
        let last = text.lines().next_back().unwrap_or_default().trim();
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(last).is_ok();
        if is_json && last.len() <= RESULT_BYTES_MAX {
            return Bytes::copy_from_slice(last.as_bytes());
        }
        let mut lines: &str = &text;
        while !lines.is_empty() {
            let json = serde_json::Value::from(lines).to_string();
            if json.len() <= RESULT_BYTES_MAX {
                return json.into();
            }
            // What is escaped takes more room than it did: the first half goes.
            let half = lines.len().div_ceil(2);
            let from = (half..=lines.len()).find(|at| lines.is_char_boundary(*at)).unwrap_or(lines.len());
            lines = lines.get(from..).unwrap_or_default();
        }
        Bytes::new()
    }

    /// Why it failed: the last lines that fit.
    pub(super) fn error(&self) -> String {
        let text = self.text();
        let from = text.len().saturating_sub(EXCERPT_BYTES_MAX / 2);
        let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        text.get(from..).unwrap_or_default().trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(text: &str) -> Tail {
        let mut tail = Tail::default();
        text.as_bytes().chunks(1_000).for_each(|chunk| tail.push(chunk));
        tail
    }

    #[test]
    fn the_last_line_is_the_result_if_it_is_json_else_all_lines_are() {
        assert_eq!(tail("sending\n{\"id\": 7}\n").result(), "{\"id\": 7}");
        assert_eq!(tail("one\ntwo\n").result(), "\"one\\ntwo\"");
        assert_eq!(tail(" \n").result(), "");
    }

    #[test]
    fn json_that_is_too_large_once_it_is_a_text_is_cut_like_any_text() {
        let mut tail = Tail::default();
        // Each of these bytes is replaced by three.
        tail.push(b"\"");
        tail.push(&[0xff; RESULT_BYTES_MAX / 2]);
        tail.push(b"\"");
        let result = tail.result();
        assert!(result.len() <= RESULT_BYTES_MAX, "{} bytes", result.len());
        let text: String = serde_json::from_slice(&result).unwrap();
        assert!(text.starts_with('\u{fffd}') && text.ends_with("\u{fffd}\""), "{text}");
    }

    #[test]
    fn a_flood_is_cut_to_its_last_lines() {
        let flood: String = (0..100_000).map(|n| format!("line \"{n}\"\n")).collect();
        let result = tail(&flood).result();
        assert!(result.len() <= RESULT_BYTES_MAX);
        let text: String = serde_json::from_slice(&result).unwrap();
        assert!(text.ends_with("line \"99999\""), "{text}");
        let error = tail(&flood).error();
        assert!(error.len() <= EXCERPT_BYTES_MAX && error.ends_with("line \"99999\""));
        assert!(tail(&"\u{1}é".repeat(5_000)).result().len() <= RESULT_BYTES_MAX);
    }
}

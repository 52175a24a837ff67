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

    /// As text, and whether it begins in the middle of a line. A first line that was cut is left out, unless there is no other: of
    /// a single line that is too long its end is kept.
    fn text(&self) -> (String, bool) {
        let bytes: Vec<u8> = self.kept.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        match text.split_once('\n') {
            Some((_, rest)) if self.cut && !rest.trim().is_empty() => (rest.trim().to_owned(), false),
            Some(_) | None => (text.trim().to_owned(), self.cut),
        }
    }

    /// The job's result: the last line if it is JSON, else the last lines as a text, else nothing. What was no text takes
    /// more room than it did once it is one, so the size is looked at after that.
    pub(super) fn result(&self) -> Bytes {
        let (text, is_cut) = self.text();
        let last = text.lines().next_back().unwrap_or_default().trim();
        // The end of a line may be JSON that the line was not: of a long number, a shorter one.
        let is_whole = !is_cut || last.len() < text.len();
        let is_json = is_whole && serde_json::from_str::<serde::de::IgnoredAny>(last).is_ok();
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
        let (text, _) = self.text();
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
    fn of_a_single_line_that_is_too_long_the_end_is_kept() {
        let line = format!("{{\"level\": \"error\", \"why\": \"{}no disk\"}}", "x".repeat(RESULT_BYTES_MAX));
        for ended in ["", "\n", "\n\n"] {
            let error = tail(&format!("{line}{ended}")).error();
            assert!(error.len() <= EXCERPT_BYTES_MAX && error.ends_with("xno disk\"}"), "{error:?}");
            let result = tail(&format!("{line}{ended}")).result();
            let text: String = serde_json::from_slice(&result).unwrap();
            assert!(result.len() <= RESULT_BYTES_MAX && text.ends_with("xno disk\"}"), "{text:?}");
            // What is left of a number is another number: it stays a text.
            let digits: String =
                serde_json::from_slice(&tail(&format!("{}{ended}", "7".repeat(9_000))).result()).unwrap();
            assert!(digits.ends_with("777"), "{digits:?}");
        }
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

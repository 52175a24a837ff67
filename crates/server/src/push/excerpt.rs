//! The part of an answer that is kept for humans: bounded in bytes however much is sent, and safe to print.

use std::fmt::Write as _;

use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

/// Collects the beginning of a text of unknown length and encoding.
#[derive(Debug)]
pub(super) struct Excerpt {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Excerpt {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max }
    }

    /// Keeps what still fits.
    pub(super) fn push(&mut self, chunk: &[u8]) {
        let room = self.bytes_max.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(chunk.get(..room).unwrap_or(chunk));
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= self.bytes_max
    }

    /// Reads a body to its end, so that its connection can be used again, or until `read_bytes_max` have gone by. A body
    /// that says it is longer than that is left as soon as the excerpt is full: its connection is lost either way.
    /// A body that breaks off is not a fault: what came is kept.
    pub(super) async fn fill(&mut self, mut body: Incoming, read_bytes_max: usize) {
        let mut room = read_bytes_max;
        let hopeless = body.size_hint().lower() > u64::try_from(read_bytes_max).unwrap_or(u64::MAX);
        while room > 0 && !body.is_end_stream() && !(hopeless && self.is_full()) {
            let Some(Ok(frame)) = body.frame().await else { return };
            let Some(chunk) = frame.data_ref() else { continue };
            self.push(chunk);
            room = room.saturating_sub(chunk.len());
        }
    }

    /// The text: invalid UTF-8 and control characters (terminal escapes among them) are replaced, lines and tabs stay.
    pub(super) fn into_text(self) -> String {
        if self.bytes.is_empty() {
            return String::new();
        }
        let mut text = match String::from_utf8(self.bytes) {
            Ok(text) => text,
            Err(fault) => {
                // The last character may have been cut in two by the bound, which is no fault of the sender.
                let whole = match fault.utf8_error().error_len() {
                    None => fault.as_bytes().get(..fault.utf8_error().valid_up_to()).unwrap_or_default(),
                    Some(_) => fault.as_bytes(),
                };
                String::from_utf8_lossy(whole).into_owned()
            }
        };
        let unprintable = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        if text.contains(unprintable) {
            text = text.replace("\r\n", "\n").replace(unprintable, "\u{fffd}");
        }
        // A replacement is longer than what it replaces.
        while text.len() > self.bytes_max {
            text.pop();
        }
        text
    }
}

/// An error and its causes in one line, each said once.
pub(super) fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            // Writing to a String cannot fail.
            write!(text, ": {said}").ok();
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes_max: usize, chunks: &[&[u8]]) -> String {
        let mut excerpt = Excerpt::new(bytes_max);
        for chunk in chunks {
            excerpt.push(chunk);
        }
        excerpt.into_text()
    }

    #[test]
    fn keeps_the_beginning_and_never_more_than_the_bound() {
        assert_eq!(text(8, &[]), "");
        assert_eq!(text(8, &[b"abc", b"def"]), "abcdef");
        assert_eq!(text(4, &[b"abc", b"def"]), "abcd");
        assert_eq!(text(0, &[b"abc"]), "");
    }

    #[test]
    fn a_character_cut_by_the_bound_is_left_out() {
        assert_eq!(text(4, &["aü€".as_bytes()]), "aü");
        assert_eq!(text(3, &["aü€".as_bytes()]), "aü");
        assert_eq!(text(2, &["aü€".as_bytes()]), "a");
    }

    #[test]
    fn garbage_stays_within_the_bound_although_its_replacement_is_longer() {
        let shown = text(10, &[&[0xff; 64]]);
        assert_eq!(shown, "\u{fffd}\u{fffd}\u{fffd}");
        assert!(text(100, &[&[0; 100]]).len() <= 100);
    }

    #[test]
    fn nothing_that_could_drive_a_terminal_remains() {
        assert_eq!(text(64, &[b"a\x1b[2Jb\x00\x7f\r\nc\td"]), "a\u{fffd}[2Jb\u{fffd}\u{fffd}\nc\td");
    }
}

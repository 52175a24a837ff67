//! Why a call has no answer, and what the server said when it refused.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

use super::Answer;

/// Text of an unexpected answer that is shown.
const EXCERPT_CHARS_MAX: usize = 200;

/// Why a call did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The client was set up with something unusable; nothing was sent.
    #[error("{0}")]
    Setup(String),
    /// No connection could be made; nothing was sent.
    #[error("no connection to {url}: {cause}")]
    Unreachable {
        /// The server.
        url: String,
        /// What the system said.
        cause: String,
    },
    /// The connection broke before the whole answer came; what was asked may have been done.
    #[error("the connection to {url} broke before the answer came: {cause}")]
    Broken {
        /// The server.
        url: String,
        /// What the system said.
        cause: String,
    },
    /// No answer in time; what was asked may have been done.
    #[error("no answer from {url} within {} s", after.as_secs())]
    TimedOut {
        /// The server.
        url: String,
        /// How long was waited.
        after: Duration,
    },
    /// The server refused, and said why.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The answer is not one of this API.
    #[error("unexpected answer {status}: {why}")]
    Unexpected {
        /// Its status.
        status: StatusCode,
        /// What is wrong with it, or how it begins.
        why: String,
    },
}

impl Error {
    /// Whether the same call may do better later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } | Self::TimedOut { .. } => true,
            Self::Refused(problem) => matches!(problem.status, 429 | 503),
            Self::Unexpected { status, .. } => matches!(status.as_u16(), 429 | 503),
            Self::Setup(_) => false,
        }
    }

    /// Whether the server may have done what was asked all the same.
    #[must_use]
    pub fn leaves_doubt(&self) -> bool {
        matches!(self, Self::Broken { .. } | Self::TimedOut { .. })
    }

    /// The problem the server answered with.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        if let Self::Refused(problem) = self { Some(problem) } else { None }
    }

    pub(super) fn unexpected(status: StatusCode, body: &[u8], fault: Option<String>) -> Self {
        let text = String::from_utf8_lossy(body);
        let excerpt: String = text.trim().chars().take(EXCERPT_CHARS_MAX).collect();
        let why = match fault {
            Some(fault) => format!("{fault} in {excerpt:?}"),
            None if excerpt.is_empty() => "it has no body; is this a Tidewheel server?".to_owned(),
            None => format!("{excerpt:?}; is this a Tidewheel server?"),
        };
        Self::Unexpected { status, why }
    }

    /// An answer that is not 2xx: a problem document, or something between here and the server.
    pub(super) fn from_refusal(answer: &Answer) -> Self {
        match serde_json::from_slice::<Problem>(&answer.body) {
            Ok(problem) if !problem.title.is_empty() => {
                Self::Refused(Box::new(Problem { status: answer.status.as_u16(), ..problem }))
            }
            Ok(_) | Err(_) => Self::unexpected(answer.status, &answer.body, None),
        }
    }
}

/// What the server said when it refused (RFC 9457).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// A page about it.
    pub r#type: Option<String>,
    /// In a few words.
    pub title: String,
    /// The status it came with.
    pub status: u16,
    /// This time in particular.
    pub detail: Option<String>,
    /// A stable name, for programs.
    pub code: Option<String>,
    /// Each fault, where there are several.
    pub errors: Vec<Fault>,
}

/// One fault of several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Fault {
    /// Where, as a JSON pointer into what was sent.
    pub pointer: String,
    /// What is wrong there.
    pub detail: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        for fault in &self.errors {
            write!(f, "; {}: {}", fault.pointer, fault.detail)?;
        }
        Ok(())
    }
}

/// The innermost reason: the outer ones only say "client error".
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

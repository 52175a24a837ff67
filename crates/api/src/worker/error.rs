//! Why a worker ended before it was asked to.

use tonic::{Code, Status};

/// The trailer that carries the stable code of a refusal.
const CODE_TRAILER: &str = "tidewheel-code";

/// Why a worker does not work.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// It was set up with something unusable; nothing was sent.
    #[error("{0}")]
    Setup(String),
    /// No connection could be made.
    #[error("no connection to {url}: {cause}")]
    Unreachable {
        /// The server.
        url: String,
        /// What the system said.
        cause: String,
    },
    /// The connection broke, or the server ended it; trying again may help.
    #[error("the stream ended: {0}")]
    Lost(String),
    /// The server refused, and trying again does not help.
    #[error("{detail} ({code})")]
    Refused {
        /// The stable code.
        code: String,
        /// The same in words.
        detail: String,
    },
    /// The worker ended with outcomes that no server took. Their jobs run again once their leases are over.
    #[error("{0} outcomes could not be reported; their jobs will run again")]
    Unreported(usize),
}

impl Error {
    /// Whether connecting again may help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost(_) => true,
            Self::Setup(_) | Self::Refused { .. } | Self::Unreported(_) => false,
        }
    }

    pub(super) fn from_status(status: &Status) -> Self {
        let final_codes = [
            Code::InvalidArgument,
            Code::Unauthenticated,
            Code::PermissionDenied,
            Code::NotFound,
            Code::Unimplemented,
            Code::FailedPrecondition,
        ];
        if !final_codes.contains(&status.code()) {
            return Self::Lost(status.message().to_owned());
        }
        let code = status.metadata().get(CODE_TRAILER).and_then(|code| code.to_str().ok());
        let code = code.map_or_else(|| format!("{:?}", status.code()), str::to_owned);
        Self::Refused { code, detail: status.message().to_owned() }
    }
}

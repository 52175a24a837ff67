//! Every error, in one envelope: RFC 9457, `application/problem+json`.

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use tidewheel_api::wire::fault::{At, Code, Fault, Faults};
use tidewheel_api::wire::split::SplitFault;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Rejection;
use tidewheel_store::{Error, Refusal};

use super::call_key::conflict;

/// What a caller without a key is asked for.
const CHALLENGE: &str = "Bearer realm=\"tidewheel\"";
/// When to come back after a fault that passes by itself.
const RETRY_SOON_S: u32 = 1;
/// When to come back after a fault that somebody must mend.
const RETRY_LATER_S: u32 = 15;

/// An answer that is an error.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: Code,
    detail: String,
    errors: Vec<Fault>,
    /// When to come back, if it is known better than by the status.
    retry_after_s: Option<u32>,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, code, detail: detail.into(), errors: Vec::new(), retry_after_s: None }
    }

    /// Says when to come back.
    pub(crate) const fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    pub(crate) const fn code(&self) -> Code {
        self.code
    }

    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The problem document.
    pub(crate) fn document(&self) -> Vec<u8> {
        let mut out = JsonWriter::with_capacity(256);
        self.write(&mut out);
        out.into_bytes()
    }

    /// What is wrong with a request. Several kinds of faults together have one code; the worst decides the status.
    pub(super) fn from_faults(faults: Faults) -> Self {
        let count = faults.count();
        let errors = faults.into_list();
        let Some(first) = errors.first() else {
            return Self::new(Code::Internal, "a request was refused without a reason");
        };
        let alike = errors.iter().all(|fault| fault.code == first.code);
        let code = if alike { first.code } else { Code::InvalidRequest };
        let detail = match count {
            1 => first.detail.clone(),
            _ => format!("{count} things are wrong; the first: {}", first.detail),
        };
        let mut problem = Self::new(code, detail);
        for status in [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE] {
            if errors.iter().any(|fault| fault.code.status() == status.as_u16()) {
                problem.status = status;
            }
        }
        problem.errors = errors;
        problem
    }

    pub(super) fn with_errors(mut self, errors: Vec<Fault>) -> Self {
        self.errors = errors;
        self
    }

    /// The problem as one fault among others.
    pub(super) fn into_fault(self) -> Fault {
        let pointer = self.errors.into_iter().next().map(|fault| fault.pointer).unwrap_or_default();
        Fault { code: self.code, pointer, detail: self.detail }
    }

    /// Says that the faults lie under this pointer.
    pub(super) fn under(mut self, pointer: &str) -> Self {
        for fault in &mut self.errors {
            fault.pointer.insert_str(0, pointer);
        }
        self
    }

    /// Keeps only the first few faults: there may be thousands of problems in one answer.
    pub(super) fn shortened(mut self, faults_max: usize) -> Self {
        self.errors.truncate(faults_max);
        self
    }

    pub(crate) fn retry_after_s(&self) -> Option<u32> {
        if self.retry_after_s.is_some() {
            return self.retry_after_s;
        }
        let passes = [Code::StoreUnavailable, Code::Draining, Code::Overloaded].contains(&self.code);
        let seconds = if passes { RETRY_SOON_S } else { RETRY_LATER_S };
        (self.status == StatusCode::SERVICE_UNAVAILABLE).then_some(seconds)
    }

    /// Writes it where it is one of many.
    pub(super) fn write(&self, out: &mut JsonWriter) {
        out.object(|out| {
            out.key("type").text(&format!("/docs/errors#{}", self.code.as_str()));
            out.key("title").text(self.code.title());
            out.key("status").number(self.status.as_u16());
            out.key("detail").text(&self.detail);
            out.key("code").text(self.code.as_str());
            if !self.errors.is_empty() {
                out.key("errors").array(|out| {
                    for fault in &self.errors {
                        out.object(|out| {
                            out.key("pointer").text(&fault.pointer);
                            out.key("code").text(fault.code.as_str());
                            out.key("detail").text(&fault.detail);
                        });
                    }
                });
            }
        });
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(self.document().into());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after_s() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
        }
        response
    }
}

/// Nothing wrong is `Ok`.
pub(super) fn refuse_faults(faults: Faults) -> Result<(), Problem> {
    if faults.is_empty() { Ok(()) } else { Err(Problem::from_faults(faults)) }
}

/// A job that is stored and cannot be read. Why is for the log alone.
pub(crate) fn unreadable_job(id: JobId, error: &Error) -> Problem {
    tracing::error!(job_id = %id, %error, "a job cannot be read");
    Problem::new(Code::Internal, format!("{id} is stored, but cannot be read; the server's log says why"))
}

/// What went wrong is for the log alone.
fn failed() -> Problem {
    Problem::new(Code::Internal, "the server failed; its log says more")
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Unavailable(_) | Error::Fenced => Code::StoreUnavailable,
            Error::Full(_) => Code::StoreFull,
            Error::Poisoned(_) => Code::StoreReadOnly,
            Error::Closed => Code::Draining,
            Error::Corrupt(_) => {
                tracing::error!(%error, "the store holds something unreadable");
                return failed();
            }
        };
        Self::new(code, error.to_string())
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::KeyConflict(used_for) => return conflict(used_for),
            Refusal::NotFound | Refusal::Gone => Code::JobNotFound,
            Refusal::Away => Code::StoreUnavailable,
            // The store has said why.
            Refusal::Unreadable => return failed(),
            Refusal::Rejected(Rejection::StaleToken) => Code::StaleToken,
            Refusal::Rejected(Rejection::Running) => Code::JobRunning,
            Refusal::Rejected(Rejection::Finished(_)) => Code::JobFinished,
            Refusal::Rejected(Rejection::NotFinished(_)) => Code::JobNotFinished,
            Refusal::Rejected(Rejection::NotDead(_)) => Code::NotADeadLetter,
            Refusal::Rejected(Rejection::TooManyAttempts) => Code::TooManyAttempts,
            Refusal::Rejected(Rejection::ExpiresBefore(_)) => Code::InvalidValue,
            Refusal::Rejected(Rejection::NotDue | Rejection::LeaseHolds) | Refusal::Fenced => {
                Code::JobConflict
            }
        };
        Self::new(code, refusal.to_string())
    }
}

impl From<SplitFault> for Problem {
    fn from(fault: SplitFault) -> Self {
        let (code, field) = match &fault {
            SplitFault::TooManyItems(_) => (Code::BatchTooLarge, None),
            SplitFault::ItemTooLarge { .. } => (Code::BodyTooLarge, None),
            SplitFault::Structure { .. } | SplitFault::Unfinished | SplitFault::Empty => {
                (Code::MalformedJson, None)
            }
            SplitFault::UnknownField { name, .. } => (Code::UnknownField, Some(name.as_str())),
            SplitFault::NoArray { wrapper } => (Code::WrongType, Some(wrapper.trim_matches('"'))),
            SplitFault::NoField { wrapper } => (Code::MissingField, Some(wrapper.trim_matches('"'))),
        };
        let Some(field) = field else { return Self::new(code, fault.to_string()) };
        let mut faults = Faults::default();
        faults.add(code, &At::ROOT.field(field), fault.to_string());
        Self::from_faults(faults)
    }
}

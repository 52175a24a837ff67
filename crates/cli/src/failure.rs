//! What went wrong, in words and as an exit code: 1 refused, 2 wrong usage, 3 server or database unreachable.

use std::io;
use std::process::ExitCode;

use tidewheel_api::client::{Error, Problem};

use crate::out::Out;

const EXIT_REFUSED: u8 = 1;
const EXIT_USAGE: u8 = 2;
const EXIT_UNREACHABLE: u8 = 3;

/// Why a verb did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// The server refused, or was not there.
    Call(Error),
    /// It cannot be done, for this reason.
    Refused(String),
    /// A server or database that was named gives no answer, for this reason.
    Unreachable(String),
    /// The command line or the configuration is wrong.
    Usage(String),
    /// The server could not start, or stopped for a fault.
    Server(anyhow::Error),
    /// Nobody reads the output any more, or it cannot be written.
    Output(io::Error),
    /// Everything there is to say was said.
    Said,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Failure {
    /// Says what went wrong on stderr; gives the exit code.
    pub fn report(&self, out: &Out) -> ExitCode {
        if let Some(text) = self.text() {
            out.error(&text);
        }
        ExitCode::from(self.code())
    }

    fn code(&self) -> u8 {
        match self {
            Self::Call(Error::Setup(_)) | Self::Usage(_) => EXIT_USAGE,
            Self::Call(Error::Unreachable { .. } | Error::Broken { .. } | Error::TimedOut { .. })
            | Self::Unreachable(_) => EXIT_UNREACHABLE,
            // `tidewheel job list | head` is no failure.
            Self::Output(fault) if fault.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Call(Error::Refused(_) | Error::Unexpected { .. })
            | Self::Refused(_)
            | Self::Server(_)
            | Self::Output(_)
            | Self::Said => EXIT_REFUSED,
        }
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Call(error) => Some(call_text(error)),
            Self::Refused(text) | Self::Unreachable(text) | Self::Usage(text) => Some(text.clone()),
            Self::Server(error) => Some(format!("{error:#}")),
            Self::Output(fault) if fault.kind() == io::ErrorKind::BrokenPipe => None,
            Self::Output(fault) => Some(format!("the output cannot be written: {fault}")),
            Self::Said => None,
        }
    }
}

fn call_text(error: &Error) -> String {
    match error {
        Error::Refused(problem) => problem_text(problem),
        Error::Unreachable { .. } => {
            format!(
                "{error}\nIs the server running? Start it with `tidewheel serve`, or name another with --url."
            )
        }
        Error::Broken { .. } | Error::TimedOut { .. } => format!(
            "{error}\nWhat was asked may have been done all the same: look before asking again. \
             With an idempotency key, asking again is safe."
        ),
        Error::Setup(_) | Error::Unexpected { .. } => error.to_string(),
    }
}

/// Title and code, then the detail, then each fault with its place, then what helps.
fn problem_text(problem: &Problem) -> String {
    let mut text = problem.title.clone();
    if let Some(code) = &problem.code {
        text.push_str(&format!(" ({code})"));
    }
    if let Some(detail) =
        problem.detail.as_ref().filter(|detail| !detail.eq_ignore_ascii_case(&problem.title))
    {
        text.push_str(&format!("\n{detail}"));
    }
    for fault in &problem.errors {
        let place = if fault.pointer.is_empty() { "the whole" } else { &fault.pointer };
        text.push_str(&format!("\n  {place}: {}", fault.detail));
    }
    if problem.status == 401 {
        text.push_str("\nPut a key into TIDEWHEEL_KEY, or name a file that holds one with --key-file.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewheel_api::client::Fault;

    fn refused() -> Error {
        let fault =
            |pointer: &str, detail: &str| Fault { pointer: pointer.to_owned(), detail: detail.to_owned() };
        Error::Refused(Box::new(Problem {
            title: "The job is not valid".to_owned(),
            status: 422,
            detail: Some("2 fields are wrong".to_owned()),
            code: Some("invalid_job".to_owned()),
            errors: vec![fault("/type", "must not be empty"), fault("/delay", "is no duration")],
            ..Problem::default()
        }))
    }

    #[test]
    fn a_problem_shows_title_detail_and_every_place() {
        let text = Failure::Call(refused()).text();
        assert_eq!(
            text.as_deref(),
            Some(
                "The job is not valid (invalid_job)\n2 fields are wrong\n  /type: must not be empty\n  /delay: is no duration"
            )
        );
    }

    #[test]
    fn codes_tell_refused_from_wrong_from_unreachable() {
        let (url, cause) = (String::new(), String::new());
        assert_eq!(Failure::Call(refused()).code(), 1);
        assert_eq!(Failure::Call(Error::Setup(String::new())).code(), 2);
        assert_eq!(Failure::Call(Error::Unreachable { url, cause }).code(), 3);
        assert_eq!(Failure::Unreachable(String::new()).code(), 3);
        assert_eq!(Failure::Output(io::ErrorKind::BrokenPipe.into()).code(), 0);
        assert_eq!(Failure::Output(io::ErrorKind::StorageFull.into()).code(), 1);
    }
}

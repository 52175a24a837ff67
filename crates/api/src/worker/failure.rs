//! How a handler says that a job is not done, and what is to become of it.

use std::fmt;
use std::time::Duration;

/// A job that is not done. Any error becomes one by `?`, and means: try again as the job's retry policy says.
///
/// Not an [`std::error::Error`] itself, as otherwise `?` could not take every error there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It failed; the job's retry policy says when it is tried again.
    Retry(String),
    /// It failed, and is not to be tried again before this has passed, whatever the policy says. Seven days are the longest;
    /// what is longer counts as that.
    RetryAfter(String, Duration),
    /// It failed, and another attempt cannot help: the job is dead at once.
    Final(String),
    /// It is not its time yet: run again after this long, at no cost. Seven days are the longest here, too.
    Snooze(Duration),
    /// It is no longer wanted: the job ends as cancelled.
    Cancelled(String),
}

impl Failure {
    /// It failed; try again as the policy says.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self::Retry(error.to_string())
    }

    /// It failed; try again, but not before this has passed.
    pub fn retry_after(error: impl fmt::Display, after: Duration) -> Self {
        Self::RetryAfter(error.to_string(), after)
    }

    /// It failed for good.
    pub fn permanent(error: impl fmt::Display) -> Self {
        Self::Final(error.to_string())
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Retry(with_causes(&error))
    }
}

/// Says of an error what is to become of the job, where it is not a plain retry.
///
/// ```
/// use std::time::Duration;
/// use tidewheel_api::worker::{Classify, Failure};
///
/// fn recipient(address: &str) -> Result<&str, Failure> {
///     // An address without an @ does not get one by waiting.
///     let (_, host) = address.split_once('@').ok_or("no @ in the address").or_final()?;
///     Ok(host)
/// }
///
/// assert_eq!(recipient("a@example.com").unwrap(), "example.com");
/// assert_eq!(recipient("a").unwrap_err(), Failure::Final("no @ in the address".to_owned()));
/// let busy: Result<(), _> = Err("the relay is full").or_retry_after(Duration::from_secs(60));
/// assert!(matches!(busy.unwrap_err(), Failure::RetryAfter(_, _)));
/// ```
pub trait Classify<T> {
    /// Another attempt cannot help.
    ///
    /// # Errors
    /// [`Failure::Final`] in place of the error.
    fn or_final(self) -> Result<T, Failure>;

    /// Not before this has passed.
    ///
    /// # Errors
    /// [`Failure::RetryAfter`] in place of the error.
    fn or_retry_after(self, after: Duration) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Classify<T> for Result<T, E> {
    fn or_final(self) -> Result<T, Failure> {
        self.map_err(Failure::permanent)
    }

    fn or_retry_after(self, after: Duration) -> Result<T, Failure> {
        self.map_err(|error| Failure::retry_after(error, after))
    }
}

/// The error and what caused it, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_is_tried_again_with_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("the mail was not sent")]
        struct Outer(#[source] std::io::Error);
        let fails = || -> Result<(), Failure> { Err(Outer(std::io::ErrorKind::TimedOut.into()))? };
        assert_eq!(fails(), Err(Failure::Retry("the mail was not sent: timed out".to_owned())));
    }
}

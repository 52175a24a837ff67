//! What a request did not say, so that what is registered for its type may say it.

/// What a request left out. Where it says something, that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Neither a queue nor a target.
    pub destination: bool,
    /// No priority.
    pub priority: bool,
    /// No `retry`; `max_attempts` alone may be there.
    pub retry: bool,
    /// No number of attempts, neither by itself nor in `retry`.
    pub max_attempts: bool,
    /// No timeout, neither by itself nor in the target.
    pub timeout: bool,
}

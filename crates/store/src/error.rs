//! Why a store could not do what it was asked.

/// A failure of the store as a whole; refusals of single jobs are answers, not errors.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The store does not answer now; the same call may work later. Nothing is known to have been written,
    /// and repeating the call with the same ids is safe.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// A sync failed. What is in memory may not be what is on disk, so nothing is accepted until a restart
    /// has read the disk again.
    #[error("the store refuses writes since a sync failed ({0}); restart the server once the disk is well")]
    Poisoned(String),
    /// There is no room.
    #[error("the store is full ({0}); free some disk space")]
    Full(String),
    /// The caller no longer owns the shard it wrote to.
    #[error("another node has taken over this shard")]
    Fenced,
    /// What is stored does not make sense.
    #[error("the store holds something unreadable: {0}")]
    Corrupt(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl Error {
    /// Whether the same call may work later without anybody's help.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Full(_))
    }
}

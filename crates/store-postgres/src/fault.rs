//! What goes wrong with a database, and what that means to a caller: try again at once ([`Trouble::Raced`]), or one of
//! the contract's errors.

use deadpool_postgres::PoolError;
use tidewheel_store::Error;
use tokio_postgres::error::SqlState;

use crate::record::Unreadable;

/// Why a transaction came to nothing.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Another transaction was faster; what was read is no longer so. Nothing is written: read and decide again.
    Raced,
    /// As the contract says.
    Failed(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Unreadable> for Trouble {
    fn from(unreadable: Unreadable) -> Self {
        Self::Failed(unreadable.into())
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        let raced = [
            SqlState::UNIQUE_VIOLATION,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
        ];
        // A partition came into being between the planning of an insert and its execution. Our own checks have names.
        let is_misplaced = |code: &SqlState| {
            let unnamed = error.as_db_error().is_some_and(|said| said.constraint().is_none());
            *code == SqlState::CHECK_VIOLATION && unnamed
        };
        match error.code() {
            Some(code) if raced.contains(code) || is_misplaced(code) => Self::Raced,
            Some(_) | None => Self::Failed(store_error(&error)),
        }
    }
}

impl From<PoolError> for Trouble {
    fn from(error: PoolError) -> Self {
        Self::Failed(pool_error(error))
    }
}

/// What a failed statement is to a caller. Whether it took effect is unknown; repeating it is safe.
pub(crate) fn store_error(error: &tokio_postgres::Error) -> Error {
    let Some(code) = error.code() else {
        return Error::Unavailable(format!("the database does not answer ({})", reason(error)));
    };
    if [SqlState::DISK_FULL, SqlState::INSUFFICIENT_RESOURCES].contains(code) {
        return Error::Full(reason(error));
    }
    let text = match *code {
        SqlState::READ_ONLY_SQL_TRANSACTION => "the database is read-only".to_owned(),
        SqlState::QUERY_CANCELED => "the database took too long".to_owned(),
        SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN => {
            format!("the database lacks something ({}); run `tidewheel migrate`", reason(error))
        }
        _ => reason(error),
    };
    Error::Unavailable(text)
}

pub(crate) fn pool_error(error: PoolError) -> Error {
    match error {
        PoolError::Backend(error) => store_error(&error),
        PoolError::Timeout(_) => Error::Unavailable("all connections to the database are busy".to_owned()),
        PoolError::Closed => Error::Closed,
        PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            Error::Unavailable("no connection to the database can be made".to_owned())
        }
    }
}

/// What the database said, or why it said nothing.
pub(crate) fn reason(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{} ({})", said.message(), said.code().code());
    }
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

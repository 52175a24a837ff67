//! What goes wrong with a database, and what that means to a caller: try again at once ([`Trouble::Raced`]), or one of
//! the contract's errors; and whether others are concerned, too.

use deadpool_postgres::PoolError;
use tidewheel_store::Error;
use tokio_postgres::error::SqlState;

use crate::record::Unreadable;

/// Why a transaction came to nothing.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Another transaction was faster; what was read is no longer so. Nothing is written: read and decide again.
    Raced,
    /// As the contract says. The database is in trouble, and so is whoever else asks it.
    Failed(Error),
    /// The same, but only of what was asked: others may well be answered.
    Own(Error),
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
        let is_own = error.code().map_or_else(|| !is_cut_off(&error), is_own);
        match error.code() {
            Some(code) if raced.contains(code) || is_misplaced(code) => Self::Raced,
            Some(_) | None if is_own => Self::Own(store_error(&error)),
            Some(_) | None => Self::Failed(store_error(&error)),
        }
    }
}

/// What the database says when nobody can use it, or write to it: by the class of what went wrong, which is the first two
/// characters. No connection, no access, no such database, no room, shut down, a disk that fails, a broken configuration.
const CLASSES_OF_ALL: [&str; 7] = ["08", "28", "3D", "53", "57", "58", "F0"];
/// The same, of classes that otherwise are about one statement.
const CODES_OF_ALL: [SqlState; 4] = [
    SqlState::READ_ONLY_SQL_TRANSACTION,
    SqlState::INSUFFICIENT_PRIVILEGE,
    SqlState::UNDEFINED_TABLE,
    SqlState::UNDEFINED_COLUMN,
];

/// Whether only the statement that failed is concerned. One that took too long is: the database did answer.
fn is_own(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    let is_of_all = CLASSES_OF_ALL.contains(&class) || CODES_OF_ALL.contains(code);
    *code == SqlState::QUERY_CANCELED || !is_of_all
}

/// Whether nothing was said because the connection is gone; otherwise it was said, and could not be read.
pub(crate) fn is_cut_off(error: &tokio_postgres::Error) -> bool {
    let cause = std::error::Error::source(error);
    error.is_closed() || cause.is_some_and(|cause| cause.is::<std::io::Error>())
}

impl From<PoolError> for Trouble {
    fn from(error: PoolError) -> Self {
        Self::Failed(pool_error(error))
    }
}

/// What a failed statement is to a caller. Whether it took effect is unknown; repeating it is safe.
pub(crate) fn store_error(error: &tokio_postgres::Error) -> Error {
    let Some(code) = error.code() else {
        let text = reason(error);
        let is_silent = is_cut_off(error);
        return Error::Unavailable(if is_silent {
            format!("the database does not answer ({text})")
        } else {
            text
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_concerns_one_statement_is_told_from_what_concerns_all() {
        for code in [
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            SqlState::CHECK_VIOLATION,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::QUERY_CANCELED,
            SqlState::DATA_CORRUPTED,
        ] {
            assert!(is_own(&code), "{code:?}");
        }
        for code in [
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::DISK_FULL,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::IO_ERROR,
            SqlState::UNDEFINED_TABLE,
            SqlState::INVALID_CATALOG_NAME,
        ] {
            assert!(!is_own(&code), "{code:?}");
        }
    }
}

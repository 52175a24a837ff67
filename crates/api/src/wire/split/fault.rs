//! How much of a body is taken, and why one cannot be split.

/// How much is taken.
#[derive(Debug, Clone, Copy)]
pub struct SplitLimits {
    /// Items in one body.
    pub items_count_max: usize,
    /// Bytes of one item.
    pub item_bytes_max: usize,
}

/// Why a body cannot be split.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SplitFault {
    /// More items than are taken.
    #[error("there are more than {0} items; send them in parts")]
    TooManyItems(usize),
    /// An item longer than any can be.
    #[error("item {index} has more than {max} bytes")]
    ItemTooLarge {
        /// Which, from 0.
        index: usize,
        /// What it may have.
        max: usize,
    },
    /// Not the structure it must have.
    #[error("{what} after item {index} (counted from 0)")]
    Structure {
        /// What was found.
        what: &'static str,
        /// Items before it.
        index: usize,
    },
    /// A field beside the array, or an array of another name.
    #[error("there is no field {name:?}; the array of items is the field {wrapper}")]
    UnknownField {
        /// Which, not too much of it.
        name: String,
        /// The one that is known, with its quotes.
        wrapper: &'static str,
    },
    /// Something else where the array of items must be.
    #[error("the field {wrapper} must be an array")]
    NoArray {
        /// The field, with its quotes.
        wrapper: &'static str,
    },
    /// An object without fields.
    #[error("the field {wrapper} is missing: it holds the items, as an array")]
    NoField {
        /// The field, with its quotes.
        wrapper: &'static str,
    },
    /// Over before its end.
    #[error("the body ends in the middle of the array")]
    Unfinished,
    /// Nothing but white space.
    #[error("the body is empty; a JSON array or one item per line is expected")]
    Empty,
}

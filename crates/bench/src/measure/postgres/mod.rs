//! What is measured on PostgreSQL alone, or otherwise than on a store of our own: databases outlive servers, are shared by
//! several, and hold other people's transactions.
//!
//! What is compared is measured in rounds, one side after the other, because the machine is never as fast as a minute ago;
//! figures are medians, and so are their ratios, which are those of each round.

mod nodes;
mod old_transaction;
mod rounds;
mod site;
mod waiting;
mod workers;

pub(super) use self::nodes::measure as nodes;
pub(super) use self::old_transaction::measure as old_transaction;
pub(super) use self::waiting::measure as waiting;
pub(super) use self::workers::measure as workers;

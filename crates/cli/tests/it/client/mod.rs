//! The client verbs, against a stub.

mod bench;
mod help;
mod schedule;
mod stub;
mod terminal;
mod verbs;

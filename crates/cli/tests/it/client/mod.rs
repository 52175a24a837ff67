//! The client verbs, against a stub.

mod help;
mod schedule;
mod stub;
mod terminal;
mod verbs;

//! What a store is tested with: the suite that every one must pass ([`conformance`]), and a model in memory that shows what it
//! must do ([`memory`]). Nothing of it is in a server.

pub mod conformance;
pub mod memory;

//! What goes over the wire between Tidewheel and those who use it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`wire`] | reading requests with all their faults, writing answers |
//! | [`client`] | a client of the HTTP API |
//! | [`proto`] | the messages and services of the gRPC API |
//! | [`worker`] | taking jobs and running handlers |
//! | [`tls`] | whom both trust, and what they show |

pub mod client;
pub mod proto;
pub mod tls;
pub mod wire;
pub mod worker;

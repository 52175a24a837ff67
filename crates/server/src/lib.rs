//! The Tidewheel server. It takes a [`tidewheel_store::Store`] and a [`clock::Clock`], and names no store.
//!
//! | module | what it holds |
//! |---|---|
//! | [`clock`] | the one door to time |
//! | [`random`] | the one door to randomness |
//! | [`engine`] | the stages a job passes through: scanner, wheel, lanes, claims, outcomes |
//! | [`directory`] | tenants, keys and secrets, as an operator has set them |
//! | [`access`] | who may do what |
//! | `audit` | who did what |
//! | [`notify`] | telling tenants of what their owners should know |
//! | [`push`] | delivery to HTTP targets |
//! | [`http`] | the HTTP API |
//! | `grpc` | the gRPC API, on the same port |
//! | [`tls`] | TLS for both, with certificates that are replaced while it runs |
//! | [`metrics`] | what the server counts |
//! | `schema` | JSON Schemas of payloads, within bounds |
//! | [`traces`] | what a job went through, for a collector |
//! | `pages` | the web pages |
//! | `testing` (a feature) | a server for tests of handlers |

pub mod access;
mod audit;
pub mod clock;
pub mod directory;
pub mod engine;
mod grpc;
pub mod http;
pub mod metrics;
pub mod notify;
mod pages;
pub mod push;
pub mod random;
mod schema;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tls;
pub mod traces;

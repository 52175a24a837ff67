//! The Tidewheel server. It takes a [`tidewheel_store::Store`] and a [`clock::Clock`], and names no store.
//!
//! | module | what it holds |
//! |---|---|
//! | [`clock`] | the one door to time |
//! | [`random`] | the one door to randomness |
//! | [`engine`] | the stages a job passes through: scanner, wheel, lanes, claims, outcomes |
//! | [`directory`] | tenants, keys and secrets, as an operator has set them |
//! | [`access`] | who may do what |
//! | [`push`] | delivery to HTTP targets |
//! | [`http`] | the HTTP API |
//! | `grpc` | the gRPC API, on the same port |
//! | [`tls`] | TLS for both, with certificates that are replaced while it runs |
//! | [`metrics`] | what the server counts |
//! | `pages` | the web pages |
//! | [`testing`] | a server for tests of handlers |

pub mod access;
pub mod clock;
pub mod directory;
pub mod engine;
mod grpc;
pub mod http;
pub mod metrics;
mod pages;
pub mod push;
pub mod random;
pub mod testing;
pub mod tls;

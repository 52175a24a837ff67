//! The Tidewheel server. It takes a [`tidewheel_store::Store`] and a [`clock::Clock`], and names no store.
//!
//! | module | what it holds |
//! |---|---|
//! | [`clock`] | the one door to time |
//! | [`random`] | the one door to randomness |
//! | [`engine`] | the stages a job passes through: scanner, wheel, lanes, claims, outcomes |
//! | [`push`] | delivery to HTTP targets |
//! | [`http`] | the HTTP API |
//! | [`metrics`] | what the server counts |

pub mod clock;
pub mod engine;
pub mod http;
pub mod metrics;
pub mod push;
pub mod random;

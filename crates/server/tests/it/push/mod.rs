//! Pushes to targets on real sockets.

mod broken;
mod connections;
mod harness;
mod requests;
mod slow_targets;
mod tls;

//! The server in this process: its engine, its HTTP and gRPC calls on real sockets, its pushes, the worker SDK.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod engine;
mod grpc;
mod http;
mod push;
mod sdk;

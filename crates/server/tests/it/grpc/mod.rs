//! The gRPC services, on real sockets.

mod audit;
mod bulk;
mod dispatcher;
mod harness;
mod jobs;
mod poison;
mod tenants;
mod traces;
mod types;
mod worker;
mod worker_drain;
mod worker_flood;
mod worker_loss;

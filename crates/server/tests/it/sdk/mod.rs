//! The workers' SDK against real and made-up servers.

mod answers;
mod worker;

//! The suite of the contract.

mod fjall;
mod memory;

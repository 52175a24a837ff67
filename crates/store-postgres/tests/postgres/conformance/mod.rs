//! The suite of the contract.

mod many;
mod one;

//! The engine itself, called without a network.

mod delivery_counts;
mod governor;
mod intervals;
mod leases;
mod settable_clock;
mod starts;
mod zones;

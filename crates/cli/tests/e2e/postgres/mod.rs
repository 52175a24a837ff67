//! Servers on PostgreSQL: one, one that fails, several.

mod databases;
mod faults;
mod store;
mod tls;

//! Several nodes on one PostgreSQL.

mod handover;
mod limits;
mod nodes;
mod spread;
mod upgrade;
mod workers;

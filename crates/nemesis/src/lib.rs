//! Real nodes on a real PostgreSQL, under load and under faults, seen from outside by one observer, and a checker that judges
//! what was seen.
//!
//! | file | what it is for |
//! |---|---|
//! | `run` | one run from beginning to end |
//! | `load`, `workers`, `target` | who submits, who pulls, who is pushed to |
//! | `faults` | what is broken, when, and healed again |
//! | `cluster`, `postgres`, `pair` | nodes, a database server, two of them that replicate |
//! | `forwarder`, `network` | the two ways to cut a node off |
//! | `history`, `checker` | what was seen, and what is wrong with it |
//! | `process`, `http`, `clock`, `dice` | signals, requests, the observer's clock, choices by a seed |
//! | `faketime` | wall clocks that are set |

pub mod checker;
pub mod clock;
pub mod cluster;
mod dice;
pub mod faketime;
mod faults;
pub mod forwarder;
pub mod history;
pub mod http;
mod load;
pub mod network;
pub mod pair;
pub mod postgres;
pub mod process;
pub mod run;
mod target;
mod workers;

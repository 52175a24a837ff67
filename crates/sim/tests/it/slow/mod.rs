//! Hundreds of seeds: minutes in a debug build. `--skip slow::` leaves them out.

mod clusters;
mod seeds;

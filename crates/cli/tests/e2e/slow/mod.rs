//! A cluster under faults. `--skip slow::` leaves it out.

mod nemesis;

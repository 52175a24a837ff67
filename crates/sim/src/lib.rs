//! A seeded simulator of Tidewheel: the real engine on the model store under virtual time, with clients,
//! workers and targets that misbehave, faults that strike, and a checker that judges the record of it all.
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | what a seed stands for |
//! | [`dice`], [`clock`] | randomness and time of a run |
//! | [`world`] | the run's servers, which come and go |
//! | [`client`], [`owner`] | who submits jobs, who changes them |
//! | [`planner`], [`almanac`] | who makes and changes schedules, and what they can be |
//! | [`target`], [`worker`], [`stream_worker`], [`runner`], [`conduct`] | who runs them, and how |
//! | [`weather`], [`nemesis`], [`cluster_nemesis`] | what goes wrong with the store, and with everything else |
//! | [`watch`] | who looks on while it runs |
//! | [`history`], [`schedule_wish`], [`checker`] | what happened, and whether it should have |
//! | [`remains`] | what is in the store when it is over |
//! | [`run`] | a run from beginning to end |
//! | [`report`] | telling people about it |

pub mod almanac;
pub mod checker;
pub mod client;
pub mod clock;
pub mod cluster_nemesis;
pub mod conduct;
pub mod dice;
pub mod history;
pub mod nemesis;
pub mod owner;
pub mod plan;
pub mod planner;
pub mod remains;
pub mod report;
pub mod run;
pub mod runner;
pub mod schedule_wish;
pub mod stream_worker;
pub mod target;
pub mod watch;
pub mod weather;
pub mod worker;
pub mod world;

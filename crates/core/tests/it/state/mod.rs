//! What a job may become, and when.

mod properties;
mod table;

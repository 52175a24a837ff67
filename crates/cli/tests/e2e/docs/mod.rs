//! What the documents say, done.

mod page;
mod pages;
mod readme;
mod workers;

//! Jobs.

pub(super) mod batch;
pub(super) mod change;
pub(super) mod explain;
pub(super) mod read;
pub(super) mod submit;

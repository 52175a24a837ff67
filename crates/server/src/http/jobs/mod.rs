//! Jobs.

pub(super) mod attempts;
pub(super) mod batch;
pub(super) mod change;
pub(super) mod count;
pub(super) mod explain;
mod flat;
mod placing;
pub(super) mod read;
pub(super) mod submit;

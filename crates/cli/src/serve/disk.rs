//! How much room there is on the device that holds the data.

use std::path::Path;

use tidewheel_server::metrics::DiskSpace;

/// Room where `path` is; none if it cannot be told.
pub(super) fn space(path: &Path) -> Option<DiskSpace> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(DiskSpace {
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        size_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
    })
}

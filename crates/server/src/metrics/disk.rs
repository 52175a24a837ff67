//! Room on the device that holds the data, measured when somebody looks.

use std::fmt;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Room on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// What is left.
    pub free_bytes: u64,
    /// All of it.
    pub size_bytes: u64,
}

type Measure = Box<dyn Fn() -> Option<DiskSpace> + Send + Sync>;

/// The gauges, and how they are measured.
pub(super) struct Disk {
    measure: Measure,
    free: Gauge,
    size: Gauge,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("free", &self.free).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Disk {
    pub(super) fn new(registry: &mut Registry, measure: Measure) -> Self {
        let disk = Self { measure, free: Gauge::default(), size: Gauge::default() };
        registry.register_with_unit(
            "disk_free",
            "Room left on the device that holds the data",
            Unit::Bytes,
            disk.free.clone(),
        );
        registry.register_with_unit(
            "disk_size",
            "Size of the device that holds the data",
            Unit::Bytes,
            disk.size.clone(),
        );
        disk
    }

    /// What cannot be measured stays as it was.
    pub(super) fn measure(&self) {
        if let Some(DiskSpace { free_bytes, size_bytes }) = (self.measure)() {
            self.free.set(i64::try_from(free_bytes).unwrap_or(i64::MAX));
            self.size.set(i64::try_from(size_bytes).unwrap_or(i64::MAX));
        }
    }
}

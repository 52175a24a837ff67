//! Huge pages: the allocator asks the kernel for them, and then what is only set aside is in memory as well. A connection
//! sets aside tens of kilobytes for buffers it hardly uses while its worker waits, so that ten thousand of them would take
//! half as much memory again. Draining jobs is no slower without.

/// Goes without huge pages from here on. Processes started later go without, too.
pub fn go_without() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        // An old kernel: more memory is used, and nothing else changes.
        tracing::debug!(%error, "huge pages cannot be turned off");
    }
}

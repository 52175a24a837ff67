//! Where the log goes: stderr, as text or as JSON.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, ServeConfig};

/// Starts the log of this process.
pub(crate) fn start(config: &ServeConfig) {
    // The level was read before; a filter that cannot be read again logs everything rather than nothing.
    let filter = EnvFilter::try_new(&config.log_level).unwrap_or_default();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // A log that was started already, as in a test, stays.
    drop(match config.log_format {
        LogFormat::Json => log.json().flatten_event(true).try_init(),
        LogFormat::Text if io::stderr().is_terminal() => log.try_init(),
        LogFormat::Text => log.with_ansi(false).try_init(),
    });
}

//! The one binary: the server, and a client of it. All of it is in the library beside this file.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidewheel_cli::main()
}

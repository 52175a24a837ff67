//! `tidewheel bench`: hands over to `tidewheel-bench`, a program of its own, so that building a server builds no benchmark.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::args::Globals;
use crate::failure::Failure;
use crate::out::Format;

const PROGRAM: &str = "tidewheel-bench";

const EXAMPLES: &str = "\
The flags are those of the program tidewheel-bench, which is looked for beside this one and then on the PATH. It is
built with `cargo build --profile dist --workspace --bins`.

Examples:
  tidewheel bench --help
  tidewheel bench --quick
  tidewheel bench --only sink target
  tidewheel bench --url http://127.0.0.1:7400 --seconds 30
  tidewheel bench --store postgres://tidewheel@127.0.0.1/postgres --quick";

/// The flags of `bench`: whatever the program takes.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_flag = true)]
pub(crate) struct BenchArgs {
    /// Flags of tidewheel-bench; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    flags: Vec<OsString>,
}

/// Becomes the benchmark. Comes back only with what is in the way of that.
pub(crate) fn hand_over(args: &BenchArgs, globals: &Globals) -> Failure {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(PROGRAM));
    let program = beside.filter(|program| program.exists()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let mut command = Command::new(&program);
    // Those that stood before the verb.
    if let Some(url) = &globals.url {
        command.arg("--url").arg(url);
    }
    if globals.output == Format::Json {
        command.args(["--output", "json"]);
    }
    refusal(&program, &command.args(&args.flags).exec())
}

fn refusal(program: &Path, fault: &io::Error) -> Failure {
    if fault.kind() == io::ErrorKind::NotFound {
        return Failure::Usage(format!(
            "{PROGRAM} is not there, neither beside this program nor on the PATH: the benchmark is a program of its own.\n\
             Build it in the source tree, beside this one: cargo build --profile dist --workspace --bins"
        ));
    }
    Failure::Refused(format!("{} cannot be started: {fault}", program.display()))
}

//! `tidewheel completions` and `tidewheel man`: what shells and `man` know of the command line, made from the command line
//! itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::Failure;
use crate::out::Out;

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  tidewheel completions bash > /etc/bash_completion.d/tidewheel
  tidewheel completions zsh > ~/.zfunc/_tidewheel
  tidewheel completions fish > ~/.config/fish/completions/tidewheel.fish
  tidewheel completions powershell >> $PROFILE";

const MAN_EXAMPLES: &str = "\
Writes a page for the program and one for each verb: tidewheel.1, tidewheel-job.1,
tidewheel-job-submit.1, and so on. The folder is made if it is missing.

Examples:
  tidewheel man ~/.local/share/man/man1
  tidewheel man man1 && man -l man1/tidewheel-job-submit.1";

/// The flags of `completions`.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// For this shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// The flags of `man`.
#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// The folder to write to
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints a completion script.
pub(crate) fn completions(args: &CompletionsArgs, out: Out) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tidewheel", &mut script);
    Ok(out.line(String::from_utf8_lossy(&script).trim_end())?)
}

/// Writes the manual's pages.
pub(crate) fn man(args: &ManArgs, out: Out) -> Result<(), Failure> {
    let unwritable = |fault: io::Error| Failure::Usage(format!("{}: {fault}", args.folder.display()));
    fs::create_dir_all(&args.folder).map_err(unwritable)?;
    let mut program = Cli::command();
    program.build();
    let count = pages(&program, &args.folder).map_err(unwritable)?;
    out.note(&format!("{count} pages in {}", args.folder.display()));
    Ok(())
}

/// A page for a verb and those below it; how many.
fn pages(verb: &Command, folder: &Path) -> io::Result<usize> {
    let mut count = 1;
    let title = verb.get_display_name().unwrap_or_else(|| verb.get_name()).to_owned();
    let mut page = Vec::new();
    let source = concat!("tidewheel ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(verb.clone()).title(title.to_uppercase()).source(source).render(&mut page)?;
    // What stands below the flags is the examples, and what must be known to understand them.
    let page = String::from_utf8_lossy(&page).replace(".SH EXTRA\n", ".SH NOTES AND EXAMPLES\n");
    fs::write(folder.join(format!("{title}.1")), page)?;
    for below in verb.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        count += pages(below, folder)?;
    }
    Ok(count)
}

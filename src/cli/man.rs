//! `ringlog man`: a man page for each command.
//!
//! Shell: writes files. Owns the command; the pages are made from the arguments by the crate clap_mangen.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};

use super::{Arguments, Failure};

const EXAMPLES: &str = "\
Examples:
  ringlog man ~/.local/share/man/man1
  man ringlog-topics-create";

/// Writes man pages into a folder, which is made if it is not there.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ManArgs {
    /// Where to
    dir: PathBuf,
}

/// Writes the pages. Errors: the folder cannot be written to.
pub(super) fn run(args: &ManArgs, out: &mut impl std::io::Write) -> Result<(), Failure> {
    let place = || args.dir.display().to_string();
    std::fs::create_dir_all(&args.dir).with_context(place)?;
    clap_mangen::generate_to(Arguments::command(), &args.dir).with_context(place)?;
    writeln!(out, "{}", args.dir.join("ringlog.1").display())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_every_command() {
        let dir = tempfile::tempdir().unwrap();
        let mut out = Vec::new();
        run(&ManArgs { dir: dir.path().join("man1") }, &mut out).unwrap_or_else(|failure| panic!("{failure:?}"));
        for page in ["ringlog.1", "ringlog-topics-create.1", "ringlog-consume.1"] {
            assert!(dir.path().join("man1").join(page).exists(), "{page}");
        }
    }
}

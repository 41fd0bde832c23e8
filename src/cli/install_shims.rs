//! `ringlog install-shims`: links that make this binary answer to the names of Kafka's tools.
//!
//! Shell: makes links. Owns the command; the tools are in `kafka`. Always: a file that is there and is no link to this binary is left
//! alone unless `--force` says otherwise.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::outcome::Tally;
use super::{Failure, kafka};

const EXAMPLES: &str = "\
Examples:
  ringlog install-shims ~/bin
  ~/bin/kafka-topics.sh --bootstrap-server localhost:9092 --list

Without links the names work as first word: ringlog kafka-topics --bootstrap-server localhost:9092 --list";

/// Links the names of Kafka's tools, with and without .sh, to this binary.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct InstallShimsArgs {
    /// Where to; made if it is not there
    dir: PathBuf,
    /// Replace what is there under these names
    #[arg(short, long)]
    force: bool,
}

/// Makes the links. Errors: the folder cannot be written to; files that are in the way are told one by one.
pub(super) fn run(args: &InstallShimsArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let binary = std::env::current_exe().context("where is this binary?")?;
    std::fs::create_dir_all(&args.dir).with_context(|| args.dir.display().to_string())?;
    let mut tally = Tally::default();
    for name in kafka::names() {
        for name in [name.to_owned(), format!("{name}.sh")] {
            let link = args.dir.join(&name);
            match install(&binary, &link, args.force) {
                Ok(()) => {
                    tally.done();
                    writeln!(out, "{}", link.display())?;
                }
                Err(error) => tally.failed(&link.display().to_string(), format!("{error:#}")),
            }
        }
    }
    tally.end()
}

fn install(binary: &Path, link: &Path, force: bool) -> anyhow::Result<()> {
    match std::fs::symlink_metadata(link) {
        Ok(_) if std::fs::read_link(link).is_ok_and(|target| target == binary) => return Ok(()),
        Ok(_) if force => std::fs::remove_file(link)?,
        Ok(_) => return Err(anyhow!("something is there under this name; --force replaces it")),
        Err(_) => {}
    }
    Ok(symlink(binary, link)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_made_again_and_files_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (binary, link) = (dir.path().join("ringlog"), dir.path().join("kafka-topics"));
        install(&binary, &link, false).unwrap();
        install(&binary, &link, false).unwrap();
        assert_eq!(std::fs::read_link(&link).unwrap(), binary);
        let file = dir.path().join("kafka-configs");
        std::fs::write(&file, "mine").unwrap();
        assert!(install(&binary, &file, false).unwrap_err().to_string().contains("--force"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        install(&binary, &file, true).unwrap();
        assert_eq!(std::fs::read_link(&file).unwrap(), binary);
    }
}

//! `ringlog completions`: what a shell needs to complete our words.
//!
//! Shell. The words come from the arguments themselves.

use std::io::Write;

use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::{Shell, generate};

use super::{Arguments, Failure};

const EXAMPLES: &str = "\
Examples:
  ringlog completions bash > ~/.local/share/bash-completion/completions/ringlog
  ringlog completions zsh > ~/.zfunc/_ringlog
  ringlog completions fish > ~/.config/fish/completions/ringlog.fish";

/// Prints the completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompletionsArgs {
    /// Which shell.
    #[arg(value_enum)]
    shell: KnownShell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KnownShell {
    Bash,
    Zsh,
    Fish,
}

pub(super) fn run(args: &CompletionsArgs, out: &mut impl Write) -> Result<(), Failure> {
    let shell = match args.shell {
        KnownShell::Bash => Shell::Bash,
        KnownShell::Zsh => Shell::Zsh,
        KnownShell::Fish => Shell::Fish,
    };
    // Into memory first: the generator panics when its reader goes away.
    let mut script = Vec::new();
    generate(shell, &mut Arguments::command(), "ringlog", &mut script);
    Ok(out.write_all(&script)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_learns_every_command() {
        for shell in [KnownShell::Bash, KnownShell::Zsh, KnownShell::Fish] {
            let mut script = Vec::new();
            run(&CompletionsArgs { shell }, &mut script).unwrap();
            let script = String::from_utf8(script).unwrap();
            for word in ["check-config", "ready-file", "version"] {
                assert!(script.contains(word), "{shell:?} lacks {word}");
            }
        }
    }
}

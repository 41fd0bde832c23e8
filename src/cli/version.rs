//! `ringlog version`: which program this is, and what it can do.
//!
//! Shell: asks the kernel for its name. Source: the cargo package, and the tables of the rooms.

use std::io::Write;

use clap::Args;

use super::Failure;
use crate::types::AckClass;

const EXAMPLES: &str = "\
Examples:
  ringlog version
  ringlog version --features";

/// Prints the version.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct VersionArgs {
    /// Also what it serves and what it runs on.
    #[arg(long)]
    features: bool,
}

pub(super) fn run(args: &VersionArgs, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "ringlog {}", env!("CARGO_PKG_VERSION"))?;
    if args.features {
        let kernel = rustix::system::uname();
        let classes = [AckClass::Memory, AckClass::Written, AckClass::Flushed].map(AckClass::name);
        for (what, words) in [
            (
                "build",
                if cfg!(debug_assertions) { "debug: asserts more and runs slower" } else { "release" }.to_owned(),
            ),
            ("target", format!("{} linux", std::env::consts::ARCH)),
            ("kernel", kernel.release().to_string_lossy().into_owned()),
            ("executor", "glommio 0.9.0 on io_uring".to_owned()),
            ("listeners", "PLAINTEXT".to_owned()),
            ("codecs", "gzip, snappy, lz4, zstd".to_owned()),
            ("ack classes", classes.join(", ")),
        ] {
            writeln!(out, "{what:<12} {words}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_packages() {
        let shown = |features| {
            let mut out = Vec::new();
            run(&VersionArgs { features }, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown(false), format!("ringlog {}\n", env!("CARGO_PKG_VERSION")));
        assert!(shown(true).contains("ack classes  memory, written, flushed\n"), "{}", shown(true));
    }
}

//! `ringlog serve`: a broker until it is told to stop.
//!
//! Shell. So far it only judges the settings.

use super::Failure;
use super::serve_args::ServeArgs;
use crate::config::load;

/// Runs the broker.
pub fn run(args: ServeArgs) -> Result<(), Failure> {
    let (_settings, _problems) = load(&args.sources()).map_err(Failure::Config)?;
    Ok(())
}

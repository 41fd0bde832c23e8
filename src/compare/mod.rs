//! Two targets, one load, paired runs: is there a difference, how large, how sure?
//!
//! Shell, over pure parts.

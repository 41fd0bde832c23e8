//! Shell. Indexes, producer snapshots and checkpoints.
#![no_main]

#[allow(dead_code)] // the other targets
#[path = "../../tests/fuzz_support/mod.rs"]
mod fuzz_support;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_support::files(bytes));

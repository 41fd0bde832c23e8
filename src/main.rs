//! The binary: hands the arguments to [`ringlog::cli`].
fn main() {}

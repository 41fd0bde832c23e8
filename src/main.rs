//! The binary: hands the arguments to [`ringlog::cli`].

fn main() -> std::process::ExitCode {
    ringlog::cli::main()
}

//! The `portico` program. All of it lives in the library, so that tests can start a whole server in their own process.

use std::process::ExitCode;

fn main() -> ExitCode {
    portico::cli::main()
}

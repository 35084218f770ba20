//! The `portico` program. All of it lives in the library, so that tests can start a whole server in their own process.

use std::process::ExitCode;

/// Half of what a request costs outside the kernel is many small pieces of memory, which this allocator hands out faster than the
/// system's, across threads too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    portico::cli::main()
}

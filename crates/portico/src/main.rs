//! The `portico` program. The code is in the library, so that tests can start a whole server in
//! their own process.

use std::process::ExitCode;

/// Half of a request's cost outside the kernel is the allocation of many small pieces of memory.
/// This allocator is faster at it than the system's, across threads too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    portico::cli::main()
}

//! The `haft` command.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// `haft serve` makes more than 600 allocations for each response. With this allocator, a response needs a sixth fewer
/// instructions than with the allocator of the system.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    haft_runtime::init();
    haft_cli::run(std::env::args_os())
}

//! The `haft` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    haft::init();
    haft::cli::run(std::env::args_os())
}

//! The `haft` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    haft_runtime::init();
    haft_cli::run(std::env::args_os())
}

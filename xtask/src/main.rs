//! The development tasks of the project. `cargo xtask` lists them.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a task prints to the terminal of the developer"
)]

mod advisories;
mod api;
mod check;
mod claude_code;
mod clients;
mod conformance;
mod deny;
mod dependencies;
mod function_lengths;
mod fuzz;
mod install;
mod library_texts;
mod markdown;
mod mcp_servers;
mod named_tests;
mod prose;
mod python;
mod step;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask test          install the programs that the tests need, then run every check of CI; --long also runs the long race tests, the escape tests at the level landlock, and the fuzz targets
cargo xtask fuzz [S]      run every fuzz target (the parsers of untrusted data) for S seconds each; the default is 600
cargo xtask tidy          check for shell scripts, machine-specific paths, wrong crate manifests, hints in libraries, and long lines of Markdown
cargo xtask lengths       report the lengths of all functions, and name the longest ones
cargo xtask prose         count patterns of unclear language; fails if a count rises
cargo xtask deny          check licences, sources and bans of dependencies, unused dependencies, and the number of crates; --advisories checks instead for known vulnerabilities, which needs the RustSec database
cargo xtask install       install the programs and packages that the tests need
cargo xtask conformance   run the official MCP conformance suite with haft's client and server
cargo xtask bench         measure the sandbox, MCP calls, turns of runs, model requests and a large API (release build); --long also installs wrk and LiteLLM, and compares haft serve with LiteLLM";

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let more = std::env::args().nth(2);
    let done = match task.as_str() {
        "test" if more.as_deref() == Some("--long") => test()
            .and_then(|()| check::races())
            .and_then(|()| check::landlock())
            .and_then(|()| fuzz::fuzz(fuzz::SECONDS_DEFAULT)),
        "test" => test(),
        "fuzz" => seconds(more.as_deref()).and_then(fuzz::fuzz),
        "tidy" => tidy::tidy(),
        "prose" => prose::prose(),
        "lengths" => function_lengths::report(),
        "deny" if more.as_deref() == Some("--advisories") => {
            deny::program().and_then(|program| advisories::advisories(&program))
        }
        "deny" => dependencies(),
        "install" => install::install(),
        "conformance" => conformance::install()
            .and_then(|()| conformance::build())
            .and_then(|()| conformance::conformance()),
        "bench" if more.as_deref() == Some("--long") => check::bench().and_then(|()| check::long_bench()),
        "bench" => check::bench(),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn seconds(written: Option<&str>) -> Result<u32, String> {
    let Some(written) = written else { return Ok(fuzz::SECONDS_DEFAULT) };
    written.parse().map_err(|_| format!("expected a number of seconds; got `{written}`"))
}

/// Runs the cheapest checks first, so that a mistake is reported within seconds.
fn test() -> Result<(), String> {
    install::install()?;
    tidy::tidy()?;
    prose::prose()?;
    function_lengths::report()?;
    check::format()?;
    check::fuzz_lock()?;
    check::lint()?;
    check::tests()?;
    conformance::conformance()?;
    check::documents()?;
    dependencies()
}

fn dependencies() -> Result<(), String> {
    dependencies::count()?;
    dependencies::unused()?;
    dependencies::unused_in_workspace()?;
    deny::deny()
}

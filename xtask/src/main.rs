//! The development tasks of the project. `cargo xtask` lists them.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a script talks to the person who runs it")]

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
mod mcp_servers;
mod named_tests;
mod prose;
mod python;
mod step;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask test          install what the tests need, then run every check that CI runs; --long also runs the long races, the escapes at landlock and the fuzzes
cargo xtask fuzz [S]      every reader of foreign data with made-up bytes, S seconds each (600)
cargo xtask tidy          what no other tool checks: loose scripts, foreign paths, crate papers, hints in libraries
cargo xtask lengths       report how long functions are, and name the longest
cargo xtask prose         count patterns of unclear language; fails when a count rises
cargo xtask deny          licences, sources and bans of dependencies; unused ones; how many the default build has
cargo xtask install       install what the tests need
cargo xtask conformance   the official conformance suite of MCP against our client and our server
cargo xtask bench         what the sandbox, MCP calls, turns of a run, requests to models and a large API cost (release build); --long also installs wrk and LiteLLM, and compares haft serve with them";

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
    deny::deny()
}

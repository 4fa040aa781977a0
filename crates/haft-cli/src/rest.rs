//! `haft rest`: adds, lists, checks and removes OpenAPI documents.

mod add;
pub(super) mod args;
mod check;
mod list;

use std::process::ExitCode;

use haft_sandbox::Home;
use haft_tools::rest::RestTool;
use serde_json::Value;

use self::args::RestCommand;
use super::terminal;
use haft_config::{self, ResolvedConfig};
use haft_runtime::rest::{self, Freshness, RestLoadContext};

/// The output of a command, as text and as JSON.
struct RestCommandOutput {
    text: String,
    json: Value,
}

pub(super) async fn run(command: &RestCommand) -> ExitCode {
    let (answer, as_json) = match command {
        RestCommand::Add(args) => (add::add(args).await, args.json),
        RestCommand::Remove(args) => (add::remove(args), args.json),
        RestCommand::List(args) => (list::list(args).await, args.json),
        RestCommand::Check(args) => (check::check(args).await, args.json),
    };
    match answer {
        Ok(answer) if as_json => terminal::answer(&format!("{:#}", answer.json)),
        Ok(answer) => terminal::answer(&answer.text),
        Err(error) => error.report(),
    }
}

/// Returns all HTTP tools, and warns about those that cannot be used.
pub(super) async fn tools(config: &ResolvedConfig, home: &Home, freshness: Freshness) -> Vec<RestTool> {
    let loaded = rest::load(&config.rest, around(home, freshness)).await;
    for problem in &loaded.problems {
        terminal::warn(&format!(
            "haft ignores `{}`: {}",
            problem.key,
            haft_config::printable(&problem.message)
        ));
    }
    loaded.tools
}

fn around(home: &Home, freshness: Freshness) -> RestLoadContext<'_> {
    RestLoadContext { home: Some(home), variables: &crate::variables::variable, freshness }
}

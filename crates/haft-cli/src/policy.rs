//! `haft policy explain`: which rule decides about a call, and why.

use std::process::ExitCode;

use haft_core::arguments::{ArgumentLimits, Arguments};
use serde_json::json;

use super::args::ExplainArgs;
use super::exit::Exit;
use super::{settings, terminal};
use haft_runtime::wiring;

pub(super) fn explain(args: &ExplainArgs) -> ExitCode {
    let config = match settings::configuration(&args.files) {
        Ok(config) => config.resolved,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let arguments = Arguments::from_text(args.arguments.clone().unwrap_or_else(|| "{}".into()));
    let parsed = match arguments.parse(&ArgumentLimits::default()) {
        Ok(parsed) => parsed,
        Err(error) => return terminal::failed(Exit::Input, &error.to_string()),
    };
    let argument = wiring::command_argument(&args.tool);
    let line = argument.and_then(|name| parsed.object().get(name)?.as_str().map(str::to_owned));
    let rules = wiring::rules(&config);
    if !args.json {
        return terminal::answer(&rules.explain(&args.tool, line.as_deref()));
    }
    let ruling = rules.decide(&args.tool, line.as_deref());
    let rule = ruling.rule.and_then(|index| rules.rules.get(index)).map(ToString::to_string);
    terminal::answer(&format!(
        "{:#}",
        json!({ "decision": ruling.decision.name(), "rule": rule, "why": ruling.why })
    ))
}

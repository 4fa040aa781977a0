//! `haft policy explain`: shows which rule applies to a call, and why.

use std::process::ExitCode;

use haft_core::arguments::{ArgumentLimits, RawArguments};
use haft_core::grant::{Grant, GrantOwner};
use haft_core::principal::Principal;
use haft_core::rules::{ExplainedCommand, PermissionDecision};
use haft_core::tool::{CallId, ToolCall};
use haft_engine::RunContext;
use haft_runtime::wiring::{self, ToolSettings};
use serde_json::{Value, json};

use super::approvals::{self, short_id, tool_name};
use super::args::ExplainArgs;
use super::cli_error::CliError;
use super::exit::ExitReason;
use super::settings::{self, Configuration};
use super::{terminal, tool_names};

pub(super) async fn explain(args: &ExplainArgs) -> ExitCode {
    let config = match settings::configuration(&args.policy.files) {
        Ok(config) => config,
        Err(error) => return error.report(),
    };
    if let Some(problem) = tool_names::unknown_tool(&config.resolved, &args.tool) {
        return CliError::input(problem).with_hint("`haft tools` lists the tools").report();
    }
    let arguments = RawArguments::from_text(args.arguments.clone().unwrap_or_else(|| "{}".into()));
    let parsed = match arguments.parse(&ArgumentLimits::default()) {
        Ok(parsed) => parsed,
        Err(error) => return terminal::failed(ExitReason::Input, &error.to_string()),
    };
    let argument = wiring::command_argument(&args.tool);
    let line = argument.and_then(|name| parsed.object().get(name)?.as_str().map(str::to_owned));
    let rules = wiring::rules(&config.resolved);
    let ruling = rules.decide(&args.tool, line.as_deref());
    let remembered = match ruling.decision {
        PermissionDecision::Allow | PermissionDecision::Deny => RememberedApprovals::default(),
        PermissionDecision::Ask => {
            RememberedApprovals::find(args, arguments, config).await.unwrap_or_default()
        }
    };
    if !args.json {
        return terminal::answer(&remembered.explain(&rules.explain(&args.tool, line.as_deref())));
    }
    let commands: Vec<_> =
        rules.explained_commands(&args.tool, line.as_deref()).iter().map(explained).collect();
    let decision = if remembered.covering.is_empty() { ruling.decision } else { PermissionDecision::Allow };
    let rule = ruling.rule.and_then(|index| rules.rules.get(index)).map(ToString::to_string);
    terminal::answer(&format!(
        "{:#}",
        json!({
            "decision": decision.name(), "rule": rule, "why": ruling.why, "commands": commands,
            "approvals": ids(&remembered.covering), "possibleApprovals": ids(&remembered.possible),
        })
    ))
}

fn explained(command: &ExplainedCommand) -> Value {
    let ExplainedCommand { command, carrier, ruling } = command;
    json!({ "command": command, "readIn": carrier, "decision": ruling.decision.name(), "why": ruling.why })
}

/// The remembered approvals that are relevant for a call.
#[derive(Default)]
struct RememberedApprovals {
    /// The approvals that together cover the call.
    covering: Vec<Grant>,
    /// Approvals for a tool with this name. They may not cover the call: only the tool's server has the current
    /// definition, and this command starts no server.
    possible: Vec<Grant>,
}

impl RememberedApprovals {
    /// Finds the approvals for a call; `None` if the call is impossible, for example because the sandbox refuses this
    /// workspace.
    async fn find(args: &ExplainArgs, arguments: RawArguments, config: Configuration) -> Option<Self> {
        let policy = settings::explained_policy(&args.policy, &config).ok()?;
        let context = RunContext {
            workspace: policy.workspace().to_string_lossy().into(),
            confinement: policy.confinement(),
            grants: approvals::store(policy.home()),
            ..RunContext::default()
        };
        if !wiring::is_builtin(&args.tool) {
            let owner = GrantOwner::of(&Principal::local());
            let mut possible = context.grants.load(&owner, &context.workspace).await.ok()?;
            possible.retain(|grant| is_for(grant, &args.tool));
            return Some(Self { possible, ..Self::default() });
        }
        let call = ToolCall { id: CallId("1".into()), name: args.tool.clone(), arguments };
        let settings = ToolSettings { policy, timeout: None, config: config.resolved };
        let covering = wiring::orchestrator(settings).covering_grants(call, &context).await.ok()?;
        Some(Self { covering, ..Self::default() })
    }

    /// Adds the approvals to the explanation of the rules.
    fn explain(&self, rules: &str) -> String {
        let list = |grants: &[Grant]| {
            let name = |grant: &Grant| format!("{} ({})", short_id(grant), grant.scope);
            grants.iter().map(name).collect::<Vec<_>>().join(", ")
        };
        match (self.covering.as_slice(), self.possible.as_slice()) {
            ([], []) => rules.to_owned(),
            ([], possible) => format!("{rules}remembered approvals for this tool: {}\n", list(possible)),
            (covering, _) => {
                format!(
                    "allow: remembered approval {} covers this call\nwithout this approval, {rules}",
                    list(covering)
                )
            }
        }
    }
}

fn is_for(grant: &Grant, tool: &str) -> bool {
    grant.target.as_ref().is_some_and(|target| tool_name(&target.tool).eq_ignore_ascii_case(tool))
}

fn ids(grants: &[Grant]) -> Vec<String> {
    grants.iter().map(|grant| grant.id.to_string()).collect()
}

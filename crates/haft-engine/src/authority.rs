//! The operator's permission rules, and the arguments that hold shell commands.

use std::collections::HashMap;

use haft_core::name::ToolName;
use haft_core::rules::Rules;
use haft_core::validate::ValidArguments;

/// The permission rules. With no rules, every call is allowed. The approver that asks a user belongs to the run,
/// because one orchestrator serves runs of many users.
#[derive(Debug, Clone, Default)]
pub struct Authority {
    pub rules: Rules,
    /// The tools that take a shell command line, by exposed name, with the name of the argument that holds it.
    pub command_lines: HashMap<ToolName, String>,
}

impl Authority {
    /// Returns the command line of a call, if the tool takes one.
    pub(crate) fn command_line<'a>(&self, tool: &ToolName, arguments: &'a ValidArguments) -> Option<&'a str> {
        arguments.value().get(self.command_lines.get(tool)?)?.as_str()
    }
}

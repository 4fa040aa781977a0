//! The operator's rules, and the arguments that hold shell commands.

use std::collections::HashMap;

use haft_core::name::ToolName;
use haft_core::rules::Rules;
use haft_core::validate::ValidArguments;

/// Without rules everything is allowed. People answer through the approver of a run, which is not known here.
#[derive(Debug, Clone, Default)]
pub struct Authority {
    pub rules: Rules,
    /// Tools, by exposed name, one of whose arguments is a shell command line, and which.
    pub command_lines: HashMap<ToolName, String>,
}

impl Authority {
    /// The command line of a call, if the tool takes one.
    pub(crate) fn command_line<'a>(&self, tool: &ToolName, arguments: &'a ValidArguments) -> Option<&'a str> {
        arguments.value().get(self.command_lines.get(tool)?)?.as_str()
    }
}

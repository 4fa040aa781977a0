//! What the operator decides about each tool, and what holds for a tool nobody decided about.

use std::collections::HashMap;
use std::time::Duration;

use haft_core::name::ToolName;
use haft_core::tool::{Approval, OutputPolicy, ToolPolicy};

/// How long a call may take when the operator says nothing.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_mins(2);

/// How long any call may take, whatever else the operator says.
pub const TOOL_TIMEOUT_MAX_DEFAULT: Duration = Duration::from_mins(5);

/// How much text a call may give when the operator says nothing.
pub const OUTPUT_CHARS_MAX_DEFAULT: usize = 50_000;

/// What becomes of tools whose schema does not compile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UncheckedSchemas {
    /// Their arguments are only checked to be an object, and the receipt says so.
    #[default]
    Called,
    Denied,
}

/// A policy for every tool, by exposed name.
#[derive(Debug, Clone)]
pub struct Policies {
    pub default: ToolPolicy,
    pub by_tool: HashMap<ToolName, ToolPolicy>,
}

impl Policies {
    pub fn all(&self) -> impl Iterator<Item = &ToolPolicy> {
        std::iter::once(&self.default).chain(self.by_tool.values())
    }

    pub fn of(&self, tool: &ToolName) -> &ToolPolicy {
        self.by_tool.get(tool).unwrap_or(&self.default)
    }
}

impl Default for Policies {
    fn default() -> Self {
        let default = ToolPolicy {
            timeout: TIMEOUT_DEFAULT,
            idle_timeout: None,
            output: OutputPolicy::Truncate { chars_max: OUTPUT_CHARS_MAX_DEFAULT },
            queue: None,
            cache_ttl: None,
            approval: Approval::Allow,
        };
        Self { default, by_tool: HashMap::new() }
    }
}

//! Checks that the tools fit into a request, if models see all of them.

use std::fmt::Write;

use haft_config::ResolvedConfig;
use haft_core::settings::tool_search::ToolSearchMode;
use haft_core::tool::ToolDefinition;
use haft_runtime::models::{ModelToolFit, tool_fit};
use serde_json::{Value, json};

/// The result of the check. If models search for tools, haft makes no such check, because the short tool list with the
/// search always fits.
pub(super) struct ToolsFinding {
    tools: usize,
    fit: ModelToolFit,
}

impl ToolsFinding {
    pub(super) fn is_good(&self) -> bool {
        self.fit.problem.is_none()
    }

    pub(super) fn as_json(&self) -> Value {
        json!({ "tools": self.tools, "tokens": self.fit.tokens, "problem": self.fit.problem })
    }

    pub(super) fn write_to(&self, text: &mut String) {
        let Self { tools, fit: ModelToolFit { tokens, problem } } = self;
        let _ = match problem {
            None => writeln!(text, "tools      {tools}, about {tokens} tokens, all shown to models"),
            Some(problem) => writeln!(
                text,
                "tools      {tools}, about {tokens} tokens: {problem}\n           hint: set `toolSearch` to `auto`"
            ),
        };
    }
}

/// Returns true if models see all tools, so that the tools may be too many for one request.
pub(super) fn shows_all(config: &ResolvedConfig) -> bool {
    match config.tool_search.mode {
        ToolSearchMode::Never => true,
        ToolSearchMode::Auto | ToolSearchMode::Always => false,
    }
}

pub(super) fn check(config: &ResolvedConfig, tools: &[ToolDefinition]) -> ToolsFinding {
    ToolsFinding { tools: tools.len(), fit: tool_fit(config, tools) }
}

//! The MCP server behind a tool name.
//!
//! The name of a tool that models see depends on the naming scheme, and a server name that is not a valid namespace is
//! changed. So the server is never read from the name: the catalog of the run knows which tool a name means.

use std::fmt;
use std::sync::Arc;

use haft_core::name::{Namespace, ToolName};
use haft_core::naming::{MCP_ITEM_PREFIX, MCP_READING_PREFIX, MCP_WRITING_PREFIX, ToolIdentity};
use haft_core::provider::ProviderKind;

/// Finds the identity of a tool by a name that a model wrote.
type IdentityLookup = Arc<dyn Fn(&str) -> Option<ToolIdentity> + Send + Sync>;

/// Finds the MCP server of a tool.
#[derive(Clone)]
pub(crate) struct ToolOrigins {
    /// The labels of the servers that the response may use.
    labels: Vec<String>,
    identify: IdentityLookup,
}

/// A tool of an MCP server, as the API names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct McpOrigin {
    pub(crate) label: String,
    pub(crate) name: String,
}

impl ToolOrigins {
    pub(crate) fn new(
        labels: Vec<String>,
        identify: impl Fn(&str) -> Option<ToolIdentity> + Send + Sync + 'static,
    ) -> Self {
        Self { labels, identify: Arc::new(identify) }
    }

    /// Returns the origins of a response that has no run.
    pub(crate) fn none() -> Self {
        Self::new(Vec::new(), |_| None)
    }

    /// Returns the server of a tool; `None` for a tool that belongs to no MCP server.
    pub(crate) fn find(&self, tool: &str) -> Option<McpOrigin> {
        let ToolIdentity { kind, namespace, tool } = (self.identify)(tool)?;
        if kind != ProviderKind::Mcp {
            return None;
        }
        let label = self.labels.iter().find(|label| Namespace::sanitize(label) == namespace);
        let label = label.map_or_else(|| namespace.to_string(), Clone::clone);
        Some(McpOrigin { label, name: tool.to_string() })
    }
}

impl fmt::Debug for ToolOrigins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolOrigins").field("labels", &self.labels).finish_non_exhaustive()
    }
}

/// Returns the name `SERVER__TOOL` of a tool, which is the same in every naming scheme.
pub(crate) fn identity_name(label: &str, tool: &str) -> String {
    format!("{}__{}", Namespace::sanitize(label), ToolName::sanitize(tool))
}

/// Returns the pattern `SERVER__*` for all tools of a server.
pub(crate) fn identity_pattern(label: &str) -> String {
    format!("{}__*", Namespace::sanitize(label))
}

/// Returns an entry of a tool selection that selects MCP tools by their identity.
pub(crate) fn mcp_item(pattern: &str) -> String {
    format!("{MCP_ITEM_PREFIX}{pattern}")
}

/// Returns an entry of a tool selection that selects MCP tools by their identity and by their effects.
pub(crate) fn mcp_selection(pattern: &str, read_only: Option<bool>) -> String {
    match read_only {
        None => mcp_item(pattern),
        Some(true) => format!("{MCP_READING_PREFIX}{pattern}"),
        Some(false) => format!("{MCP_WRITING_PREFIX}{pattern}"),
    }
}

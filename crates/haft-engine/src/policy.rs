//! The operator's policy for each tool, and the default policy of all other tools.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use haft_core::name::{GroupName, ToolName};
use haft_core::provider::ProviderKind;
use haft_core::tool::{ApprovalPolicy, Effects, OutputPolicy, ToolPolicy};

use crate::catalog::CatalogEntry;

/// The timeout of a call when the operator sets none.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_mins(2);

/// The upper limit of every timeout when the operator sets none.
pub const TOOL_TIMEOUT_MAX_DEFAULT: Duration = Duration::from_mins(5);

/// The longest output of a call, in characters, when the operator sets no limit.
pub const OUTPUT_CHARS_MAX_DEFAULT: usize = 50_000;

/// The treatment of schemas that do not compile, and of output that does not match its schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UncheckedSchemas {
    /// Checks arguments for a schema that does not compile only for being an object, and returns structured output that
    /// does not match. The receipt records both.
    #[default]
    Called,
    /// Refuses a tool whose schema does not compile, and fails a call whose structured output does not match.
    Denied,
}

/// The policy, effects and groups of one tool.
#[derive(Debug, Clone, PartialEq)]
pub struct GovernedTool {
    /// The timeout, queue, cache and output limits of calls.
    pub policy: ToolPolicy,
    /// The effects that decide if calls of the tool may run at the same time as others.
    pub effects: Effects,
    /// The effects that a trusted source declares: built-in knowledge, an HTTP method, or the operator. An MCP server's
    /// own claims are not part of it, because this field decides if a call that may already have run is repeated.
    pub trusted_effects: Effects,
    /// The groups that a request or a rule may select the tool by; the provider's namespace is one of them.
    pub groups: Vec<GroupName>,
    /// Decides if the model sees the tool and may call it.
    pub activity: ToolActivity,
}

/// Decides if a tool is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolActivity {
    /// The model sees the tool, if the request selects it, and may call it.
    Active,
    /// The model neither sees nor may call the tool.
    Inactive {
        /// The reason, for the operator.
        why: String,
    },
}

impl ToolActivity {
    /// Returns true if the tool may be shown and called.
    pub fn is_active(&self) -> bool {
        match self {
            Self::Active => true,
            Self::Inactive { .. } => false,
        }
    }
}

/// Sets the policy of each tool. The catalog asks once per tool, on first use, so tools that a provider adds later get
/// a policy too.
pub trait Governor: Send + Sync {
    /// Returns the policy of a tool. `undecided` is the policy without a governor.
    fn govern(&self, tool: &CatalogEntry, undecided: GovernedTool) -> GovernedTool;

    /// Returns the reason why the operator keeps a tool out of the catalog; `None` if the operator does not. The
    /// orchestrator asks about a name that no tool has. A call of such a tool is denied, as one of an inactive tool is.
    fn exclusion(&self, written_name: &str) -> Option<String>;
}

/// The policies of all tools, by exposed name.
#[derive(Clone)]
pub struct ToolPolicies {
    /// The policy of a tool that `by_tool` does not name.
    pub default: ToolPolicy,
    /// The policies of single tools, by exposed name.
    pub by_tool: HashMap<ToolName, ToolPolicy>,
    /// Overrides the other two fields.
    pub governor: Option<Arc<dyn Governor>>,
}

impl ToolPolicies {
    /// Returns the policies that exist independently of a tool, for validation at start.
    pub fn all(&self) -> impl Iterator<Item = &ToolPolicy> {
        std::iter::once(&self.default).chain(self.by_tool.values())
    }

    /// Returns the policy of the tool before the governor changes it.
    pub fn of(&self, tool: &ToolName) -> &ToolPolicy {
        self.by_tool.get(tool).unwrap_or(&self.default)
    }

    pub(crate) fn exclusion(&self, written_name: &str) -> Option<String> {
        self.governor.as_ref()?.exclusion(written_name)
    }

    pub(crate) fn govern(&self, tool: &CatalogEntry) -> GovernedTool {
        let definition = tool.definition();
        let undecided = GovernedTool {
            policy: self.of(tool.exposed()).clone(),
            effects: definition.effects,
            trusted_effects: trusted_effects(tool.identity().kind, definition.effects),
            groups: with_origin(definition.groups.clone(), tool),
            activity: ToolActivity::Active,
        };
        match &self.governor {
            Some(governor) => governor.govern(tool, undecided),
            None => undecided,
        }
    }
}

fn trusted_effects(kind: ProviderKind, effects: Effects) -> Effects {
    match kind {
        ProviderKind::Builtin | ProviderKind::Rest => effects,
        ProviderKind::Mcp | ProviderKind::Agent | ProviderKind::Client => Effects::Unknown,
    }
}

/// Adds the group of the tool's origin: a server, an API specification, or the built-ins.
fn with_origin(mut groups: Vec<GroupName>, tool: &CatalogEntry) -> Vec<GroupName> {
    // Every namespace is a valid group name, so this never fails.
    let origin = GroupName::new(tool.identity().namespace.as_str()).ok();
    groups.extend(origin.filter(|origin| !groups.contains(origin)));
    groups
}

impl Default for ToolPolicies {
    fn default() -> Self {
        let default = ToolPolicy {
            timeout: TIMEOUT_DEFAULT,
            idle_timeout: None,
            output: OutputPolicy::Truncate { chars_max: OUTPUT_CHARS_MAX_DEFAULT },
            queue: None,
            priority: None,
            cache_ttl: None,
            approval: ApprovalPolicy::Allow,
        };
        Self { default, by_tool: HashMap::new(), governor: None }
    }
}

impl fmt::Debug for ToolPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies")
            .field("default", &self.default)
            .field("by_tool", &self.by_tool)
            .field("governor", &self.governor.is_some())
            .finish()
    }
}

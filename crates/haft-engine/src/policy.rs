//! The operator's policy for each tool, and the default policy for all other tools.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use haft_core::name::{GroupName, ToolName};
use haft_core::provider::ProviderKind;
use haft_core::tool::{ApprovalPolicy, Effects, OutputPolicy, ToolPolicy};
use haft_core::tool_lock::QUARANTINE_RULE;

use crate::catalog::CatalogEntry;

/// The timeout of a call if the operator sets none.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_mins(2);

/// The maximum for every timeout if the operator sets none.
pub const TOOL_TIMEOUT_MAX_DEFAULT: Duration = Duration::from_mins(5);

/// The maximum length of a call's output in characters, if the operator sets none.
pub const OUTPUT_CHARS_MAX_DEFAULT: usize = 50_000;

/// The treatment of schemas that do not compile, and of output that does not match its schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UncheckedSchemas {
    /// For a schema that does not compile, only checks that the arguments are an object. Returns structured output that
    /// does not match its schema. The receipt records both.
    #[default]
    Called,
    /// Refuses a tool whose schema does not compile, and fails a call whose structured output does not match its
    /// schema.
    Denied,
}

/// The policy, effects and groups of one tool.
#[derive(Debug, Clone, PartialEq)]
pub struct GovernedTool {
    /// The timeout, queue, cache and output limits of calls.
    pub policy: ToolPolicy,
    /// The effects that determine if calls to the tool may run at the same time as other calls.
    pub effects: Effects,
    /// The effects that a trusted source declares: haft's own code, an HTTP method, or the operator. An MCP server's
    /// own claims are not included, because this field decides if a call that may already have run is repeated.
    pub trusted_effects: Effects,
    /// The groups by which a request or a rule may select the tool. The provider's namespace is one of them.
    pub groups: Vec<GroupName>,
    /// Selects whether the model sees the tool and may call it.
    pub activity: ToolActivity,
}

/// Selects whether the model may see and call a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolActivity {
    /// The model may call the tool, and sees it if the request selects it.
    Active,
    /// The model neither sees the tool nor may call it.
    Inactive {
        /// The reason why the tool is inactive, for the operator.
        why: InactiveReason,
    },
}

/// The reason why a tool is inactive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InactiveReason {
    /// The configuration or an administrator turned the tool off.
    TurnedOff(String),
    /// The lock file withholds the tool until a person has reviewed it.
    Quarantined(&'static str),
}

impl InactiveReason {
    /// Returns the text of the rule that the audit data of a denied call names.
    pub(crate) fn rule(&self) -> Option<Arc<str>> {
        match self {
            Self::TurnedOff(_) => None,
            Self::Quarantined(_) => Some(QUARANTINE_RULE.into()),
        }
    }
}

impl fmt::Display for InactiveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TurnedOff(why) => f.write_str(why),
            Self::Quarantined(why) => f.write_str(why),
        }
    }
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

/// Sets the policy of each tool. The catalog calls it once per tool, on first use, so tools that a provider adds later
/// get a policy too.
pub trait Governor: Send + Sync {
    /// Returns the policy of a tool. `undecided` is the policy that applies without a governor.
    fn govern(&self, tool: &CatalogEntry, undecided: GovernedTool) -> GovernedTool;

    /// Returns the reason why the operator excludes a tool from the catalog, or `None` if the operator does not. The
    /// orchestrator calls this for a name that no tool has. A call to an excluded tool is denied, like a call to an
    /// inactive tool.
    fn exclusion(&self, written_name: &str) -> Option<String>;

    /// Returns true if the activity of this tool depends on its definition. Before each call, the orchestrator then
    /// waits for the current definition of the tool, and decides about the activity again.
    fn judges_definition(&self, _tool: &CatalogEntry) -> bool {
        false
    }
}

/// The policies of all tools, by exposed name.
#[derive(Clone)]
pub struct ToolPolicies {
    /// The policy of a tool that is not in `by_tool`.
    pub default: ToolPolicy,
    /// The policies of single tools, by exposed name.
    pub by_tool: HashMap<ToolName, ToolPolicy>,
    /// The governor, which overrides the other two fields.
    pub governor: Option<Arc<dyn Governor>>,
}

impl ToolPolicies {
    /// Returns the default policy and the policies of single tools, but not the policies of the governor.
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

    pub(crate) fn judges_definition(&self, tool: &CatalogEntry) -> bool {
        self.governor.as_ref().is_some_and(|governor| governor.judges_definition(tool))
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

/// Adds the group for the tool's origin: a server, an API specification, or the built-in tools.
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
        f.debug_struct("ToolPolicies")
            .field("default", &self.default)
            .field("by_tool", &self.by_tool)
            .field("governor", &self.governor.is_some())
            .finish()
    }
}

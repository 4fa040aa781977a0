//! What the operator decides about each tool, and what holds for a tool nobody decided about.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use haft_core::name::{GroupName, ToolName};
use haft_core::provider::ProviderKind;
use haft_core::tool::{Approval, Effects, OutputPolicy, ToolPolicy};

use crate::catalog::CatalogEntry;

/// How long a call may take when the operator says nothing.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_mins(2);

/// How long any call may take, whatever else the operator says.
pub const TOOL_TIMEOUT_MAX_DEFAULT: Duration = Duration::from_mins(5);

/// How much text a call may give when the operator says nothing.
pub const OUTPUT_CHARS_MAX_DEFAULT: usize = 50_000;

/// What becomes of what cannot be checked, or was checked and does not fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UncheckedSchemas {
    /// Arguments for a schema that does not compile are only checked to be an object; structured output that does not
    /// fit is given all the same. The receipt says so.
    #[default]
    Called,
    /// A tool whose schema does not compile is not called; structured output that does not fit is a failure.
    Denied,
}

/// All that holds for one tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Governed {
    pub policy: ToolPolicy,
    pub effects: Effects,
    /// The same, as far as somebody answers for it: built-in knowledge, a method of HTTP, the operator. What a server says
    /// of itself is not in it, because a call that may have been made is made again only by this.
    pub assured: Effects,
    pub groups: Vec<GroupName>,
    pub activity: Activity,
}

/// Whether a tool is to be used at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    Active,
    /// It is neither shown nor called.
    Inactive {
        why: String,
    },
}

impl Activity {
    pub fn is_active(&self) -> bool {
        match self {
            Self::Active => true,
            Self::Inactive { .. } => false,
        }
    }
}

/// Decides about tools as they come. Asked once for each tool, when it is first looked at, so that a tool that a
/// provider adds later is governed like those that were there.
pub trait Governor: Send + Sync {
    /// `undecided` is what holds otherwise.
    fn govern(&self, tool: &CatalogEntry, undecided: Governed) -> Governed;
}

/// A policy for every tool, by exposed name.
#[derive(Clone)]
pub struct Policies {
    pub default: ToolPolicy,
    pub by_tool: HashMap<ToolName, ToolPolicy>,
    /// Has the last word.
    pub governor: Option<Arc<dyn Governor>>,
}

impl Policies {
    /// Those that are known without a tool.
    pub fn all(&self) -> impl Iterator<Item = &ToolPolicy> {
        std::iter::once(&self.default).chain(self.by_tool.values())
    }

    pub fn of(&self, tool: &ToolName) -> &ToolPolicy {
        self.by_tool.get(tool).unwrap_or(&self.default)
    }

    pub(crate) fn govern(&self, tool: &CatalogEntry) -> Governed {
        let definition = tool.definition();
        let undecided = Governed {
            policy: self.of(tool.exposed()).clone(),
            effects: definition.effects,
            assured: assured(tool.identity().kind, definition.effects),
            groups: with_origin(definition.groups.clone(), tool),
            activity: Activity::Active,
        };
        match &self.governor {
            Some(governor) => governor.govern(tool, undecided),
            None => undecided,
        }
    }
}

fn assured(kind: ProviderKind, effects: Effects) -> Effects {
    match kind {
        ProviderKind::Builtin | ProviderKind::Rest => effects,
        ProviderKind::Mcp | ProviderKind::Agent | ProviderKind::Client => Effects::Unknown,
    }
}

/// Every tool is in the group of where it comes from: a server, a spec, the built-ins.
fn with_origin(mut groups: Vec<GroupName>, tool: &CatalogEntry) -> Vec<GroupName> {
    // Every namespace is a legal name of a group.
    let origin = GroupName::new(tool.identity().namespace.as_str()).ok();
    groups.extend(origin.filter(|origin| !groups.contains(origin)));
    groups
}

impl Default for Policies {
    fn default() -> Self {
        let default = ToolPolicy {
            timeout: TIMEOUT_DEFAULT,
            idle_timeout: None,
            output: OutputPolicy::Truncate { chars_max: OUTPUT_CHARS_MAX_DEFAULT },
            queue: None,
            priority: None,
            cache_ttl: None,
            approval: Approval::Allow,
        };
        Self { default, by_tool: HashMap::new(), governor: None }
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies")
            .field("default", &self.default)
            .field("by_tool", &self.by_tool)
            .field("governor", &self.governor.is_some())
            .finish()
    }
}

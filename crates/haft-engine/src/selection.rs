//! The tools that one request may use.

use std::sync::Arc;

use haft_core::glob::ToolGlob;
use haft_core::name::{GroupName, ToolName};
use haft_core::naming::ToolIdentity;
use haft_core::tool::Effects;

/// The tools that a request selects. A filter can only narrow: a request cannot select a tool that the operator
/// disabled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolFilter {
    /// The request selects all active tools.
    #[default]
    All,
    /// The request selects the tools that match at least one of these items.
    Only(Arc<[ToolFilterItem]>),
    /// The request selects the tools that each of these filters selects.
    Every(Arc<[ToolFilter]>),
}

/// One group or tool-name pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolFilterItem {
    /// All tools in this group.
    Group(GroupName),
    /// All tools whose exposed name matches.
    Tool(ToolGlob),
    /// All tools of MCP servers for which `SERVER__TOOL` matches, whatever their exposed names are.
    McpTool(ToolGlob),
    /// Like [`McpTool`](Self::McpTool), but only the tools that change nothing.
    ReadingMcpTool(ToolGlob),
    /// Like [`McpTool`](Self::McpTool), but only the tools that may change something.
    WritingMcpTool(ToolGlob),
}

impl ToolFilterItem {
    fn covers(
        &self,
        tool: &ToolName,
        identity: &ToolIdentity,
        groups: &[GroupName],
        effects: Effects,
    ) -> bool {
        let of_server = |glob: &ToolGlob| identity.mcp_name().is_some_and(|name| glob.matches(&name));
        // Trust the effects that a server declares: a selection only removes tools, so a false declaration gives no
        // further access.
        let is_reading = effects == Effects::ReadOnly;
        match self {
            Self::Group(group) => groups.contains(group),
            Self::Tool(glob) => glob.matches(tool.as_str()),
            Self::McpTool(glob) => of_server(glob),
            Self::ReadingMcpTool(glob) => is_reading && of_server(glob),
            Self::WritingMcpTool(glob) => !is_reading && of_server(glob),
        }
    }
}

impl ToolFilter {
    /// Creates a filter for the tools that match at least one item. An empty list selects no tools.
    pub fn of(picks: impl IntoIterator<Item = ToolFilterItem>) -> Self {
        Self::Only(picks.into_iter().collect())
    }

    /// Returns a filter for the tools that both filters select.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, one) | (one, Self::All) => one,
            (one, other) => Self::Every([one, other].into()),
        }
    }

    /// Returns true if the selection includes a tool with this exposed name, this identity, these groups and these
    /// effects.
    pub fn covers(
        &self,
        tool: &ToolName,
        identity: &ToolIdentity,
        groups: &[GroupName],
        effects: Effects,
    ) -> bool {
        match self {
            Self::All => true,
            Self::Only(picks) => picks.iter().any(|pick| pick.covers(tool, identity, groups, effects)),
            Self::Every(filters) => {
                filters.iter().all(|filter| filter.covers(tool, identity, groups, effects))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use haft_core::name::Namespace;
    use haft_core::provider::ProviderKind;

    use super::*;

    fn identity(kind: ProviderKind) -> ToolIdentity {
        ToolIdentity { kind, namespace: Namespace::sanitize("git"), tool: ToolName::new("log").unwrap() }
    }

    #[test]
    fn tool_filter_selects_a_tool_that_matches_any_item() {
        let group = |name: &str| ToolFilterItem::Group(GroupName::new(name).unwrap());
        let tool = |glob: &str| ToolFilterItem::Tool(ToolGlob::new(glob).unwrap());
        let check = |selection: ToolFilter, expected: bool| {
            let groups = [GroupName::new("files").unwrap(), GroupName::new("git").unwrap()];
            assert_eq!(
                selection.covers(
                    &ToolName::new("git__log").unwrap(),
                    &identity(ProviderKind::Mcp),
                    &groups,
                    Effects::Unknown
                ),
                expected
            );
        };
        check(ToolFilter::All, true);
        check(ToolFilter::of([]), false);
        check(ToolFilter::of([group("git")]), true);
        check(ToolFilter::of([group("web"), group("files")]), true);
        check(ToolFilter::of([group("web")]), false);
        check(ToolFilter::of([tool("GIT__*")]), true);
        check(ToolFilter::of([tool("log")]), false);
        check(ToolFilter::of([group("git")]).and(ToolFilter::of([tool("git__*")])), true);
        check(ToolFilter::of([group("git")]).and(ToolFilter::of([tool("log")])), false);
        check(ToolFilter::All.and(ToolFilter::of([])), false);
        assert_eq!(ToolFilter::All.and(ToolFilter::All), ToolFilter::All);
    }

    #[test]
    fn server_pattern_covers_the_tools_of_a_server_in_every_naming_scheme() {
        let check = |glob: &str, kind: ProviderKind, expected: bool| {
            let selection = ToolFilter::of([ToolFilterItem::McpTool(ToolGlob::new(glob).unwrap())]);
            for exposed in ["git__log", "mcp__git__log", "git_log", "log"] {
                let name = ToolName::new(exposed).unwrap();
                let found = selection.covers(&name, &identity(kind), &[], Effects::Unknown);
                assert_eq!(found, expected, "{glob} {kind:?} {exposed}");
            }
        };
        check("git__*", ProviderKind::Mcp, true);
        check("git__log", ProviderKind::Mcp, true);
        check("*", ProviderKind::Mcp, true);
        check("docs__*", ProviderKind::Mcp, false);
        check("git__push", ProviderKind::Mcp, false);
        for other in [ProviderKind::Builtin, ProviderKind::Rest, ProviderKind::Agent, ProviderKind::Client] {
            check("*", other, false);
        }
    }
    #[test]
    fn effect_items_select_only_mcp_tools_with_these_effects() {
        let check = |item: fn(ToolGlob) -> ToolFilterItem, effects: Effects, expected: bool| {
            let selection = ToolFilter::of([item(ToolGlob::new("git__*").unwrap())]);
            let name = ToolName::new("git__log").unwrap();
            assert_eq!(selection.covers(&name, &identity(ProviderKind::Mcp), &[], effects), expected);
            assert!(!selection.covers(&name, &identity(ProviderKind::Rest), &[], effects));
        };
        for effects in [Effects::Mutating, Effects::Unknown] {
            check(ToolFilterItem::ReadingMcpTool, effects, false);
            check(ToolFilterItem::WritingMcpTool, effects, true);
        }
        check(ToolFilterItem::ReadingMcpTool, Effects::ReadOnly, true);
        check(ToolFilterItem::WritingMcpTool, Effects::ReadOnly, false);
    }
}

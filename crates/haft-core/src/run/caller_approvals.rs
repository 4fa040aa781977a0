//! Approvals that the caller of a run requires in addition to the approvals that the operator's rules require.
//!
//! They only add restrictions: a call that the rules deny stays denied, and a call that needs approval by the rules
//! still needs it.

use crate::glob::ToolGlob;
use crate::tool::Effects;

/// The reason shown to the person and in the audit record.
pub const CALLER_REQUIRES: &str = "the request requires approval";

/// Selects calls that the caller wants to approve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerApproval {
    /// The tools to which this entry applies, usually the tools of one MCP server. For an MCP tool, the pattern is
    /// compared with [`ToolIdentity::mcp_name`](crate::naming::ToolIdentity::mcp_name), because the exposed name
    /// depends on the naming scheme. For any other tool, it is compared with the exposed name.
    pub tools: ToolGlob,
    /// The tools whose calls need approval.
    pub always: Option<ToolSelector>,
    /// The tools whose calls need no approval. If this is set, calls to all other tools need approval.
    pub never: Option<ToolSelector>,
}

/// Selects tools by name, by effects, or by both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolSelector {
    /// The names, in the form of [`CallerApproval::tools`]; `None` selects every name.
    pub names: Option<Vec<ToolGlob>>,
    /// Selects the tools that change nothing (`true`) or all others (`false`).
    pub read_only: Option<bool>,
}

impl CallerApproval {
    /// Returns true if the caller wants to approve calls of this tool.
    pub fn requires(&self, tool: &str, effects: Effects) -> bool {
        let selects =
            |selector: &Option<ToolSelector>| selector.as_ref().map(|one| one.selects(tool, effects));
        self.tools.matches(tool)
            && (selects(&self.always) == Some(true) || selects(&self.never) == Some(false))
    }
}

impl ToolSelector {
    fn selects(&self, tool: &str, effects: Effects) -> bool {
        let is_named = self.names.as_ref().is_none_or(|names| names.iter().any(|name| name.matches(tool)));
        is_named && self.read_only.is_none_or(|wanted| wanted == (effects == Effects::ReadOnly))
    }
}

/// The calls that the approver of a run may approve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApproverAuthority {
    /// The approver may decide about every call that needs approval.
    #[default]
    AllCalls,
    /// The approver may decide only about calls that the caller itself wants to approve. If the operator's rules
    /// require approval, the call is denied.
    CallersOwn,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(names: Option<&[&str]>, read_only: Option<bool>) -> ToolSelector {
        let glob = |name: &&str| ToolGlob::new(name).unwrap();
        ToolSelector { names: names.map(|names| names.iter().map(glob).collect()), read_only }
    }

    #[test]
    fn caller_requires_approval_by_name_and_by_effects() {
        let check = |always: Option<ToolSelector>, never: Option<ToolSelector>, expected: [bool; 3]| {
            let entry = CallerApproval { tools: ToolGlob::new("docs__*").unwrap(), always, never };
            let tools = [
                ("docs__read", Effects::ReadOnly),
                ("docs__write", Effects::Mutating),
                ("other__write", Effects::Mutating),
            ];
            let found = tools.map(|(tool, effects)| entry.requires(tool, effects));
            assert_eq!(found, expected, "{entry:?}");
        };
        let all = selector(None, None);
        check(None, None, [false, false, false]);
        check(Some(all.clone()), None, [true, true, false]);
        check(Some(selector(Some(&["docs__write"]), None)), None, [false, true, false]);
        check(Some(selector(None, Some(false))), None, [false, true, false]);
        check(None, Some(all.clone()), [false, false, false]);
        check(None, Some(selector(None, Some(true))), [false, true, false]);
        check(None, Some(selector(Some(&["docs__write"]), Some(true))), [true, true, false]);
        check(Some(selector(Some(&["docs__read"]), None)), Some(all), [true, false, false]);
    }
}

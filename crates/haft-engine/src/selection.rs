//! The tools that one request may use.

use std::sync::Arc;

use haft_core::glob::ToolGlob;
use haft_core::name::{GroupName, ToolName};

/// The selection of a request. It only narrows: a request cannot select a tool that the operator disabled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Selection {
    /// All active tools.
    #[default]
    All,
    /// The tools that match at least one of these.
    Only(Arc<[Pick]>),
}

/// One group or tool-name pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    /// Every tool of this group.
    Group(GroupName),
    /// Every tool whose exposed name matches.
    Tool(ToolGlob),
}

impl Selection {
    /// Selects the tools that match at least one of the picks; no picks select no tools.
    pub fn of(picks: impl IntoIterator<Item = Pick>) -> Self {
        Self::Only(picks.into_iter().collect())
    }

    /// Returns true if the selection includes a tool with this exposed name and these groups.
    pub fn covers(&self, tool: &ToolName, groups: &[GroupName]) -> bool {
        match self {
            Self::All => true,
            Self::Only(picks) => picks.iter().any(|pick| match pick {
                Pick::Group(group) => groups.contains(group),
                Pick::Tool(glob) => glob.matches(tool.as_str()),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_choice_is_enough_and_none_chooses_nothing() {
        let group = |name: &str| Pick::Group(GroupName::new(name).unwrap());
        let tool = |glob: &str| Pick::Tool(ToolGlob::new(glob).unwrap());
        let check = |selection: Selection, expected: bool| {
            let groups = [GroupName::new("files").unwrap(), GroupName::new("git").unwrap()];
            assert_eq!(selection.covers(&ToolName::new("git__log").unwrap(), &groups), expected);
        };
        check(Selection::All, true);
        check(Selection::of([]), false);
        check(Selection::of([group("git")]), true);
        check(Selection::of([group("web"), group("files")]), true);
        check(Selection::of([group("web")]), false);
        check(Selection::of([tool("GIT__*")]), true);
        check(Selection::of([tool("log")]), false);
    }
}

//! Tools and groups of tools that an administrator turned off while a server runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use crate::change_counter::ChangeCounter;
use crate::name::GroupName;
use crate::naming::ToolIdentity;

/// The tools and groups that are turned off now. Clones share the state, so that a change affects the next call of
/// every run.
#[derive(Debug, Clone, Default)]
pub struct ToolSwitches(Arc<SwitchState>);

#[derive(Debug, Default)]
struct SwitchState {
    off: RwLock<Arc<TurnedOffTools>>,
    changes: ChangeCounter,
}

/// The tools and groups that are turned off, each with the reason that a refused call gets. A tool is listed by its
/// identity, because its exposed name can change when another server is added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnedOffTools {
    /// Single tools that are turned off.
    pub tools: HashMap<ToolIdentity, String>,
    /// Groups that are turned off. A tool is off if any of its groups is off.
    pub groups: BTreeMap<GroupName, String>,
}

impl TurnedOffTools {
    /// Returns the reason why the tool is off; `None` if it is not.
    pub fn reason(&self, tool: &ToolIdentity, groups: &[GroupName]) -> Option<&str> {
        let of_group = || groups.iter().find_map(|group| self.groups.get(group));
        self.tools.get(tool).or_else(of_group).map(String::as_str)
    }
}

impl ToolSwitches {
    /// Replaces the tools and groups that are turned off, starting with the next call.
    pub fn replace(&self, off: TurnedOffTools) {
        *self.0.off.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(off);
        self.0.changes.announce();
    }

    /// Returns the tools and groups that are turned off.
    pub fn current(&self) -> Arc<TurnedOffTools> {
        Arc::clone(&self.0.off.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the counter that announces each change.
    pub fn changes(&self) -> &ChangeCounter {
        &self.0.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{Namespace, ToolName};
    use crate::provider::ProviderKind;

    #[test]
    fn tool_is_turned_off_by_its_identity_or_by_any_of_its_groups() {
        let identity = |tool: &str| ToolIdentity {
            kind: ProviderKind::Mcp,
            namespace: Namespace::new("docs").unwrap(),
            tool: ToolName::new(tool).unwrap(),
        };
        let group = |name: &str| GroupName::new(name).unwrap();
        let switches = ToolSwitches::default();
        let (seen, held) = (switches.changes().count(), switches.clone());
        let tools = [(identity("add"), "by a".to_owned())].into();
        switches.replace(TurnedOffTools { tools, groups: [(group("web"), "by b".to_owned())].into() });
        let check = |tool: &str, groups: &[GroupName], expected: Option<&str>| {
            assert_eq!(held.current().reason(&identity(tool), groups), expected, "{tool} {groups:?}");
        };
        check("add", &[], Some("by a"));
        check("look", &[], None);
        check("look", &[group("docs"), group("web")], Some("by b"));
        check("look", &[group("docs")], None);
        assert_ne!(held.changes().count(), seen, "the change counter of every clone increases");
    }
}

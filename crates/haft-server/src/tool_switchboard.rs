//! Turns tools and groups off for all runs of the server, and on again. Turning a tool on never activates a tool that
//! the configuration or the lock file deactivates.

use std::io;

use haft_core::name::{GroupName, Namespace, ToolName};
use haft_core::naming::ToolIdentity;
use haft_core::principal::Principal;
use haft_core::provider::ProviderKind;
use haft_core::tool_switches::{ToolSwitches, TurnedOffTools};
use haft_runtime::Runtime;
use haft_store::tool_switches::{StoredSwitches, SwitchedBy, ToolSwitchStore, TurnedOffGroup, TurnedOffTool};
use tokio::sync::Mutex;

use crate::auth::now_ms;
use crate::error::{ApiError, ApiErrorKind};
use crate::responses::blocking;

/// The maximum number of tools, and of groups, that can be turned off.
const SWITCHES_MAX: usize = 1_000;

/// The tool switches of the server: the stored switches, and the switches that runs see.
#[derive(Debug)]
pub(crate) struct ToolSwitchboard {
    store: ToolSwitchStore,
    switches: ToolSwitches,
    /// The lock that is held during a change. Without it, runs could see two changes in another order than the file.
    changing: Mutex<()>,
}

/// The new state of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SwitchPosition {
    On,
    Off,
}

/// A tool or a group to turn on or off.
#[derive(Debug, Clone)]
pub(crate) enum SwitchTarget {
    Tool {
        name: ToolName,
        identity: ToolIdentity,
    },
    /// A tool that no provider offers now.
    MissingTool {
        name: String,
    },
    Group(GroupName),
}

impl ToolSwitchboard {
    /// Reads the stored switches, and applies them to the runs of the runtime.
    pub(crate) fn open(runtime: &Runtime) -> io::Result<Self> {
        let (store, switches) = (ToolSwitchStore::of(runtime.home()), runtime.switches());
        switches.replace(turned_off(&store.load()?));
        Ok(Self { store, switches, changing: Mutex::default() })
    }

    /// Returns the tools and groups that are turned off.
    pub(crate) async fn stored(&self) -> Result<StoredSwitches, ApiError> {
        let store = self.store.clone();
        blocking(move || store.load()).await
    }

    /// Stores the new position, then applies it to all later calls.
    pub(crate) async fn set(
        &self,
        target: SwitchTarget,
        position: SwitchPosition,
        by: &Principal,
    ) -> Result<(), ApiError> {
        let _one = self.changing.lock().await;
        let before = self.stored().await?;
        check_count(&before, position)?;
        let by = SwitchedBy { principal: by.to_string(), at_ms: now_ms() };
        let store = self.store.clone();
        let stored =
            blocking(move || store.change(|switches| change(switches, target, position, by))).await?;
        self.switches.replace(turned_off(&stored));
        Ok(())
    }
}

/// Refuses to turn off more tools or groups than the file may contain.
fn check_count(before: &StoredSwitches, position: SwitchPosition) -> Result<(), ApiError> {
    let is_full = before.tools.len() >= SWITCHES_MAX || before.groups.len() >= SWITCHES_MAX;
    match position {
        SwitchPosition::Off if is_full => {
            let message = format!(
                "the maximum of {SWITCHES_MAX} turned-off tools or groups is reached; turn off a group instead"
            );
            Err(ApiError::new(ApiErrorKind::Conflict, message))
        }
        SwitchPosition::Off | SwitchPosition::On => Ok(()),
    }
}

/// Changes one switch. If a tool is already off, turning it off again keeps the first administrator and time.
fn change(switches: &mut StoredSwitches, target: SwitchTarget, position: SwitchPosition, by: SwitchedBy) {
    match (target, position) {
        (SwitchTarget::Tool { name, identity }, SwitchPosition::Off) => {
            if !switches.tools.iter().any(|tool| is_it(tool, &identity)) {
                switches.tools.push(TurnedOffTool {
                    name: name.as_str().to_owned(),
                    kind: identity.kind.name().to_owned(),
                    namespace: identity.namespace.as_str().to_owned(),
                    tool: identity.tool.as_str().to_owned(),
                    by,
                });
            }
        }
        (SwitchTarget::Tool { identity, .. }, SwitchPosition::On) => {
            switches.tools.retain(|tool| !is_it(tool, &identity));
        }
        (SwitchTarget::MissingTool { name }, SwitchPosition::On) => {
            switches.tools.retain(|tool| tool.name != name);
        }
        (SwitchTarget::MissingTool { .. }, SwitchPosition::Off) => {}
        (SwitchTarget::Group(group), SwitchPosition::Off) => {
            if !switches.groups.iter().any(|known| known.name == group.as_str()) {
                switches.groups.push(TurnedOffGroup { name: group.as_str().to_owned(), by });
            }
        }
        (SwitchTarget::Group(group), SwitchPosition::On) => {
            switches.groups.retain(|known| known.name != group.as_str());
        }
    }
}

fn is_it(tool: &TurnedOffTool, identity: &ToolIdentity) -> bool {
    tool.kind == identity.kind.name()
        && tool.namespace == identity.namespace.as_str()
        && tool.tool == identity.tool.as_str()
}

/// Returns the switches in the form that the engine reads. The reason of each names the administrator who turned the
/// tool off, and the request that turns it on again.
fn turned_off(stored: &StoredSwitches) -> TurnedOffTools {
    let tools = stored.tools.iter().filter_map(|tool| {
        let identity = ToolIdentity {
            kind: ProviderKind::from_name(&tool.kind)?,
            namespace: Namespace::new(&tool.namespace).ok()?,
            tool: ToolName::new(&tool.tool).ok()?,
        };
        Some((identity, reason("this tool", &tool.by, "tools", &tool.name)))
    });
    let groups = stored.groups.iter().filter_map(|group| {
        let what = format!("the group `{}`", group.name);
        Some((GroupName::new(&group.name).ok()?, reason(&what, &group.by, "groups", &group.name)))
    });
    TurnedOffTools { tools: tools.collect(), groups: groups.collect() }
}

fn reason(what: &str, by: &SwitchedBy, route: &str, name: &str) -> String {
    let principal = &by.principal;
    format!(
        "`{principal}` turned off {what}; to turn {what} on, send `PUT /api/v1/{route}/{name}` with \
         `{{\"active\": true}}` and a key with the scope `admin`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by() -> SwitchedBy {
        SwitchedBy { principal: "acme/root".into(), at_ms: 1 }
    }

    fn tool(name: &str) -> TurnedOffTool {
        let (kind, namespace) = ("mcp".to_owned(), "docs".to_owned());
        TurnedOffTool { name: format!("docs__{name}"), kind, namespace, tool: name.to_owned(), by: by() }
    }

    #[test]
    fn missing_tool_can_be_turned_on_but_not_off() {
        let mut switches = StoredSwitches { tools: vec![tool("add"), tool("look")], groups: Vec::new() };
        let missing = || SwitchTarget::MissingTool { name: "docs__add".into() };
        change(&mut switches, missing(), SwitchPosition::On, by());
        assert_eq!(switches.tools, [tool("look")]);
        change(&mut switches, missing(), SwitchPosition::Off, by());
        assert_eq!(switches.tools, [tool("look")]);
    }

    #[test]
    fn full_switch_file_allows_turning_tools_on_but_not_off() {
        let tools: Vec<TurnedOffTool> = (0..SWITCHES_MAX).map(|number| tool(&format!("t{number}"))).collect();
        let full = StoredSwitches { tools: tools.clone(), groups: Vec::new() };
        assert!(check_count(&full, SwitchPosition::Off).is_err());
        assert!(check_count(&full, SwitchPosition::On).is_ok());
        let room = StoredSwitches { tools: tools[1..].to_vec(), groups: Vec::new() };
        assert!(check_count(&room, SwitchPosition::Off).is_ok());
    }
}

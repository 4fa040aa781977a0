//! Tells the model which accesses the sandbox of a run allows. Without this text, a model repeats a download or a write
//! that the sandbox refuses.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use haft_core::tool::ToolDefinition;
use haft_sandbox::{ResourceAccess, SandboxMode, SandboxPolicy};

use super::{Builtin, DEFINITIONS};

/// The definition lists in use, each with its text about the sandbox. Runs with equal sandboxes share one list, because
/// 1,000 concurrent runs would otherwise hold 1,000 copies and compile each schema 1,000 times.
static IN_USE: Mutex<Vec<(String, Weak<[ToolDefinition]>)>> = Mutex::new(Vec::new());

/// Returns the definitions of the built-in tools. The description of `bash` states the limits of this policy.
pub(super) fn definitions_under(policy: &SandboxPolicy) -> Arc<[ToolDefinition]> {
    let text = confinement_text(policy);
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let found = in_use.iter().find(|(of, _)| *of == text).and_then(|(_, list)| list.upgrade());
    if let Some(found) = found {
        return found;
    }
    in_use.retain(|(_, list)| list.strong_count() > 0);
    let made: Arc<[ToolDefinition]> = DEFINITIONS.iter().map(|tool| with_text(tool, &text)).collect();
    in_use.push((text, Arc::downgrade(&made)));
    made
}

fn with_text(tool: &ToolDefinition, text: &str) -> ToolDefinition {
    let mut tool = tool.clone();
    if tool.name.as_str() == Builtin::Bash.name() {
        tool.description = format!("{} {text}", tool.description);
    }
    tool
}

/// Describes the policy for the model. The text does not contain the path of the workspace, so that it is the same in
/// every project and the prompt cache of the provider stays valid.
fn confinement_text(policy: &SandboxPolicy) -> String {
    let network = match policy.confinement().network {
        ResourceAccess::Allow => "The network is open.",
        ResourceAccess::Deny => "There is no network.",
    };
    let more: Vec<String> =
        policy.writable_roots().iter().skip(2).map(|root| format!("`{}`", root.display())).collect();
    match policy.mode() {
        SandboxMode::Full => format!("Here it may write almost everywhere. {network}"),
        SandboxMode::Workspace | SandboxMode::Network if more.is_empty() => {
            format!("Here it may write in the workspace and in `/tmp` only. {network}")
        }
        SandboxMode::Workspace | SandboxMode::Network => {
            format!(
                "Here it may write in the workspace, in `/tmp` and in {} only. {network}",
                more.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use haft_sandbox::Home;

    use super::*;

    #[test]
    fn bash_description_states_the_sandbox_limits() {
        let place = tempfile::tempdir().unwrap();
        let directory = |name: &str| {
            let path = place.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path.canonicalize().unwrap()
        };
        let home = Home::at(&directory("home"));
        let policy = |mode: SandboxMode, workspace: &str| {
            SandboxPolicy::new(mode, &directory(workspace), &home, None).unwrap()
        };
        let bash = |policy: &SandboxPolicy| definitions_under(policy)[0].description.clone();
        let closed = policy(SandboxMode::Workspace, "a");
        let end = "Here it may write in the workspace and in `/tmp` only. There is no network.";
        assert!(bash(&closed).ends_with(end), "{}", bash(&closed));
        let open = closed.clone().network(ResourceAccess::Allow).writable(&directory("more")).unwrap();
        let end = format!("and in `{}` only. The network is open.", directory("more").display());
        assert!(bash(&open).ends_with(&end), "{}", bash(&open));
        assert!(bash(&policy(SandboxMode::Full, "a")).contains("almost everywhere. The network is open."));
        let (here, there) =
            (definitions_under(&closed), definitions_under(&policy(SandboxMode::Workspace, "b")));
        assert!(Arc::ptr_eq(&here, &there));
        assert!(here[1..].iter().all(|tool| !tool.description.contains("network")));
    }
}

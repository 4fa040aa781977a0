//! The tool choice of a caller, with the names that the model sees. A caller can only narrow the choice of its agent.

use haft_core::glob::ToolGlob;
use haft_core::internal_tools::is_own_tool;
use haft_core::model_request::{MustCall, ToolChoice};
use haft_core::name::GroupName;
use haft_core::naming::MCP_ITEM_PREFIX;
use haft_core::run::RunPlan;
use haft_core::run::context::RunContext;
use haft_engine::OfferedTool;

use super::prepared_agent::PreparedAgent;
use crate::spec::RunSpec;
use haft_config::printable;

/// The tools that a caller lets the model call, with the names that the model sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerChoice {
    /// The tools that the model may or must call. If a call is required, it is required only until the model has made
    /// one.
    pub tool_choice: ToolChoice,
    /// The only tools that the model may call in any turn; `None` if the caller sets no such limit.
    pub allowed_tools: Option<Vec<String>>,
}

impl Default for CallerChoice {
    fn default() -> Self {
        Self::of(ToolChoice::Auto)
    }
}

impl CallerChoice {
    fn of(tool_choice: ToolChoice) -> Self {
        Self { tool_choice, allowed_tools: None }
    }

    /// Narrows the plan of an agent. An agent that takes over the request may contradict the caller; then its own
    /// choice stays, and the limit of the caller applies too.
    pub(super) fn narrow(&self, plan: RunPlan) -> RunPlan {
        let own = plan.tool_choice.clone();
        let narrowed = narrowed(own.clone(), self.tool_choice.clone()).unwrap_or_else(|_| Self::of(own));
        let limit = both(narrowed.allowed_tools, self.allowed_tools.clone());
        RunPlan { tool_choice: narrowed.tool_choice, allowed_tools: both(plan.allowed_tools, limit), ..plan }
    }
}

impl PreparedAgent {
    /// Returns the choice of a caller, or the reason why the agent, its tools and the caller's functions cannot meet it.
    /// Call this method once the tools are ready.
    pub fn caller_choice(&self, spec: &RunSpec, run: &RunContext) -> Result<CallerChoice, String> {
        if let (ToolChoice::Auto, None) = (&spec.tool_choice, &spec.allowed_tools) {
            return Ok(CallerChoice::default());
        }
        let shown = self.orchestrator().tools(&self.selection(), run);
        let names = |names: &[String]| self.resolved(names, spec, &shown);
        let tool_choice = match &spec.tool_choice {
            ToolChoice::Named(name) => named(names(std::slice::from_ref(name))?),
            ToolChoice::Allowed { names: listed, must_call } => {
                ToolChoice::Allowed { names: names(listed)?, must_call: *must_call }
            }
            plain @ (ToolChoice::Auto | ToolChoice::None | ToolChoice::Required) => plain.clone(),
        };
        let allowed_tools = spec.allowed_tools.as_deref().map(names).transpose()?;
        let together = narrowed(self.tool_choice(), tool_choice.clone())?;
        let lists = [self.allowed_tools(), together.allowed_tools, allowed_tools.clone()];
        let functions = spec.functions.iter().map(|function| function.name.as_str());
        let theirs = shown.iter().map(|tool| tool.entry.exposed().as_str());
        let is_allowed = |name: &&str| lists.iter().flatten().all(|list| list.iter().any(|one| one == name));
        let callable: Vec<&str> = theirs.chain(functions).filter(is_allowed).collect();
        check(&together.tool_choice, &callable, self.run_tools())?;
        Ok(CallerChoice { tool_choice, allowed_tools })
    }

    /// Returns the names that the model sees. A name of the caller can mean several tools.
    fn resolved(
        &self,
        names: &[String],
        spec: &RunSpec,
        shown: &[OfferedTool],
    ) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        for name in names {
            let is_callers =
                spec.functions.iter().any(|function| function.name == *name) || is_own_tool(name);
            let meant = if is_callers { vec![name.clone()] } else { self.chosen_tools(name, shown) };
            if meant.is_empty() {
                return Err(format!("there is no tool `{}`", printable(name)));
            }
            found.extend(meant);
        }
        Ok(found)
    }

    /// Returns the exposed names of the shown tools that a name in a tool choice means: `mcp:SERVER__TOOL` is a pattern
    /// for tools of MCP servers, and any other text is one of the names of a tool, or else the name of a group.
    fn chosen_tools(&self, name: &str, shown: &[OfferedTool]) -> Vec<String> {
        let glob = name.strip_prefix(MCP_ITEM_PREFIX).and_then(|pattern| ToolGlob::new(pattern).ok());
        let exposed = self.exposed_name(name);
        let group = if self.is_a_tool(name) { None } else { GroupName::new(name).ok() };
        let is_meant = |tool: &&OfferedTool| match (&glob, &group) {
            (Some(glob), _) => tool.entry.identity().mcp_name().is_some_and(|name| glob.matches(&name)),
            (None, Some(group)) => tool.governed.groups.contains(group),
            (None, None) => tool.entry.exposed().as_str() == exposed,
        };
        shown.iter().filter(is_meant).map(|tool| tool.entry.exposed().to_string()).collect()
    }
}

/// Returns the choice that forces a call of the tools that one name means. The name of a group means each of its tools.
fn named(mut names: Vec<String>) -> ToolChoice {
    if names.len() > 1 {
        return ToolChoice::Allowed { names, must_call: MustCall::Yes };
    }
    names.pop().map_or(ToolChoice::Required, ToolChoice::Named)
}

/// Returns the choice that permits only calls that both choices permit.
fn narrowed(own: ToolChoice, asked: ToolChoice) -> Result<CallerChoice, String> {
    let contradicts = |own: &str| {
        Err(format!(
            "the tool choice of the request contradicts the agent, which must call `{}`",
            printable(own)
        ))
    };
    Ok(match (own, asked) {
        (ToolChoice::None, asked) if must_call(&asked) => {
            return Err("a tool call is required, but the agent may call no tools".into());
        }
        (ToolChoice::None, _) | (_, ToolChoice::None) => CallerChoice::of(ToolChoice::None),
        (ToolChoice::Auto, choice) | (choice, ToolChoice::Auto) => CallerChoice::of(choice),
        (ToolChoice::Required, choice) | (choice, ToolChoice::Required) => CallerChoice::of(required(choice)),
        (ToolChoice::Named(own), ToolChoice::Named(asked)) if own == asked => {
            CallerChoice::of(ToolChoice::Named(own))
        }
        (ToolChoice::Named(own), ToolChoice::Named(_)) => return contradicts(&own),
        (ToolChoice::Named(own), ToolChoice::Allowed { names, .. }) if !names.contains(&own) => {
            return contradicts(&own);
        }
        (ToolChoice::Allowed { names, .. }, ToolChoice::Named(asked)) if !names.contains(&asked) => {
            let asked = printable(&asked);
            return Err(format!(
                "the tool choice of the request requires `{asked}`, which the agent does not allow"
            ));
        }
        (ToolChoice::Named(name), ToolChoice::Allowed { names, .. })
        | (ToolChoice::Allowed { names, .. }, ToolChoice::Named(name)) => {
            CallerChoice { tool_choice: ToolChoice::Named(name), allowed_tools: Some(names) }
        }
        (
            ToolChoice::Allowed { names, must_call: own },
            ToolChoice::Allowed { names: asked, must_call: also },
        ) => {
            let names = names.into_iter().filter(|name| asked.contains(name)).collect();
            let must_call = if own == MustCall::Yes { own } else { also };
            CallerChoice::of(ToolChoice::Allowed { names, must_call })
        }
    })
}

fn required(choice: ToolChoice) -> ToolChoice {
    match choice {
        ToolChoice::Allowed { names, .. } => ToolChoice::Allowed { names, must_call: MustCall::Yes },
        ToolChoice::Auto | ToolChoice::Required => ToolChoice::Required,
        choice @ (ToolChoice::None | ToolChoice::Named(_)) => choice,
    }
}

fn must_call(choice: &ToolChoice) -> bool {
    match choice {
        ToolChoice::Required | ToolChoice::Named(_) => true,
        ToolChoice::Allowed { must_call, .. } => *must_call == MustCall::Yes,
        ToolChoice::Auto | ToolChoice::None => false,
    }
}

/// Returns an error if the model cannot make the required call. Without this check, the run would ask the model again
/// and again, and fail. `callable` lists the tools that the model may call, without the tools of the run itself.
fn check(choice: &ToolChoice, callable: &[&str], own: RunTools) -> Result<(), String> {
    let is_callable = |name: &str| callable.contains(&name) || is_own_tool(name);
    match choice {
        ToolChoice::Required if callable.is_empty() && own == RunTools::None => {
            Err("a tool call is required, but there is no tool that the model may call".into())
        }
        ToolChoice::Named(name) if !is_callable(name) => {
            Err(format!("`{}` must be called, but is not among the allowed tools", printable(name)))
        }
        ToolChoice::Allowed { names, must_call: MustCall::Yes }
            if !names.iter().any(|name| is_callable(name)) =>
        {
            Err("a tool call is required, but none of the tools in the choice may be called".into())
        }
        ToolChoice::Auto
        | ToolChoice::None
        | ToolChoice::Required
        | ToolChoice::Named(_)
        | ToolChoice::Allowed { .. } => Ok(()),
    }
}

/// Returns the names that both lists contain. A missing list contains every name.
fn both(one: Option<Vec<String>>, other: Option<Vec<String>>) -> Option<Vec<String>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.into_iter().filter(|name| other.contains(name)).collect()),
        (one, other) => one.or(other),
    }
}

/// Tells whether a run has tools of its own that meet a required call: a handoff or the final report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunTools {
    None,
    Some,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> ToolChoice {
        ToolChoice::Named(name.into())
    }

    fn allowed(names: &[&str], must_call: MustCall) -> ToolChoice {
        ToolChoice::Allowed { names: names.iter().map(|name| (*name).to_owned()).collect(), must_call }
    }

    #[test]
    fn caller_narrows_the_tool_choice_of_the_agent_and_never_widens_it() {
        let check = |own: &ToolChoice, asked: ToolChoice, expected: Result<ToolChoice, &str>| {
            let found = narrowed(own.clone(), asked.clone());
            match expected {
                Ok(choice) => {
                    assert_eq!(found.map(|found| found.tool_choice), Ok(choice), "{own:?} {asked:?}");
                }
                Err(part) => {
                    let error = found.unwrap_err();
                    assert!(error.contains(part), "{own:?} {asked:?}: {error}");
                }
            }
        };
        let (auto, none, must) = (ToolChoice::Auto, ToolChoice::None, ToolChoice::Required);
        for asked in [auto.clone(), none.clone(), allowed(&["a"], MustCall::No)] {
            check(&none, asked, Ok(none.clone()));
        }
        for asked in [must.clone(), named("a"), allowed(&["a"], MustCall::Yes)] {
            check(&none, asked.clone(), Err("may call no tools"));
            check(&auto, asked.clone(), Ok(asked));
        }
        check(&must, auto.clone(), Ok(must.clone()));
        check(&must, none.clone(), Ok(none.clone()));
        check(&must, named("a"), Ok(named("a")));
        check(&must, allowed(&["a"], MustCall::No), Ok(allowed(&["a"], MustCall::Yes)));
        check(&named("a"), must.clone(), Ok(named("a")));
        check(&named("a"), named("a"), Ok(named("a")));
        check(&named("a"), named("b"), Err("`a`"));
        check(&named("a"), allowed(&["b"], MustCall::No), Err("`a`"));
        let both = allowed(&["a", "b"], MustCall::No);
        check(&both, allowed(&["b", "c"], MustCall::Yes), Ok(allowed(&["b"], MustCall::Yes)));
        let kept = narrowed(named("a"), both).unwrap();
        let names = ["a", "b"].map(str::to_owned);
        assert_eq!((kept.tool_choice, kept.allowed_tools.as_deref()), (named("a"), Some(&names[..])));
    }

    #[test]
    fn choice_that_no_call_can_meet_is_refused() {
        let refused =
            |choice: ToolChoice, callable: &[&str]| check(&choice, callable, RunTools::None).is_err();
        assert!(refused(ToolChoice::Required, &[]) && !refused(ToolChoice::Required, &["a"]));
        assert!(check(&ToolChoice::Required, &[], RunTools::Some).is_ok());
        assert!(refused(named("a"), &["b"]) && !refused(named("a"), &["a"]));
        assert!(refused(allowed(&["a"], MustCall::Yes), &["b"]));
        assert!(!refused(allowed(&["a"], MustCall::No), &["b"]) && !refused(ToolChoice::Auto, &[]));
    }
}

//! Selects the optional internal tools that the model of a run sees.

use haft_core::internal_tools::batch::BATCH;
use haft_core::internal_tools::task_status::TASK_STATUS;
use haft_core::run::OptionalTools;

use haft_config::agents::AgentDefinition;

/// Offers only tools that the agent names, directly or by a pattern, and only where they can help: a batch tool without
/// other tools, or a status tool for a single turn, would cost tokens without benefit.
pub(super) fn offer(agent: &AgentDefinition, other_tools: usize) -> OptionalTools {
    let globs = agent.reach.tools.as_deref().unwrap_or_default();
    let named = |tool: &str| globs.iter().any(|glob| glob.matches(tool));
    let has_steps = other_tools > 0 && agent.limits.turns_max > 1;
    OptionalTools { task_status: has_steps && named(TASK_STATUS), batch: has_steps && named(BATCH) }
}

#[cfg(test)]
mod tests {
    use haft_config::agents::AgentReadContext;

    use super::*;

    #[test]
    fn status_and_batch_tools_are_offered_only_if_listed_and_usable() {
        let check = |yaml: &str, other_tools: usize, expected: (bool, bool)| {
            let around = AgentReadContext { read: &|_| Err(String::new()), variable: &|_| None };
            let agent = AgentDefinition::read("a.md", &format!("---\n{yaml}\n---\n"), around).unwrap();
            let OptionalTools { task_status, batch } = offer(&agent, other_tools);
            assert_eq!((task_status, batch), expected, "{yaml} {other_tools}");
        };
        check("maxTurns: 5", 3, (false, false));
        check("tools: [read, agent__batch]", 1, (false, true));
        check("tools: [read, agent__task_status]", 1, (true, false));
        check("tools: ['*']", 1, (true, true));
        check("tools: ['agent__*']", 0, (false, false));
        check("tools: ['*']\nmaxTurns: 1", 1, (false, false));
    }
}

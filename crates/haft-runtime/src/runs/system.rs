//! What a model is told before the request: the agent's text, then the instructions of tool providers, then how to end.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use haft_core::internal::handoff::HANDOFF;
use haft_core::provider::ToolProvider;
use haft_core::run::final_report::FinalReport;
use haft_core::text::truncate_chars;
use haft_engine::Shown;

use super::skilled::AvailableSkills;
use haft_config::agents::Agent;

/// The most of one provider's instructions that is passed on.
const INSTRUCTIONS_CHARS_MAX: usize = 16 << 10;

/// Those who may say something about themselves.
#[derive(Clone, Copy, Default)]
pub(super) struct Told<'a> {
    pub(super) providers: &'a [Arc<dyn ToolProvider>],
    pub(super) skills: &'a AvailableSkills,
}

/// In a fixed order, so that equal runs have equal prompts. Who gives none of the tools that are shown says nothing, and
/// without tools no skill is of use.
pub(super) fn text(body: &str, told: Told<'_>, shown: &[Shown], report: &FinalReport) -> String {
    let gives = |provider: &Arc<dyn ToolProvider>| {
        shown.iter().any(|tool| tool.entry.identity().namespace == *provider.namespace())
    };
    let mut text = body.trim_end().to_owned();
    for provider in told.providers.iter().filter(|provider| gives(provider)) {
        if let Some(instructions) = provider.instructions() {
            add(&mut text, &format!("the tools of `{}`", provider.namespace()), &instructions);
        }
    }
    if !shown.is_empty() {
        for (name, body) in &told.skills.active {
            add(&mut text, &format!("the skill `{name}`"), body);
        }
        if !told.skills.lines.is_empty() {
            let _ = write!(
                text,
                "\n\nSkills that you can read when they help:\n{}",
                told.skills.lines.join("\n")
            );
        }
    }
    let rule = report.rule();
    if !rule.is_empty() {
        let _ = write!(text, "\n\n{rule}");
    }
    text
}

fn add(text: &mut String, of: &str, instructions: &str) {
    let said = truncate_chars(instructions, INSTRUCTIONS_CHARS_MAX);
    let _ = write!(text, "\n\nInstructions of {of}:\n{}", said.trim_end());
}

/// An agent that can give the request to others is told who they are.
pub(super) fn with_destinations<'a>(body: &str, destinations: impl Iterator<Item = &'a Agent>) -> String {
    let mut text = body.trim_end().to_owned();
    for (at, agent) in destinations.enumerate() {
        if at == 0 {
            let _ = write!(text, "\n\nWith `{HANDOFF}` you can hand the request to:");
        }
        let said = agent.description.trim();
        let _ = write!(text, "\n- `{}`{}{}", agent.name, if said.is_empty() { "" } else { ": " }, said);
    }
    text
}

/// For an agent that says nothing of itself.
pub(super) fn plain(workspace: &Path) -> String {
    format!(
        "You work on a person's request with the tools you are given. Relative paths are below `{}`. Look before you \
         change anything, check what you did, and answer in plain words when you are done.",
        workspace.display()
    )
}

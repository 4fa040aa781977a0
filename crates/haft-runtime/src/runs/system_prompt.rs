//! The system text: the agent's text, the instruction files of the project, the instructions of tool providers and
//! skills, and the rule for ending a run.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use haft_core::internal_tools::handoff::HANDOFF;
use haft_core::provider::ToolProvider;
use haft_core::provider_instructions::{self, INSTRUCTIONS_CHARS_MAX};
use haft_core::run::final_report::FinalReport;
use haft_core::text::truncate_chars;
use haft_core::tool_lock::ToolLock;
use haft_engine::OfferedTool;

use super::available_skills::AvailableSkills;
use haft_config::agents::AgentDefinition;
use haft_config::project_instructions::InstructionFile;

/// The maximum number of characters of one project instruction file in the system text; the rest is cut off.
const PROJECT_CHARS_MAX: usize = 32 << 10;

/// The providers and skills whose instructions the system text may include.
#[derive(Clone, Copy, Default)]
pub(super) struct InstructionSources<'a> {
    pub(super) providers: &'a [Arc<dyn ToolProvider>],
    pub(super) skills: &'a AvailableSkills,
    /// The tool lock. The system text omits instructions that differ from the instructions in the lock.
    pub(super) lock: Option<&'a ToolLock>,
}

/// Builds the system text in a fixed order, so that equal runs have equal prompts. Includes the instructions of a
/// provider only if the model sees one of its tools, and skills only if the model sees any tool.
pub(super) fn text(
    body: &str,
    sources: InstructionSources<'_>,
    shown: &[OfferedTool],
    report: &FinalReport,
) -> String {
    let gives = |provider: &Arc<dyn ToolProvider>| {
        shown.iter().any(|tool| tool.entry.identity().namespace == *provider.namespace())
    };
    let mut text = body.trim_end().to_owned();
    for provider in sources.providers.iter().filter(|provider| gives(provider)) {
        if let Some(instructions) = provider_instructions::agreed(&**provider, sources.lock) {
            let _ = write!(text, "\n\n{}", provider_instructions::labelled(&**provider, &instructions));
        }
    }
    if !shown.is_empty() {
        for (name, body) in &sources.skills.active {
            add(&mut text, &format!("the skill `{name}`"), body);
        }
        if !sources.skills.lines.is_empty() {
            let _ = write!(
                text,
                "\n\nSkills that you can read when they help:\n{}",
                sources.skills.lines.join("\n")
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
    let shown = truncate_chars(instructions, INSTRUCTIONS_CHARS_MAX);
    let _ = write!(text, "\n\nInstructions of {of}:\n{}", shown.trim_end());
}

/// Appends the agents that the model can hand the request to, with their descriptions.
pub(super) fn with_destinations<'a>(
    body: &str,
    destinations: impl Iterator<Item = &'a AgentDefinition>,
) -> String {
    let mut text = body.trim_end().to_owned();
    for (at, agent) in destinations.enumerate() {
        if at == 0 {
            let _ = write!(text, "\n\nWith `{HANDOFF}` you can hand the request to:");
        }
        let description = agent.description.trim();
        let colon = if description.is_empty() { "" } else { ": " };
        let _ = write!(text, "\n- `{}`{colon}{description}", agent.name);
    }
    text
}

/// Appends the instruction files of the project. Each has a label, so that the model can weigh it against the agent's
/// own text.
pub(super) fn with_project(body: &str, files: &[InstructionFile]) -> String {
    let mut text = body.trim_end().to_owned();
    for InstructionFile { path, text: written } in files {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let shown = truncate_chars(written.trim_end(), PROJECT_CHARS_MAX);
        let _ = write!(text, "\n\nInstructions of the project's file `{name}`:\n{shown}");
    }
    text
}

/// Returns the default system text, for an agent whose file has none.
pub(super) fn plain(workspace: &Path) -> String {
    format!(
        "You work on a person's request with the tools you are given. Relative paths are below `{}`. Look before you \
         change anything, check what you did, and answer in plain words when you are done.",
        workspace.display()
    )
}

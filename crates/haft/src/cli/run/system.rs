//! What a model is told before the request: the agent's text, then the instructions of tool providers, then how to end.

use std::fmt::Write;

use haft_core::run::final_report::FinalReport;
use haft_core::text::truncate_chars;
use haft_engine::Catalog;

/// The most of one provider's instructions that is passed on.
const INSTRUCTIONS_CHARS_MAX: usize = 16 << 10;

/// In a fixed order, so that equal runs have equal prompts.
pub(super) fn text(body: &str, catalog: &Catalog, report: &FinalReport) -> String {
    let mut text = body.trim_end().to_owned();
    for provider in catalog.providers() {
        if let Some(instructions) = provider.instructions().filter(|_| provider.is_shown()) {
            let label = provider.namespace().as_str();
            let said = truncate_chars(&instructions, INSTRUCTIONS_CHARS_MAX);
            let _ = write!(text, "\n\nInstructions of the tools of `{label}`:\n{}", said.trim_end());
        }
    }
    let rule = report.rule();
    if !rule.is_empty() {
        let _ = write!(text, "\n\n{rule}");
    }
    text
}

/// For a run without an agent.
pub(super) fn plain(workspace: &std::path::Path) -> String {
    format!(
        "You work on a person's request with the tools you are given. Relative paths are below `{}`. Look before you \
         change anything, check what you did, and answer in plain words when you are done.",
        workspace.display()
    )
}

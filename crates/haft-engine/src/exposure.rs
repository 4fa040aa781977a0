//! Decides which tools a run shows to its model, and which it hides behind a search.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use haft_core::model_request::ModelTool;
use haft_core::provider::ProviderKind;
use haft_core::provider_instructions;
use haft_core::run::context::RunContext;
use haft_core::run::exposure::{ToolExposure, ToolListGrowth, ToolSearchPlan};
use haft_core::settings::tool_search::{ToolExposeForm, ToolSearchMode, ToolSearchSettings};
use haft_core::tool_lock::ToolLock;

use crate::orchestrator::{OfferedTool, Orchestrator};
use crate::selection::ToolFilter;
use crate::size::json_bytes;

/// The number of tools above which `auto` hides tools. With more than about 30 tools, models also make worse choices.
pub const SHOWN_TOOLS_MAX: usize = 30;

/// The size of all definitions above which `auto` hides tools, in tokens. The limit does not depend on the context
/// window, because a fixed share of a million tokens would be far too much.
pub const SHOWN_TOKENS_MAX: u64 = 4_000;

/// In a small context window, definitions may take at most the window size divided by this number before `auto` hides
/// tools.
const WINDOW_SHARE: u64 = 8;

/// The average number of bytes in a token of a definition.
const DEFINITION_BYTES_PER_TOKEN: u64 = 4;

/// The maximum number of tool sources that the roster in the description of `tool_search` lists.
const ROSTER_SOURCES_MAX: usize = 24;

/// The maximum length of the description of one tool source in the roster, in characters.
const ROSTER_LINE_CHARS_MAX: usize = 80;

/// The limits of the model that answers a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelToolLimits {
    /// The maximum number of tools that the provider accepts in one request; `None` if it has no limit.
    pub tools_max: Option<usize>,
    /// The size of the context window in tokens; `None` if it is unknown.
    pub window_tokens: Option<u64>,
}

/// The inputs for choosing the tools that one run shows.
#[derive(Debug, Clone, Copy)]
pub struct ExposureRequest<'a> {
    /// The operator's settings for the tool search.
    pub settings: &'a ToolSearchSettings,
    /// The limits of the model that answers the run.
    pub limits: ModelToolLimits,
    /// A tool that the model must call, so it must be shown.
    pub pinned: Option<&'a str>,
    /// The number of tools that the run adds itself, such as the final report and the caller's functions.
    pub own_tools: usize,
    /// The tool lock. Instructions of sources that differ from the locked ones are withheld.
    pub lock: Option<&'a ToolLock>,
}

/// Returns the size of a definition in bytes: name, description and schema.
pub fn definition_bytes(tool: &ModelTool) -> u64 {
    (tool.name.len() + tool.description.len() + json_bytes(&tool.input_schema)) as u64
}

/// Returns the tokens of a definition, estimated from its length.
pub fn definition_tokens(tool: &ModelTool) -> u64 {
    definition_bytes(tool).div_ceil(DEFINITION_BYTES_PER_TOKEN)
}

impl Orchestrator {
    /// Decides which tools a run shows. Call it once, when the tools are ready, because the result is used for the
    /// whole run.
    pub fn expose(
        &self,
        selection: &ToolFilter,
        run: &RunContext,
        request: &ExposureRequest<'_>,
    ) -> ToolExposure {
        let tools = self.tools(selection, run);
        let names = |tools: &[&OfferedTool]| tools.iter().map(|tool| name(tool).to_owned()).collect();
        if !self.hides(&tools, request) {
            return ToolExposure { shown: names(&tools.iter().collect::<Vec<_>>()), search: None };
        }
        let room = request.limits.tools_max.map(|max| max.saturating_sub(request.own_tools + SEARCH_TOOLS));
        let mut shown: Vec<&OfferedTool> = tools.iter().filter(|tool| is_shown(tool, request)).collect();
        // Built-in tools come first, in case the provider's limit does not allow all pinned tools.
        shown.sort_by_key(|tool| !is_essential(tool, request));
        shown.truncate(room.unwrap_or(usize::MAX));
        shown.sort_by(|one, other| name(one).cmp(name(other)));
        let hidden = tools.iter().filter(|tool| !shown.iter().any(|known| name(known) == name(tool)));
        let growth = match request.settings.expose {
            ToolExposeForm::Auto | ToolExposeForm::Constant => ToolListGrowth::Constant,
            ToolExposeForm::Append => ToolListGrowth::Append,
        };
        let search = ToolSearchPlan { roster: self.roster(hidden, request.lock), growth };
        ToolExposure { shown: names(&shown), search: Some(search) }
    }

    fn hides(&self, tools: &[OfferedTool], request: &ExposureRequest<'_>) -> bool {
        if request.settings.mode != ToolSearchMode::Never && exceeds_limit(tools, request) {
            return true;
        }
        let can_hide = tools.iter().any(|tool| !is_shown(tool, request));
        match request.settings.mode {
            ToolSearchMode::Never => false,
            ToolSearchMode::Always => can_hide || self.waits_for_tools(),
            ToolSearchMode::Auto => {
                let share = request.limits.window_tokens.map_or(u64::MAX, |window| window / WINDOW_SHARE);
                let is_large = || {
                    let tokens: u64 =
                        tools.iter().map(|tool| definition_tokens(&tool.entry.model_tool())).sum();
                    tokens > SHOWN_TOKENS_MAX.min(share)
                };
                self.waits_for_tools() || can_hide && (tools.len() > SHOWN_TOOLS_MAX || is_large())
            }
        }
    }

    /// Returns true if a provider lists no tools now but may list some later, such as a server that is still starting.
    fn waits_for_tools(&self) -> bool {
        let providers = self.catalog().providers();
        providers.iter().any(|provider| provider.changes().is_some() && provider.tools().is_empty())
    }

    /// Lists the sources of hidden tools by name, with the number of tools and one line about each. The roster is part
    /// of the search tool's description.
    pub fn roster<'a>(
        &self,
        hidden: impl Iterator<Item = &'a OfferedTool>,
        lock: Option<&ToolLock>,
    ) -> String {
        let mut sources: BTreeMap<&str, usize> = BTreeMap::new();
        for tool in hidden {
            *sources.entry(tool.entry.source()).or_default() += 1;
        }
        let mut text = String::from("Sources:");
        for (source, tools) in sources.iter().take(ROSTER_SOURCES_MAX) {
            let _ = write!(text, "\n- {source}: {tools} tools{}", self.line_about(source, lock));
        }
        let left = sources.len().saturating_sub(ROSTER_SOURCES_MAX);
        if left > 0 {
            let _ = write!(text, "\n- {left} more sources");
        }
        text
    }

    /// Returns the first sentence of a source's instructions for models.
    fn line_about(&self, source: &str, lock: Option<&ToolLock>) -> String {
        let providers = self.catalog().providers();
        let provider = providers.iter().find(|provider| provider.namespace().as_str() == source);
        let instructions = provider.and_then(|provider| provider_instructions::agreed(&**provider, lock));
        let instructions = instructions.unwrap_or_default();
        let sentence = instructions.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let sentence = sentence.split_once(". ").map_or(sentence, |(first, _)| first).trim_end_matches('.');
        let sentence: String = sentence.chars().take(ROSTER_LINE_CHARS_MAX).collect();
        if sentence.is_empty() { String::new() } else { format!(". {sentence}") }
    }
}

/// The number of tools that a search adds to the request: `tool_search` and `tool_call`.
const SEARCH_TOOLS: usize = 2;

fn name(tool: &OfferedTool) -> &str {
    tool.entry.exposed().as_str()
}

fn is_shown(tool: &OfferedTool, request: &ExposureRequest<'_>) -> bool {
    let is_pinned = || request.settings.always_show.iter().any(|glob| glob.matches(name(tool)));
    is_essential(tool, request) || is_pinned()
}

/// Returns true if the provider would refuse a request with all tools, and at least one of them can be hidden. Even
/// tools that match `always_show` can be hidden.
fn exceeds_limit(tools: &[OfferedTool], request: &ExposureRequest<'_>) -> bool {
    let can_hide = || tools.iter().any(|tool| !is_essential(tool, request));
    request.limits.tools_max.is_some_and(|most| tools.len() + request.own_tools > most) && can_hide()
}

/// Returns true for tools that no limit hides: haft's own tools, sub-agents, and the tool that the model must call.
fn is_essential(tool: &OfferedTool, request: &ExposureRequest<'_>) -> bool {
    match tool.entry.identity().kind {
        ProviderKind::Builtin | ProviderKind::Agent | ProviderKind::Client => true,
        ProviderKind::Mcp | ProviderKind::Rest => request.pinned == Some(name(tool)),
    }
}

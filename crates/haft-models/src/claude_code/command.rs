//! Builds the command line of the `claude` command.

use haft_core::model_request::{ModelRequest, OutputShape, ReasoningEffort};

use super::ClaudeCodeSettings;
use super::control;
use super::process::{ClaudeCommand, CommandInput};
use super::reader::TextMeaning;
use super::session::ClaudeInput;

/// The maximum size of a system prompt that is passed as an argument, in bytes. Linux limits a single argument to 128
/// KiB; a longer system prompt is put into the user prompt.
pub(super) const WORD_BYTES_MAX: usize = 100 << 10;

/// Returns the command line of `claude` for one turn.
pub(super) fn order(
    settings: &ClaudeCodeSettings,
    request: &ModelRequest,
    turn: &ClaudeInput,
) -> ClaudeCommand {
    let mut words: Vec<String> =
        ["-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"]
            .map(str::to_owned)
            .into();
    let mut add_flag = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    add_flag("--model", request.model.clone());
    add_flag("--max-turns", settings.turns_max.to_string());
    if let Some(session) = &turn.session {
        add_flag("--resume", session.clone());
    }
    if !turn.system.is_empty() {
        add_flag("--append-system-prompt", turn.system.clone());
    }
    if let Some(effort) = request.reasoning.and_then(effort) {
        add_flag("--effort", effort.to_owned());
    }
    if let OutputShape::Schema { schema, .. } = &request.output {
        add_flag("--json-schema", schema.to_string());
    }
    if is_without_tools(request) {
        add_flag("--tools", String::new());
        return ClaudeCommand { words, input: CommandInput::Prompt(turn.prompt.clone().into_bytes()) };
    }
    words.extend(tool_words(settings));
    ClaudeCommand { words, input: CommandInput::Lines(control::opening(&turn.prompt)) }
}

/// Returns the arguments that connect Claude Code with haft: haft's tools, and the answers to permission prompts.
fn tool_words(settings: &ClaudeCodeSettings) -> Vec<String> {
    let allowed = settings.own_tools.iter().cloned().chain([format!("mcp__{}", control::SERVER)]);
    [
        ["--input-format", "stream-json"],
        ["--permission-prompt-tool", "stdio"],
        // Override the permission mode in the user's settings, because with a mode such as `bypassPermissions` Claude
        // Code would not ask haft for permissions.
        ["--permission-mode", "default"],
        ["--tools", &settings.own_tool_names().join(",")],
        ["--allowedTools", &allowed.collect::<Vec<_>>().join(",")],
        ["--strict-mcp-config", "--mcp-config"],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .chain([control::server_config()])
    .collect()
}

pub(super) fn is_without_tools(request: &ModelRequest) -> bool {
    request.tools.is_empty()
}

/// Selects how to interpret the text messages of Claude Code. Without tools there is a single message, which is the
/// answer. With an output schema, Claude Code returns the answer in a separate field.
pub(super) fn texts(request: &ModelRequest) -> TextMeaning {
    match request.output {
        OutputShape::Text | OutputShape::Json if is_without_tools(request) => TextMeaning::Answer,
        OutputShape::Text | OutputShape::Json | OutputShape::Schema { .. } => TextMeaning::Steps,
    }
}

/// Returns the effort level for Claude Code. It has no level that turns thinking off.
fn effort(effort: ReasoningEffort) -> Option<&'static str> {
    match effort {
        ReasoningEffort::Off => None,
        ReasoningEffort::Minimal | ReasoningEffort::Low => Some("low"),
        ReasoningEffort::Medium => Some("medium"),
        ReasoningEffort::High => Some("high"),
        ReasoningEffort::Highest => Some("max"),
    }
}

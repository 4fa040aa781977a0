//! Builds the command line of the `claude` command.

use haft_core::model_request::{ModelRequest, OutputShape, ReasoningEffort};

use super::ClaudeCodeSettings;
use super::process::ClaudeCommand;
use super::reader::TextMeaning;
use super::session::ClaudeInput;

/// The maximum size of a system prompt that is passed as an argument, in bytes. Linux limits a single argument to 128
/// KiB; a longer system prompt is put into the user prompt.
pub(super) const WORD_BYTES_MAX: usize = 100 << 10;

/// Returns the command line for one turn.
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
    if is_without_tools(settings, request) {
        add_flag("--tools", String::new());
        return ClaudeCommand { words, stdin: turn.prompt.clone().into_bytes(), private_file: None };
    }
    let servers = settings.servers.iter().flat_map(|servers| &servers.names);
    let allowed: Vec<String> = settings
        .allowed_tools
        .iter()
        .flatten()
        .cloned()
        .chain(servers.map(|server| format!("mcp__{server}")))
        .collect();
    if !allowed.is_empty() {
        add_flag("--allowedTools", allowed.join(","));
    }
    let private_file = settings.servers.as_ref().map(|servers| servers.config.clone());
    // `--mcp-config` must be the last argument: the launcher appends the path of the private file after it.
    if private_file.is_some() {
        words.extend(["--strict-mcp-config".to_owned(), "--mcp-config".to_owned()]);
    }
    ClaudeCommand { words, stdin: turn.prompt.clone().into_bytes(), private_file }
}

fn is_without_tools(settings: &ClaudeCodeSettings, request: &ModelRequest) -> bool {
    request.tools.is_empty() || settings.allowed_tools.as_ref().is_some_and(Vec::is_empty)
}

/// Returns how to interpret the command's text messages. Without tools there is a single message, which is the answer.
/// With an output schema, the command returns the answer in a separate field instead.
pub(super) fn texts(settings: &ClaudeCodeSettings, request: &ModelRequest) -> TextMeaning {
    match request.output {
        OutputShape::Text | OutputShape::Json if is_without_tools(settings, request) => TextMeaning::Answer,
        OutputShape::Text | OutputShape::Json | OutputShape::Schema { .. } => TextMeaning::Steps,
    }
}

/// Returns the command's effort level. The command has no level that turns thinking off.
fn effort(effort: ReasoningEffort) -> Option<&'static str> {
    match effort {
        ReasoningEffort::Off => None,
        ReasoningEffort::Minimal | ReasoningEffort::Low => Some("low"),
        ReasoningEffort::Medium => Some("medium"),
        ReasoningEffort::High => Some("high"),
        ReasoningEffort::Highest => Some("max"),
    }
}

//! Every key of an agent's front matter, as written.

use serde::Deserialize;
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::error::AgentError;
use super::front_matter::Parts;
use super::value::{Count, FormatWord, Percent, Time, TimeOrOff, ToolWord, UpTo, Words};
use crate::nearest;

/// All keys, for documents and suggestions.
pub const KEYS: [&str; 29] = [
    "agents",
    "allowedTools",
    "budget",
    "cache",
    "caching",
    "contextWindow",
    "description",
    "finalReport",
    "handoff",
    "input",
    "llmTimeout",
    "maxOutputTokens",
    "maxRetries",
    "maxToolCalls",
    "maxToolCallsPerTurn",
    "maxTurns",
    "models",
    "output",
    "reasoning",
    "router",
    "temperature",
    "timeout",
    "toolName",
    "toolOutput",
    "toolResponseMaxBytes",
    "toolTimeout",
    "tools",
    "topK",
    "topP",
];

/// The keys of a file. All are optional here; `resolved` fills in the defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WrittenAgent {
    pub(super) description: Option<String>,
    pub(super) tool_name: Option<ToolWord>,
    pub(super) models: Option<Spanned<Words>>,
    pub(super) tools: Option<Spanned<Words>>,
    pub(super) allowed_tools: Option<Words>,
    pub(super) agents: Words,
    pub(super) router: WrittenRouter,
    pub(super) handoff: Option<String>,
    pub(super) max_turns: Option<Count>,
    pub(super) max_tool_calls: Option<Count>,
    pub(super) max_tool_calls_per_turn: Option<Count>,
    pub(super) max_retries: Option<Count>,
    pub(super) max_output_tokens: Option<Count>,
    pub(super) context_window: Option<Count>,
    pub(super) temperature: Option<UpTo<200>>,
    pub(super) top_p: Option<UpTo<100>>,
    pub(super) top_k: Option<Count>,
    pub(super) reasoning: Option<WrittenEffort>,
    pub(super) caching: Option<WrittenCaching>,
    pub(super) cache: Option<TimeOrOff>,
    pub(super) timeout: Option<Time>,
    pub(super) llm_timeout: Option<Time>,
    pub(super) tool_timeout: Option<Time>,
    pub(super) tool_response_max_bytes: Option<Count>,
    pub(super) tool_output: WrittenToolOutput,
    pub(super) budget: WrittenBudget,
    pub(super) input: WrittenInput,
    pub(super) output: WrittenOutput,
    pub(super) final_report: Option<Spanned<WrittenReport>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WrittenRouter {
    pub(super) destinations: Words,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WrittenBudget {
    pub(super) usd: Option<UpTo<{ u32::MAX }>>,
    pub(super) tokens: Option<u64>,
    pub(super) calls: Option<u64>,
    pub(super) seconds: Option<UpTo<{ u32::MAX }>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WrittenInput {
    pub(super) format: Option<WrittenInputFormat>,
    pub(super) schema: Option<Spanned<Map<String, Value>>>,
    pub(super) schema_ref: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WrittenOutput {
    pub(super) format: Option<FormatWord>,
    pub(super) schema: Option<Spanned<Map<String, Value>>>,
    pub(super) schema_ref: Option<Spanned<String>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WrittenInputFormat {
    Text,
    Json,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WrittenToolOutput {
    pub(super) enabled: Option<bool>,
    pub(super) max_chunks: Option<Count>,
    pub(super) overlap_percent: Option<Percent>,
    pub(super) avg_line_bytes_threshold: Option<Count>,
    pub(super) models: Option<Spanned<Words>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WrittenEffort {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Highest,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WrittenCaching {
    Full,
    None,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WrittenReport {
    None,
    Tool,
    Xml,
}

/// Reads the YAML of a file. An error gives the line in the file, not in its YAML.
pub(super) fn read(file: &str, parts: &Parts<'_>) -> Result<WrittenAgent, AgentError> {
    if parts.yaml.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(WrittenAgent::default());
    }
    serde_saphyr::from_str(parts.yaml).map_err(|error| told(file, parts.yaml_line, &error))
}

fn told(file: &str, first_line: usize, error: &serde_saphyr::Error) -> AgentError {
    use serde_saphyr::Error;
    let error = error.without_snippet();
    let line = error.location().and_then(|location| usize::try_from(location.line()).ok()).unwrap_or(1);
    let (message, hint) = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            let near = nearest(field, expected.iter().copied());
            (format!("unknown key `{field}`"), near.map(|key| format!("did you mean `{key}`?")))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            (format!("expected one of {}; got `{variant}`", expected.join(", ")), None)
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            (format!("the key `{key}` stands here twice"), None)
        }
        Error::InvalidScalar { ty, .. } => (format!("expected {}", in_words(ty)), None),
        other => (first_sentence(&other.to_string()), None),
    };
    AgentError::new(file, first_line + line.saturating_sub(1), message).with_hint(hint)
}

/// Describes a value of a type in words.
fn in_words(ty: &str) -> &str {
    match ty {
        "i64" | "u64" => "a whole number",
        "floating point" => "a number",
        "boolean" => "true or false",
        other => other,
    }
}

/// Removes the position from an error text: the error reports it once, as a line of the file.
fn first_sentence(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let end = line.find(" at line ").unwrap_or(line.len());
    match &line[..end] {
        "expected mapping start" => "expected keys with their values, as in `key: value`".to_owned(),
        other => other.to_owned(),
    }
}

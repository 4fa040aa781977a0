//! Every key of an agent's front matter, as written.

use serde::Deserialize;
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::error::AgentError;
use super::front_matter::AgentFileParts;
use super::value::{
    BoundedNumber, DurationOrOff, DurationValue, OverlapPercent, PositiveCount, ReportFormatValue,
    ToolNameValue, WordList,
};
use crate::nearest;

/// All keys, for documents and suggestions.
pub const KEYS: [&str; 32] = [
    "agents",
    "allowedTools",
    "budget",
    "cache",
    "caching",
    "contextBuffer",
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
    "parallelToolCalls",
    "reasoning",
    "router",
    "temperature",
    "timeout",
    "toolChoice",
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
pub(super) struct RawAgent {
    pub(super) description: Option<String>,
    pub(super) tool_name: Option<ToolNameValue>,
    pub(super) models: Option<Spanned<WordList>>,
    pub(super) tools: Option<Spanned<WordList>>,
    pub(super) allowed_tools: Option<WordList>,
    pub(super) tool_choice: Option<Spanned<String>>,
    pub(super) parallel_tool_calls: Option<bool>,
    pub(super) agents: WordList,
    pub(super) router: RawAgentRouter,
    pub(super) handoff: Option<String>,
    pub(super) max_turns: Option<PositiveCount>,
    pub(super) max_tool_calls: Option<PositiveCount>,
    pub(super) max_tool_calls_per_turn: Option<PositiveCount>,
    pub(super) max_retries: Option<PositiveCount>,
    pub(super) max_output_tokens: Option<PositiveCount>,
    pub(super) context_window: Option<PositiveCount>,
    pub(super) context_buffer: Option<PositiveCount>,
    pub(super) temperature: Option<BoundedNumber<200>>,
    pub(super) top_p: Option<BoundedNumber<100>>,
    pub(super) top_k: Option<PositiveCount>,
    pub(super) reasoning: Option<RawEffort>,
    pub(super) caching: Option<RawCaching>,
    pub(super) cache: Option<DurationOrOff>,
    pub(super) timeout: Option<DurationValue>,
    pub(super) llm_timeout: Option<DurationValue>,
    pub(super) tool_timeout: Option<DurationValue>,
    pub(super) tool_response_max_bytes: Option<PositiveCount>,
    pub(super) tool_output: RawAgentToolOutput,
    pub(super) budget: RawAgentBudget,
    pub(super) input: RawAgentInput,
    pub(super) output: RawAgentOutput,
    pub(super) final_report: Option<RawReportDelivery>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawAgentRouter {
    pub(super) destinations: WordList,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawAgentBudget {
    pub(super) usd: Option<BoundedNumber<{ u32::MAX }>>,
    pub(super) tokens: Option<u64>,
    pub(super) calls: Option<u64>,
    pub(super) seconds: Option<BoundedNumber<{ u32::MAX }>>,
    pub(super) unpriced: Option<WrittenUnpriced>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WrittenUnpriced {
    Refuse,
    Allow,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawAgentInput {
    pub(super) format: Option<RawInputFormat>,
    pub(super) schema: Option<Spanned<Map<String, Value>>>,
    pub(super) schema_ref: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawAgentOutput {
    pub(super) format: Option<ReportFormatValue>,
    pub(super) schema: Option<Spanned<Map<String, Value>>>,
    pub(super) schema_ref: Option<Spanned<String>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawInputFormat {
    Text,
    Json,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawAgentToolOutput {
    pub(super) enabled: Option<bool>,
    pub(super) max_chunks: Option<PositiveCount>,
    pub(super) overlap_percent: Option<OverlapPercent>,
    pub(super) avg_line_bytes_threshold: Option<PositiveCount>,
    pub(super) models: Option<Spanned<WordList>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawEffort {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Highest,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawCaching {
    Full,
    None,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawReportDelivery {
    None,
    Tool,
    Xml,
}

/// Reads the YAML of a file. An error gives the line in the file, not in its YAML.
pub(super) fn read(file: &str, parts: &AgentFileParts<'_>) -> Result<RawAgent, AgentError> {
    if parts.yaml.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(RawAgent::default());
    }
    serde_saphyr::from_str(parts.yaml).map_err(|error| yaml_error(file, parts.yaml_line, &error))
}

fn yaml_error(file: &str, first_line: usize, error: &serde_saphyr::Error) -> AgentError {
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
        Error::InvalidScalar { ty, .. } => (format!("expected {}", describe_type(ty)), None),
        other => (first_sentence(&other.to_string()), None),
    };
    AgentError::new(file, first_line + line.saturating_sub(1), message).with_hint(hint)
}

/// Describes a value of a type in words.
fn describe_type(ty: &str) -> &str {
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

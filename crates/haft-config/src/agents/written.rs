//! Every key of an agent's front matter, as the agent file contains it, before defaults are applied.

use haft_core::model_request::{PromptCaching, ReasoningEffort, ReasoningSummary, Verbosity};
use serde::Deserialize;
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::error::AgentError;
use super::front_matter::AgentFileParts;
use super::resolved::UnpricedModels;
use super::value::{
    BoundedNumber, CompactionStartValue, DurationOrOff, DurationValue, OverlapPercent, PositiveCount,
    RawAgentCompaction, ReportFormatValue, ToolNameValue, WordList,
};
use crate::value_format::words;
use crate::written::{RawExpose, RawToolSearch};
use crate::{nearest, yaml};

/// All keys. The documentation and the suggestions for misspelled keys use this list.
pub const KEYS: [&str; 38] = [
    "agents",
    "allowedTools",
    "alwaysShow",
    "budget",
    "cache",
    "caching",
    "compaction",
    "contextBuffer",
    "contextTokens",
    "description",
    "expose",
    "finalReport",
    "handoff",
    "input",
    "llmTimeout",
    "maxAttempts",
    "maxOutputTokens",
    "maxToolCalls",
    "maxToolCallsPerTurn",
    "maxToolResponseBytes",
    "maxTurns",
    "models",
    "output",
    "parallelToolCalls",
    "reasoning",
    "reasoningSummary",
    "router",
    "temperature",
    "timeout",
    "toolChoice",
    "toolName",
    "toolOutput",
    "toolSearch",
    "toolTimeout",
    "tools",
    "topK",
    "topP",
    "verbosity",
];

/// The renamed keys, each with its new name. The old name still works, because a file may be older than the installed
/// version of haft.
pub(super) const OLD_KEYS: [(&str, &str); 3] = [
    ("contextWindow", "contextTokens"),
    ("maxRetries", "maxAttempts"),
    ("toolResponseMaxBytes", "maxToolResponseBytes"),
];

/// The keys of an agent file. All are optional in this type; `resolved` fills in the defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawAgent {
    pub(super) description: Option<String>,
    pub(super) tool_name: Option<ToolNameValue>,
    pub(super) models: Option<Spanned<WordList>>,
    pub(super) tools: Option<Spanned<WordList>>,
    pub(super) allowed_tools: Option<WordList>,
    pub(super) tool_choice: Option<Spanned<String>>,
    pub(super) tool_search: Option<RawToolSearch>,
    pub(super) always_show: Option<Spanned<WordList>>,
    pub(super) expose: Option<RawExpose>,
    pub(super) parallel_tool_calls: Option<bool>,
    pub(super) agents: WordList,
    pub(super) router: RawAgentRouter,
    pub(super) handoff: Option<String>,
    pub(super) max_turns: Option<PositiveCount>,
    pub(super) max_tool_calls: Option<PositiveCount>,
    pub(super) max_tool_calls_per_turn: Option<PositiveCount>,
    pub(super) max_attempts: Option<PositiveCount>,
    /// The old name of `max_attempts`.
    pub(super) max_retries: Option<PositiveCount>,
    pub(super) max_output_tokens: Option<PositiveCount>,
    pub(super) compaction: Option<Spanned<RawAgentCompaction>>,
    pub(super) context_tokens: Option<PositiveCount>,
    /// The old name of `context_tokens`.
    pub(super) context_window: Option<PositiveCount>,
    pub(super) context_buffer: Option<PositiveCount>,
    pub(super) temperature: Option<BoundedNumber<200>>,
    pub(super) top_p: Option<BoundedNumber<100>>,
    pub(super) top_k: Option<PositiveCount>,
    pub(super) reasoning: Option<RawEffort>,
    pub(super) reasoning_summary: Option<RawSummary>,
    pub(super) verbosity: Option<RawVerbosity>,
    pub(super) caching: Option<RawCaching>,
    pub(super) cache: Option<DurationOrOff>,
    pub(super) timeout: Option<DurationValue>,
    pub(super) llm_timeout: Option<DurationValue>,
    pub(super) tool_timeout: Option<DurationValue>,
    pub(super) max_tool_response_bytes: Option<PositiveCount>,
    /// The old name of `max_tool_response_bytes`.
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
    pub(super) time: Option<DurationValue>,
    /// The earlier form of `time`, in seconds.
    pub(super) seconds: Option<BoundedNumber<{ u32::MAX }>>,
    pub(super) unpriced: Option<RawUnpriced>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawCompactionKeys {
    pub(super) at: Option<CompactionStartValue>,
    pub(super) keep: Option<PositiveCount>,
    pub(super) model: Option<String>,
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
pub(super) enum RawReportDelivery {
    None,
    Tool,
    Xml,
}

words! {
    pub(super) RawUnpriced for UnpricedModels { "refuse" Refuse, "allow" Allow }
    pub(super) RawCaching for PromptCaching { "full" Full, "none" None }
    pub(super) RawEffort for ReasoningEffort {
        "off" Off, "minimal" Minimal, "low" Low, "medium" Medium, "high" High, "highest" Highest
    }
    pub(super) RawSummary for ReasoningSummary { "auto" Auto, "concise" Concise, "detailed" Detailed }
    pub(super) RawVerbosity for Verbosity { "low" Low, "medium" Medium, "high" High }
}

/// Reads the YAML front matter of an agent file. An error gives the line in the file, not in the YAML part.
pub(super) fn read(file: &str, parts: &AgentFileParts<'_>) -> Result<RawAgent, AgentError> {
    if parts.yaml.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(RawAgent::default());
    }
    yaml::from_str(parts.yaml).map_err(|error| {
        let more = other_unknown_keys(file, parts, &error);
        let next = more.into_iter().rev().fold(None, |next, error| Some(error.with_next(next)));
        yaml_error(file, parts.yaml_line, &error).with_next(next)
    })
}

/// Returns the unknown keys of a file after the first one. The parser reports only the first, but the author should be
/// able to correct all of them at once.
fn other_unknown_keys(
    file: &str,
    parts: &AgentFileParts<'_>,
    error: &serde_saphyr::Error,
) -> Vec<AgentError> {
    let serde_saphyr::Error::SerdeUnknownField { field, expected, .. } = error.without_snippet() else {
        return Vec::new();
    };
    let keys: Map<String, Value> = yaml::from_str(parts.yaml).unwrap_or_default();
    if !keys.contains_key(field.as_str()) {
        // The unknown key is inside another key. `expected` then lists the keys of that inner object, so this search
        // would report every top-level key as unknown.
        return Vec::new();
    }
    let is_unknown = |key: &&String| *key != field && !expected.contains(&key.as_str());
    let mut errors: Vec<AgentError> = keys
        .keys()
        .filter(is_unknown)
        .map(|key| unknown_key(file, line_of(parts, key), key, expected))
        .collect();
    errors.sort_by_key(|error| error.line);
    errors
}

fn unknown_key(file: &str, line: usize, key: &str, expected: &[&str]) -> AgentError {
    let is_old = |key: &&str| OLD_KEYS.iter().any(|(old, _)| old == key);
    let near = nearest(key, expected.iter().copied().filter(|key| !is_old(key)));
    AgentError::new(file, line, format!("unknown key `{key}`"))
        .with_hint(near.map(|key| format!("did you mean `{key}`?")))
}

/// Finds the line that begins with this key. It searches the text, because the parser gives positions only for typed
/// values.
fn line_of(parts: &AgentFileParts<'_>, key: &str) -> usize {
    let is_it = |line: &str| {
        line.split_once(':').is_some_and(|(written, _)| written.trim_end().trim_matches(['"', '\'']) == key)
    };
    parts.yaml_line + parts.yaml.lines().position(is_it).unwrap_or_default()
}

pub(super) fn yaml_error(file: &str, first_line: usize, error: &serde_saphyr::Error) -> AgentError {
    use serde_saphyr::Error;
    let error = error.without_snippet();
    let line = error.location().and_then(|location| usize::try_from(location.line()).ok()).unwrap_or(1);
    let line = first_line + line.saturating_sub(1);
    let (message, hint) = match error {
        Error::SerdeUnknownField { field, expected, .. } => return unknown_key(file, line, field, expected),
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            (format!("expected one of {}; got `{variant}`", expected.join(", ")), None)
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => (format!("duplicate key `{key}`"), None),
        Error::InvalidScalar { ty, .. } => (format!("expected {}", describe_type(ty)), None),
        Error::InvalidBooleanStrict { .. } => ("expected true or false".to_owned(), None),
        other => (first_sentence(&other.to_string()), None),
    };
    AgentError::new(file, line, message).with_hint(hint)
}

/// Describes a value type in words for the operator.
fn describe_type(ty: &str) -> &str {
    match ty {
        "i64" | "u64" => "a whole number",
        "floating point" => "a number",
        "boolean" => "true or false",
        other => other,
    }
}

/// Removes the position from an error text, because the error already reports the line of the file.
fn first_sentence(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let end = line.find(" at line ").unwrap_or(line.len());
    match &line[..end] {
        "expected mapping start" => "expected keys with their values, as in `key: value`".to_owned(),
        other => other.to_owned(),
    }
}

//! A resolved agent: every key has a value, and values that depend on each other are consistent.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use haft_core::glob::ToolGlob;
use haft_core::internal_tools::final_report::ReportShape;
use haft_core::internal_tools::handoff::HandoffRoutes;
use haft_core::internal_tools::report_format::ReportFormat;
use haft_core::model_request::{
    ParallelCalls, PromptCaching, ReasoningEffort, ReasoningSummary, SamplingParameters, ToolChoice,
    Verbosity,
};
use haft_core::name::ToolName;
use haft_core::run::RunPlan;
use haft_core::run::budget::SpendLimit;
use haft_core::run::final_report::FinalReport;
use haft_core::run::limits::RunLimits;
use haft_core::settings::tool_search::{ToolExposeForm, ToolSearchMode, ToolSearchSettings};
use haft_core::validate::Schema;
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::AgentReadContext;
use super::cycle::AgentLinks;
use super::error::AgentError;
use super::value::{DurationValue, PositiveCount, RawAgentCompaction, WordList};
use super::written::{
    OLD_KEYS, RawAgent, RawAgentBudget, RawAgentInput, RawAgentOutput, RawAgentToolOutput, RawCompactionKeys,
    RawInputFormat, RawReportDelivery,
};
use crate::{duration, printable, resolved as config};

const LLM_TIMEOUT_DEFAULT: Duration = Duration::from_mins(10);
const RUN_TIMEOUT_DEFAULT: Duration = Duration::from_hours(1);

/// An agent, ready to run.
#[derive(Debug, Clone)]
pub struct AgentDefinition {
    /// The agent name: the file name without folder and extension.
    pub name: String,
    pub description: String,
    /// The name under which other agents call this agent, after `agent__`.
    pub tool_name: ToolName,
    /// The models, in the order in which they are tried; if empty, the caller chooses.
    pub models: Vec<String>,
    pub reach: AgentAccess,
    pub limits: RunLimits,
    pub budget: SpendLimit,
    pub unpriced_models: UnpricedModels,
    pub asking: ModelParameters,
    pub times: AgentTimeouts,
    pub outputs: AgentOutputSettings,
    pub compaction: config::AgentCompaction,
    pub tool_search: AgentToolSearch,
    pub input: AgentInput,
    pub report: ReportSettings,
    /// The text of the agent, with variables and includes expanded.
    pub body: String,
    /// Whether haft's default system text replaces an empty text.
    pub default_text: DefaultText,
    /// Warnings about old key names in the agent file, for the author of the file.
    pub warnings: Vec<String>,
}

/// The tool search settings that an agent sets for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentToolSearch {
    pub mode: Option<ToolSearchMode>,
    pub always_show: Option<Vec<ToolGlob>>,
    pub expose: Option<ToolExposeForm>,
}

impl AgentToolSearch {
    /// Returns the settings of the agent. Values that the agent does not set come from the configuration.
    pub fn over(&self, config: &ToolSearchSettings) -> ToolSearchSettings {
        ToolSearchSettings {
            mode: self.mode.unwrap_or(config.mode),
            always_show: self.always_show.clone().unwrap_or_else(|| config.always_show.clone()),
            expose: self.expose.unwrap_or(config.expose),
        }
    }
}

/// Selects when haft's default system text is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultText {
    /// An agent without a text gets the default text.
    WhenEmpty,
    /// The caller's text is used unchanged, even if it is empty.
    Never,
}

/// The rule for a run with a budget in US dollars whose model has no known price. haft cannot compute the cost of such
/// a run, so the budget cannot limit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnpricedModels {
    /// haft does not start a run whose model has no known price.
    Refuse,
    /// The run starts, and its requests are not charged to `budget.usd`.
    Allow,
}

/// The tools and agents that an agent can use.
#[derive(Debug, Clone)]
pub struct AgentAccess {
    /// The tools that the model sees; `None` for all tools of the configuration.
    pub tools: Option<Vec<ToolGlob>>,
    /// The tools that the model may call, of those that it sees; `None` for all of them.
    pub allowed_tools: Option<Vec<String>>,
    /// The tools that the model may or must call first.
    pub tool_choice: ToolChoice,
    /// The files of the agents that this agent can call.
    pub agents: Vec<String>,
    pub destinations: Vec<String>,
    /// The agent that receives the finished answer.
    pub handoff: Option<String>,
}

/// The parameters of requests to the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelParameters {
    pub sampling: SamplingParameters,
    pub effort: Option<ReasoningEffort>,
    pub reasoning_summary: Option<ReasoningSummary>,
    pub verbosity: Option<Verbosity>,
    pub parallel_calls: ParallelCalls,
    /// The limit for the output; `None` for the limits of the configuration and the model.
    pub output_tokens_max: Option<u32>,
    pub context_tokens: Option<u32>,
    /// The part of the context window that is kept free, because token counts are estimates.
    pub context_buffer_tokens: Option<u32>,
    pub caching: PromptCaching,
}

/// The time limits of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentTimeouts {
    pub run: Duration,
    /// The limit for one reply of a model.
    pub llm: Duration,
    /// The limit for one tool call; `None` for the limit of the configuration.
    pub tool: Option<Duration>,
}

/// The handling of tool outputs, and of the agent's own answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentOutputSettings {
    /// The maximum size of a tool output, in bytes; `None` for the limit of the configuration.
    pub response_bytes_max: Option<u32>,
    pub tool_output: AgentToolOutput,
    /// The time for which the agent's answer is cached for an equal request.
    pub cache_ttl: Option<Duration>,
}

/// The settings for reading stored outputs with a model. A `None` value comes from the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentToolOutput {
    pub enabled: Option<bool>,
    pub chunks_max: Option<u32>,
    pub overlap_percent: Option<u32>,
    pub line_bytes_threshold: Option<u32>,
    /// The models that read outputs; if empty, the agent's own models.
    pub models: Vec<String>,
}

impl AgentToolOutput {
    /// Overwrites the configured values with the values that the agent sets.
    pub fn change(&self, configured: &mut config::ToolOutputSettings) {
        let whole = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let reading = &mut configured.reading;
        configured.enabled = self.enabled.unwrap_or(configured.enabled);
        reading.chunks_max = self.chunks_max.map_or(reading.chunks_max, whole);
        reading.avg_line_bytes_threshold =
            self.line_bytes_threshold.map_or(reading.avg_line_bytes_threshold, whole);
        reading.overlap_percent = self.overlap_percent.map_or(reading.overlap_percent, whole);
    }
}

/// The input of the agent when it is called as a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentInput {
    pub format: InputFormat,
    pub schema: Option<Arc<Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFormat {
    Text,
    Json,
}

/// The way in which the agent delivers its final answer.
#[derive(Debug, Clone)]
pub struct ReportSettings {
    pub by: ReportDelivery,
    pub shape: ReportShape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportDelivery {
    None,
    /// The last text of the model is the answer, even if programs read its format.
    Text,
    Tool,
    Xml,
}

impl AgentDefinition {
    /// Builds the rules of one run. `path` lists the agents that handled the request before; `nonce` is unique to the
    /// session.
    pub fn plan(&self, mut path: Vec<String>, nonce: &str) -> RunPlan {
        path.push(self.name.clone());
        let shape = self.report.shape.clone();
        RunPlan {
            limits: self.limits,
            budget: self.budget,
            tool_choice: self.reach.tool_choice.clone(),
            allowed_tools: self.reach.allowed_tools.clone(),
            report: match self.report.by {
                ReportDelivery::Text if shape.format().is_structured() => FinalReport::Text(shape),
                ReportDelivery::None | ReportDelivery::Text => FinalReport::None,
                ReportDelivery::Tool => FinalReport::Tool(shape),
                ReportDelivery::Xml => FinalReport::Xml { shape, nonce: nonce.into() },
            },
            routes: HandoffRoutes {
                destinations: self.reach.destinations.iter().map(|file| stem(file)).collect(),
                path,
            },
            ..RunPlan::default()
        }
    }

    /// Adds the agents that this agent can call or hand off to, by their names.
    pub fn link(&self, links: &mut AgentLinks) {
        let AgentAccess { agents, destinations, handoff, .. } = &self.reach;
        let targets = agents.iter().chain(destinations).chain(handoff).map(|agent| stem(agent));
        links.entry(self.name.clone()).or_default().extend(targets);
    }
}

/// Returns the name of an agent: its file name without folder and extension.
fn stem(file: &str) -> String {
    Path::new(file).file_stem().map_or_else(|| file.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

pub(super) fn resolve(
    file: &str,
    written: RawAgent,
    body: String,
    around: AgentReadContext<'_>,
) -> Result<AgentDefinition, AgentError> {
    let name = stem(file);
    let warnings = warnings(file, &written);
    let tool_name =
        written.tool_name.as_ref().map_or_else(|| ToolName::sanitize(&name), |word| word.0.clone());
    Ok(AgentDefinition {
        description: written.description.clone().unwrap_or_default(),
        tool_name,
        models: model_names(file, written.models.as_ref())?,
        reach: reach(file, &written)?,
        limits: limits(&written),
        budget: budget(&written.budget),
        unpriced_models: written.budget.unpriced.map_or(UnpricedModels::Refuse, Into::into),
        asking: asking(&written),
        times: times(&written),
        outputs: outputs(file, &written)?,
        compaction: compaction(file, written.compaction.as_ref())?,
        tool_search: tool_search(file, &written)?,
        input: input(file, written.input, around)?,
        report: reporting(file, written.output, written.final_report, around)?,
        name,
        body,
        default_text: DefaultText::WhenEmpty,
        warnings,
    })
}

/// Returns a warning for each renamed key, and for each duration without a unit. Both still work, because a file may be
/// older than the installed version of haft.
fn warnings(file: &str, written: &RawAgent) -> Vec<String> {
    let mut warnings: Vec<String> = OLD_KEYS
        .into_iter()
        .filter(|(old, _)| is_old_key_used(old, written))
        .map(|(old, new)| format!("`{old}` was renamed to `{new}`; use the new name"))
        .collect();
    if written.budget.seconds.is_some() {
        let message = "`budget.seconds` was renamed to `budget.time`; write a duration such as `60s`";
        warnings.push(message.to_owned());
    }
    let times = [
        ("budget.time", written.budget.time),
        ("llmTimeout", written.llm_timeout),
        ("timeout", written.timeout),
        ("toolTimeout", written.tool_timeout),
    ];
    warnings.extend(times.into_iter().filter_map(|(key, time)| without_unit(key, time?)));
    warnings.iter().map(|warning| format!("{}: {warning}", printable(file))).collect()
}

fn is_old_key_used(key: &str, written: &RawAgent) -> bool {
    match key {
        "contextWindow" => written.context_window.is_some(),
        "maxRetries" => written.max_retries.is_some(),
        "toolResponseMaxBytes" => written.tool_response_max_bytes.is_some(),
        _ => false,
    }
}

fn without_unit(key: &str, time: DurationValue) -> Option<String> {
    let millis = u64::try_from(time.time.as_millis()).ok().filter(|_| !time.has_unit)?;
    let notation = duration::notation(millis);
    Some(format!("`{key}: {millis}` has no unit and means milliseconds; write `{notation}`"))
}

/// Checks that each model name has the form `provider/model`. The provider need not exist.
fn model_names(file: &str, written: Option<&Spanned<WordList>>) -> Result<Vec<String>, AgentError> {
    let Some(written) = written else { return Ok(Vec::new()) };
    for name in &written.value.0 {
        config::ModelName::parse(name).map_err(|problem| at(file, written, problem))?;
    }
    Ok(written.value.0.clone())
}

fn reach(file: &str, written: &RawAgent) -> Result<AgentAccess, AgentError> {
    Ok(AgentAccess {
        tools: written.tools.as_ref().map(|tools| globs(file, "tools", tools)).transpose()?,
        allowed_tools: written.allowed_tools.as_ref().map(|words| words.0.clone()),
        tool_choice: tool_choice(file, written.tool_choice.as_ref())?,
        agents: written.agents.0.clone(),
        destinations: written.router.destinations.0.clone(),
        handoff: written.handoff.clone(),
    })
}

/// Reads `auto`, `none`, `required`, or the name of the tool that must be called.
fn tool_choice(file: &str, written: Option<&Spanned<String>>) -> Result<ToolChoice, AgentError> {
    let Some(written) = written else { return Ok(ToolChoice::Auto) };
    match written.value.trim() {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        "" => Err(at(file, written, "`toolChoice`: expected auto, none, required or a tool name")),
        name => Ok(ToolChoice::Named(name.to_owned())),
    }
}

fn tool_search(file: &str, written: &RawAgent) -> Result<AgentToolSearch, AgentError> {
    let always_show = written.always_show.as_ref();
    Ok(AgentToolSearch {
        mode: written.tool_search.map(Into::into),
        always_show: always_show.map(|words| globs(file, "alwaysShow", words)).transpose()?,
        expose: written.expose.map(Into::into),
    })
}

fn globs(file: &str, key: &str, words: &Spanned<WordList>) -> Result<Vec<ToolGlob>, AgentError> {
    let globs = words.value.0.iter().map(|word| ToolGlob::new(word));
    globs.collect::<Result<_, _>>().map_err(|error| at(file, words, format!("`{key}`: {error}")))
}

fn limits(written: &RawAgent) -> RunLimits {
    let default = RunLimits::default();
    let or = |count: Option<PositiveCount>, default: u32| count.map_or(default, |count| count.0);
    RunLimits {
        turns_max: or(written.max_turns, default.turns_max),
        tool_calls_max: written.max_tool_calls.map(|count| count.0),
        tool_calls_per_turn_max: or(written.max_tool_calls_per_turn, default.tool_calls_per_turn_max),
        attempts_max: or(written.max_attempts.or(written.max_retries), default.attempts_max),
        continuations_max: default.continuations_max,
        // The context depends on the sizes of the model, which are not known yet.
        context: None,
    }
}

fn budget(written: &RawAgentBudget) -> SpendLimit {
    SpendLimit {
        usd: written.usd.map(|usd| usd.0),
        tokens: written.tokens,
        calls: written.calls,
        time: match (written.time, written.seconds) {
            (Some(time), _) => Some(time.time),
            (None, seconds) => seconds.map(|seconds| Duration::from_secs_f64(seconds.0)),
        },
    }
}

fn asking(written: &RawAgent) -> ModelParameters {
    let sampling = SamplingParameters {
        temperature: written.temperature.map(|number| number.0),
        top_p: written.top_p.map(|number| number.0),
        top_k: written.top_k.map(|count| count.0),
        ..SamplingParameters::default()
    };
    ModelParameters {
        sampling,
        effort: written.reasoning.map(Into::into),
        reasoning_summary: written.reasoning_summary.map(Into::into),
        verbosity: written.verbosity.map(Into::into),
        parallel_calls: match written.parallel_tool_calls {
            Some(false) => ParallelCalls::OneAtATime,
            Some(true) | None => ParallelCalls::Allowed,
        },
        output_tokens_max: written.max_output_tokens.map(|count| count.0),
        context_tokens: written.context_tokens.or(written.context_window).map(|count| count.0),
        context_buffer_tokens: written.context_buffer.map(|count| count.0),
        caching: written.caching.map_or(PromptCaching::Full, Into::into),
    }
}

fn times(written: &RawAgent) -> AgentTimeouts {
    AgentTimeouts {
        run: written.timeout.map_or(RUN_TIMEOUT_DEFAULT, |time| time.time),
        llm: written.llm_timeout.map_or(LLM_TIMEOUT_DEFAULT, |time| time.time),
        tool: written.tool_timeout.map(|time| time.time),
    }
}

fn outputs(file: &str, written: &RawAgent) -> Result<AgentOutputSettings, AgentError> {
    Ok(AgentOutputSettings {
        response_bytes_max: written
            .max_tool_response_bytes
            .or(written.tool_response_max_bytes)
            .map(|count| count.0),
        tool_output: tool_output(file, &written.tool_output)?,
        cache_ttl: written.cache.and_then(|time| time.0),
    })
}

fn compaction(
    file: &str,
    written: Option<&Spanned<RawAgentCompaction>>,
) -> Result<config::AgentCompaction, AgentError> {
    let Some(written) = written else { return Ok(config::AgentCompaction::default()) };
    let RawCompactionKeys { at: start, keep, model } = match &written.value {
        RawAgentCompaction::Off => {
            let at = Some(config::CompactionStart::Off);
            return Ok(config::AgentCompaction { at, ..config::AgentCompaction::default() });
        }
        RawAgentCompaction::Keys(keys) => keys,
    };
    let model = model.as_deref().map(config::ModelName::parse).transpose();
    Ok(config::AgentCompaction {
        at: start.map(|start| start.0),
        keep_turns: keep.map(|count| count.0),
        model: model.map_err(|problem| at(file, written, problem))?,
    })
}

fn tool_output(file: &str, written: &RawAgentToolOutput) -> Result<AgentToolOutput, AgentError> {
    Ok(AgentToolOutput {
        enabled: written.enabled,
        chunks_max: written.max_chunks.map(|count| count.0),
        overlap_percent: written.overlap_percent.map(|percent| percent.0),
        line_bytes_threshold: written.avg_line_bytes_threshold.map(|count| count.0),
        models: model_names(file, written.models.as_ref())?,
    })
}

fn input(file: &str, written: RawAgentInput, around: AgentReadContext<'_>) -> Result<AgentInput, AgentError> {
    let schema = schema(file, written.schema, written.schema_ref, around)?;
    let format = match (written.format, &schema) {
        (Some(RawInputFormat::Json), _) | (None, Some(_)) => InputFormat::Json,
        (Some(RawInputFormat::Text), Some(schema)) => {
            return Err(at(
                file,
                schema,
                "`schema` needs `format: json`, but `format` is `text`; change `format` or remove `schema`",
            ));
        }
        (Some(RawInputFormat::Text) | None, None) => InputFormat::Text,
    };
    Ok(AgentInput { format, schema: schema.map(|schema| schema.value) })
}

/// Decides how the run delivers its answer. If the form of the report matters, the model submits the report through a
/// tool; otherwise the last text is the answer.
fn reporting(
    file: &str,
    written: RawAgentOutput,
    by: Option<RawReportDelivery>,
    around: AgentReadContext<'_>,
) -> Result<ReportSettings, AgentError> {
    let schema = schema(file, written.schema, written.schema_ref, around)?;
    let is_shaped = schema.is_some() || written.format.is_some();
    let shape = match (written.format.map(|word| word.0), schema) {
        (Some(ReportFormat::Json) | None, Some(schema)) => {
            ReportShape::json(Arc::clone(&schema.value)).map_err(|problem| at(file, &schema, problem))?
        }
        (Some(format), Some(schema)) => {
            let message = format!(
                "`schema` needs `format: json`, but `format` is `{}`; change `format` or remove `schema`",
                format.name()
            );
            return Err(at(file, &schema, message));
        }
        (format, None) => ReportShape::plain(format.unwrap_or(ReportFormat::Markdown)),
    };
    let by = match by {
        Some(RawReportDelivery::Xml) => ReportDelivery::Xml,
        Some(RawReportDelivery::Tool) => ReportDelivery::Tool,
        None if is_shaped => ReportDelivery::Tool,
        Some(RawReportDelivery::None) => ReportDelivery::Text,
        None => ReportDelivery::None,
    };
    Ok(ReportSettings { by, shape })
}

/// Reads a schema, inline or from a separate file. The schema must compile.
fn schema(
    file: &str,
    written: Option<Spanned<Map<String, Value>>>,
    reference: Option<Spanned<String>>,
    around: AgentReadContext<'_>,
) -> Result<Option<Spanned<Arc<Value>>>, AgentError> {
    let schema = match (written, reference) {
        (None, None) => return Ok(None),
        (Some(_), Some(reference)) => {
            return Err(at(file, &reference, "set `schema` or `schemaRef`, not both"));
        }
        (Some(schema), None) => schema.map_to(|schema| Arc::new(Value::Object(schema))),
        (None, Some(reference)) => {
            let value =
                referenced(&reference.value, around).map_err(|problem| at(file, &reference, problem))?;
            reference.map_to(|_| Arc::new(value))
        }
    };
    match Schema::compile(&schema.value) {
        Schema::Checked(_) => Ok(Some(schema)),
        Schema::Unchecked { reason } => Err(at(file, &schema, reason)),
    }
}

fn referenced(name: &str, around: AgentReadContext<'_>) -> Result<Value, String> {
    let text = (around.read)(name)
        .map_err(|problem| format!("haft cannot read the schema file `{name}`: {problem}"))?;
    serde_json::from_str(&text).map_err(|error| format!("the schema file `{name}` is not JSON: {error}"))
}

/// Builds an error at the line of a value, relative to the YAML block.
fn at<T>(file: &str, value: &Spanned<T>, message: impl Into<String>) -> AgentError {
    let line = usize::try_from(value.referenced.line()).unwrap_or(1);
    AgentError::new(file, line, message)
}

/// Changes a value and keeps its position.
trait MapTo<T> {
    fn map_to<U>(self, change: impl FnOnce(T) -> U) -> Spanned<U>;
}

impl<T> MapTo<T> for Spanned<T> {
    fn map_to<U>(self, change: impl FnOnce(T) -> U) -> Spanned<U> {
        Spanned::new(change(self.value), self.referenced, self.defined)
    }
}

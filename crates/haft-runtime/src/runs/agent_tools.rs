//! Offers agents as tools of another agent.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::internal_tools::final_report::{ReportContent, ReportStatus};
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::run::RunError;
use haft_core::run::finish::{FinishClass, RunAnswer, RunFinish};
use haft_core::tool::{Effects, ToolDefinition, ToolFacts};
use haft_core::validate::ValidArguments;
use serde_json::{Map, Value, json};

use super::active_run::{ActiveRun, NoFunctions, RunRequest};
use super::prepared_agent::PreparedAgent;
use haft_config::agents::graph::NAMESPACE;
use haft_config::agents::{AgentDefinition, AgentInput, InputFormat};

/// A tool provider with one tool for each agent that may be called.
pub(super) struct AgentTools {
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
    prepared_agents: Vec<Arc<PreparedAgent>>,
}

impl AgentTools {
    pub(super) fn new(prepared_agents: Vec<Arc<PreparedAgent>>) -> Self {
        let tools = prepared_agents.iter().map(|prepared_agent| definition(prepared_agent.agent())).collect();
        Self { namespace: Namespace::sanitize(NAMESPACE), tools, prepared_agents }
    }

    /// Runs the agent in a session of its own. Dropping the future cancels the run and all processes that it started.
    async fn ask(
        &self,
        tool: &ToolName,
        arguments: &ValidArguments,
        cx: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        let prepared_agent =
            self.prepared_agents.iter().find(|prepared_agent| prepared_agent.agent().tool_name == *tool);
        let (Some(prepared_agent), Some(scope)) = (prepared_agent, &cx.scope) else {
            let message = format!("agent `{tool}` can be called only from a run");
            return Err(ToolError::new(ToolErrorKind::Unavailable, message));
        };
        let request = request(&prepared_agent.agent().input, arguments.value());
        let run_request = RunRequest::below(prepared_agent, request, cx, scope);
        cx.note("session", json!(run_request.place.session.to_string()));
        let finish = carry_out(Arc::clone(prepared_agent), run_request).await.map_err(|error| {
            ToolError::new(
                ToolErrorKind::Internal,
                format!("agent `{tool}` failed because of an error inside haft: {error}"),
            )
        })?;
        outcome(&prepared_agent.agent().name, &finish)
    }
}

async fn carry_out(
    prepared_agent: Arc<PreparedAgent>,
    run_request: RunRequest,
) -> Result<RunFinish, RunError> {
    ActiveRun::begin(prepared_agent, run_request).await?.drive_to_end(&NoFunctions).await
}

pub(super) fn definition(agent: &AgentDefinition) -> ToolDefinition {
    let description = match agent.description.trim() {
        "" => format!("Asks the agent `{}`, which works on the request with its own tools.", agent.name),
        description => description.to_owned(),
    };
    ToolDefinition {
        name: agent.tool_name.clone(),
        description,
        input_schema: input_schema(&agent.input),
        output_schema: None,
        effects: Effects::Unknown,
        groups: Vec::new(),
        facts: ToolFacts::default(),
        raw: None,
    }
}

fn input_schema(input: &AgentInput) -> Value {
    match (input.format, &input.schema) {
        (InputFormat::Json, Some(schema)) if is_object(schema) => Value::clone(schema),
        (InputFormat::Json, Some(schema)) => {
            json!({"type": "object", "properties": {"input": **schema}, "required": ["input"]})
        }
        (InputFormat::Json, None) => json!({"type": "object"}),
        (InputFormat::Text, _) => json!({
            "type": "object",
            "properties": {"request": {
                "type": "string",
                "minLength": 1,
                "description": "The task for the agent, with all information that it needs: it sees nothing else.",
            }},
            "required": ["request"],
            "additionalProperties": false,
        }),
    }
}

/// Returns true if a schema describes an object. Tool arguments must be an object, so any other input is wrapped in
/// one.
fn is_object(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object")
}

/// Returns the request text for the agent. The arguments have been validated against the schema of the tool, so the
/// expected member is present.
pub(super) fn request(input: &AgentInput, arguments: &Map<String, Value>) -> String {
    let inside = match (input.format, &input.schema) {
        (InputFormat::Text, _) => arguments.get("request"),
        (InputFormat::Json, Some(schema)) if !is_object(schema) => arguments.get("input"),
        (InputFormat::Json, _) => None,
    };
    match inside {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => Value::Object(arguments.clone()).to_string(),
    }
}

/// Converts the end of the agent's run to a tool result. A truncated answer is still returned, with a note that it is
/// incomplete.
pub(super) fn outcome(agent: &str, finish: &RunFinish) -> Result<ToolOutput, ToolError> {
    let row = finish.reason.row();
    let detail = if finish.detail.is_empty() { row.hint } else { &finish.detail };
    let failed =
        |kind| Err(ToolError::new(kind, format!("agent `{agent}` ended with `{}`: {detail}", row.name)));
    match (row.class, &finish.answer) {
        (FinishClass::Answered, Some(answer)) => answered(agent, answer),
        (FinishClass::Limited | FinishClass::Budget, Some(answer)) => {
            let text = answer.text();
            Ok(ToolOutput::text(format!(
                "(agent `{agent}` ended early: {}; its answer is incomplete)\n{text}",
                row.name
            )))
        }
        (FinishClass::Limited | FinishClass::Budget, None) => failed(ToolErrorKind::LimitExceeded),
        (FinishClass::TimedOut, _) => failed(ToolErrorKind::Timeout),
        (FinishClass::Interrupted, _) => failed(ToolErrorKind::Cancelled),
        (FinishClass::Answered, None) | (FinishClass::Failed, _) => failed(ToolErrorKind::Failed),
    }
}

fn answered(agent: &str, answer: &RunAnswer) -> Result<ToolOutput, ToolError> {
    let text = answer.text();
    match answer {
        RunAnswer::Text(_) => Ok(ToolOutput::text(text)),
        RunAnswer::Report(report) => match report.status {
            ReportStatus::Success | ReportStatus::Partial => {
                let structured = match &report.content {
                    ReportContent::Json(value) => Some(value.clone()),
                    ReportContent::Text(_) => None,
                };
                Ok(ToolOutput { structured, ..ToolOutput::text(text) })
            }
            ReportStatus::Failure => {
                let message = format!("agent `{agent}` reports that it did not succeed: {text}");
                Err(ToolError::new(ToolErrorKind::Failed, message))
            }
        },
    }
}

impl ToolProvider for AgentTools {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Agent
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.tools)
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(self.ask(tool, arguments, cx))
    }
}

impl fmt::Debug for AgentTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentTools").field("prepared_agents", &self.prepared_agents).finish_non_exhaustive()
    }
}

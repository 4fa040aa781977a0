//! Offers agents as tools outside of a run, for example to the clients of a gateway. Each call is a separate run.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_config::agents::graph::{AgentGraph, NAMESPACE};
use haft_core::approval::ApprovalId;
use haft_core::client_relay::{ClientRelay, RelayedRequest};
use haft_core::elicitation::{ElicitationAnswer, Elicitor};
use haft_core::event::{CallProgress, Event, EventSink};
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::position::CallOperation;
use haft_core::principal::Principal;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::ToolDefinition;
use haft_core::validate::ValidArguments;
use serde_json::{Value, json};

use super::agent_tools::{definition, outcome, request};
use crate::handle::RunHandle;
use crate::runtime::{AnswerSource, RunHooks, Runtime};
use crate::spec::{RunSecrets, RunSpec, WorkspaceSpec};

/// A tool provider with one tool for each agent. Approvals and elicitation requests of the runs go to the approver and
/// the relay of the call. The runtime records the usage of the runs, so their events are not sent to the event sink of
/// the call.
pub struct ServedAgents {
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
    agents: Vec<Arc<AgentGraph>>,
    runtime: Runtime,
    workspace: WorkspaceSpec,
    admission: Option<RunAdmission>,
}

/// Decides whether a run of a principal may start. The error is for the client.
pub type RunAdmission = Arc<dyn Fn(&Principal) -> Result<RunPermit, ToolError> + Send + Sync>;

/// Permits one run. It is dropped when the run ends, for example to free a place that the run occupied.
pub struct RunPermit(
    #[expect(dead_code, reason = "only its drop has an effect")] Option<Box<dyn Send + Sync>>,
);

impl RunPermit {
    /// Creates a permit that keeps a guard until the run ends.
    pub fn holding(guard: Option<impl Send + Sync + 'static>) -> Self {
        Self(guard.map(|guard| Box::new(guard) as Box<dyn Send + Sync>))
    }
}

impl fmt::Debug for RunPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunPermit")
    }
}

impl ServedAgents {
    /// Creates tools for these agents. Their runs work in this workspace.
    pub fn new(runtime: Runtime, agents: Vec<Arc<AgentGraph>>, workspace: WorkspaceSpec) -> Self {
        let tools = agents.iter().map(|graph| definition(&graph.first().agent)).collect();
        let namespace = Namespace::sanitize(NAMESPACE);
        Self { namespace, tools, agents, runtime, workspace, admission: None }
    }

    /// Sets a function that decides before each run whether the run may start.
    #[must_use]
    pub fn admitted_by(mut self, admission: Option<RunAdmission>) -> Self {
        self.admission = admission;
        self
    }

    /// Runs the agent. Dropping the future cancels the run and all processes that it started.
    async fn ask(
        &self,
        tool: &ToolName,
        arguments: &ValidArguments,
        cx: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        let Some(graph) = self.agents.iter().find(|graph| graph.first().agent.tool_name == *tool) else {
            return Err(ToolError::new(
                ToolErrorKind::Unavailable,
                format!("haft does not serve an agent `{tool}`"),
            ));
        };
        let agent = &graph.first().agent;
        let failed = |reason: String| {
            ToolError::new(ToolErrorKind::Failed, format!("haft could not run the agent `{tool}`: {reason}"))
        };
        let _permit = self.admission.as_ref().map(|admission| admission(&cx.run.principal)).transpose()?;
        let mut spec = RunSpec::new(graph, request(&agent.input, arguments.value()), self.workspace.clone());
        spec.principal = cx.run.principal.clone();
        let started = self.runtime.start_with(spec, RunSecrets::none(), hooks(cx)).await;
        let run = CancelledOnDrop(started.map_err(|error| failed(error.to_string()))?);
        cx.note("session", json!(run.0.id().to_string()));
        let finished = run.0.finished().await.map_err(|defect| failed(defect.to_string()))?;
        outcome(&agent.name, &finished.finish)
    }
}

/// Connects a run with the call that started it.
fn hooks(cx: &CallContext) -> RunHooks {
    let watcher =
        CallEvents { operation: Arc::new(cx.operation().clone()), of_call: Arc::clone(cx.events()) };
    let CallOperation { place, call, .. } = cx.operation();
    let call = ApprovalId::of_call(*place, call);
    // If the client cannot show forms, pass no elicitor. Otherwise haft would announce elicitation to the servers of
    // the agent, although the client cannot answer.
    let relay = cx.run.relay.clone().filter(|_| cx.run.relay_abilities.forms);
    let elicitor = relay.map(|relay| Arc::new(RelayedElicitor { relay, call }) as _);
    RunHooks {
        approvals: AnswerSource::by(cx.run.approver.clone()),
        elicitations: AnswerSource::by(elicitor),
        watchers: vec![Arc::new(watcher)],
        ..RunHooks::default()
    }
}

/// Cancels a run whose caller is gone. A run that has ended is not affected.
struct CancelledOnDrop(RunHandle);

impl Drop for CancelledOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Reports the calls of a run as progress of the call that started it.
struct CallEvents {
    operation: Arc<CallOperation>,
    of_call: Arc<dyn EventSink>,
}

impl EventSink for CallEvents {
    fn emit(&self, event: Event) {
        let news = match event {
            Event::ToolStarted { tool, .. } => Some(format!("calling the tool `{}`", tool.name())),
            Event::ModelStarted { attempt, .. } => Some(format!("asking the model {}", attempt.model)),
            Event::ToolProgress { .. }
            | Event::ToolFinished { .. }
            | Event::ModelFinished { .. }
            | Event::Run { .. } => None,
        };
        if let Some(progress) = news.and_then(|text| CallProgress::Message(text).bounded()) {
            self.of_call.emit(Event::ToolProgress { operation: Arc::clone(&self.operation), progress });
        }
    }
}

/// Passes the elicitation requests of a run's MCP servers to the client of the gateway.
struct RelayedElicitor {
    relay: Arc<dyn ClientRelay>,
    /// The call that started the run.
    call: ApprovalId,
}

impl Elicitor for RelayedElicitor {
    fn elicit<'a>(&'a self, server: &'a str, request: Value) -> BoxFuture<'a, ElicitationAnswer> {
        Box::pin(async move {
            // Decline a request to open a URL: haft announces to the servers of an agent only that the client can show
            // forms.
            if request["mode"] == "url" {
                return ElicitationAnswer::Declined;
            }
            let params = request.to_string();
            let asked = RelayedRequest {
                call: Some(self.call),
                server,
                key: None,
                method: "elicitation/create",
                params: &params,
            };
            let answer = self.relay.relay(asked).await.ok();
            let answer = answer.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
            answer.map_or(ElicitationAnswer::Cancelled, |mut answer| match answer["action"].as_str() {
                Some("accept") => ElicitationAnswer::Accepted(answer["content"].take()),
                Some("decline") => ElicitationAnswer::Declined,
                Some(_) | None => ElicitationAnswer::Cancelled,
            })
        })
    }
}

impl ToolProvider for ServedAgents {
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

impl fmt::Debug for ServedAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedAgents").field("tools", &self.tools.len()).finish_non_exhaustive()
    }
}

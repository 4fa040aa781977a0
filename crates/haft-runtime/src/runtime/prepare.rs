//! Prepares a run before its first step: agents, tools, models and context.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use haft_config::ResolvedConfig;
use haft_config::agents::AgentDefinition;
use haft_config::agents::graph::AgentGraph;
use haft_config::expand::VariableSource;
use haft_config::resolved::ModelName;
use haft_config::skills::{self, Skill};
use haft_core::client_relay::RelayAbilities;
use haft_core::digest::Digest;
use haft_core::event::{Event, EventSink, EventSinks};
use haft_core::event_store::RunKey;
use haft_core::position::SessionId;
use haft_core::provider::ToolProvider;
use haft_core::run::context::{RawResults, RunContext};
use haft_core::run::untrusted::UntrustedReads;
use haft_sandbox::SandboxPolicy;
use haft_tools::mcp::{ElicitationSupport, LoginOffer, RelayedCapabilities};

use super::generation::ConfigGeneration;
use super::shared_agents::{AgentLease, RequestedProvider, RunCircumstances, RunnableAgent, ToolWarmUp};
use super::shared_provider::SharedProvider;
use super::{AnswerSource, OutputStorage, PreparedRun, RunHooks, Runtime, StartError};
use crate::definition_watch::{ComparedDefinitions, DefinitionWatch};
use crate::handle::RunShared;
use crate::models::ModelProviders;
use crate::reporting_grants::ReportingGrants;
use crate::runs::{
    AvailableSkills, LeftSessions, PreparedAgent, RunEnvironment, Variables, model_names, model_route,
};
use crate::sampling::ModelSampler;
use crate::spec::{ModelChoice, RunSpec, SkillSource, requested_labels};
use crate::wiring::{self, McpClientSettings, McpServers, ServerPatience};

/// An agent that is ready for use, or the parts from which it is prepared once its model is chosen.
enum FoundAgent {
    Ready(AgentLease),
    ToRoute { environment: Arc<RunEnvironment>, graph: AgentGraph, servers: McpServers },
}

impl Runtime {
    /// Builds all parts that a run needs before its first step.
    pub(super) async fn prepare(
        &self,
        id: SessionId,
        spec: &RunSpec,
        variables: Variables,
        hooks: RunHooks,
        left: LeftSessions,
        generation: &Arc<ConfigGeneration>,
    ) -> Result<PreparedRun, StartError> {
        let sessions = hooks.sessions.under(&generation.config);
        let found = self.find_agent(spec, variables, &hooks, left, generation)?;
        let key = RunKey { tenant: spec.principal.tenant().to_owned(), run: id };
        let (log, desk) = self.log_and_desk(key.clone(), sessions, left, hooks.session).await;
        let shared = RunShared::new(id, spec.principal.clone(), log.clone(), Arc::clone(&desk));
        let (environment, sampler) = match &found {
            FoundAgent::Ready(lease) => {
                let RunnableAgent { agent, sampler, .. } = lease.runnable();
                (Arc::clone(agent.environment()), Arc::clone(sampler))
            }
            FoundAgent::ToRoute { environment, graph, .. } => {
                let usual = model_names(&graph.first().agent, environment.config());
                let usual = usual.map_err(StartError::Models)?.into_iter().next();
                (Arc::clone(environment), Arc::new(sampler(environment, generation, usual)))
            }
        };
        let outputs = self.outputs(&key, environment.config(), hooks.output_storage)?;
        let grants = ReportingGrants::new(Arc::clone(&self.shared.stores.grants), shared.warner());
        let untrusted = Arc::new(UntrustedReads::default());
        if left != LeftSessions::Ignored {
            // The journal does not show which results were untrusted, so all results of an earlier process are treated
            // as untrusted.
            untrusted.record("an earlier part of this session");
        }
        let policy = environment.policy();
        let context = Arc::new(RunContext {
            principal: spec.principal.clone(),
            workspace: policy.workspace().to_string_lossy().into(),
            confinement: policy.confinement(),
            approver: hooks.approvals.or(Arc::clone(&desk) as _),
            authority: hooks.authority,
            caller_approvals: spec.approvals.clone().into(),
            grants: Arc::new(grants),
            outputs,
            elicitor: hooks.elicitations.or(Arc::clone(&desk) as _),
            sampler: Some(sampler),
            events: hooks.sink(&log),
            relay: None,
            relay_abilities: RelayAbilities::default(),
            raw_results: RawResults::Dropped,
            untrusted,
        });
        let (agent, routing, route_warning) = match found {
            FoundAgent::Ready(lease) => (lease, Vec::new(), None),
            FoundAgent::ToRoute { environment, mut graph, servers } => {
                let (routing, warning) = self.route(&environment, &mut graph, spec, id, &context).await?;
                let agent = environment.prepare(&graph).map_err(StartError::Models)?;
                let runnable = runnable(agent, generation, servers, &spec.secrets);
                (AgentLease::alone(Arc::new(runnable)), routing, warning)
            }
        };
        let warnings = self.start_tools(agent.runnable(), generation, &context).await;
        let shared = shared
            .listing(agent.runnable().requested.iter().map(RequestedProvider::listing).collect())
            .with_agent(Arc::clone(&agent.runnable().agent));
        shared.warn(warnings.into_iter().chain(route_warning));
        let prepared = &agent.runnable().agent;
        if let Some(problem) = prepared.unmet_choice(&context) {
            return Err(StartError::ToolChoice { agent: prepared.agent().name.clone(), problem });
        }
        Ok(PreparedRun { agent, context, shared, routing })
    }

    /// Returns the agent of an equal run, or prepares a new one. The function does not await, so that runs that start
    /// together share the agent.
    fn find_agent(
        &self,
        spec: &RunSpec,
        variables: Variables,
        hooks: &RunHooks,
        left: LeftSessions,
        generation: &Arc<ConfigGeneration>,
    ) -> Result<FoundAgent, StartError> {
        let check = |agent: &AgentDefinition| match left {
            LeftSessions::Ignored => crate::runs::check_input(agent, &spec.request),
            LeftSessions::Continued(_) => Ok(()),
        };
        let circumstances = circumstances(spec, &*variables, hooks, generation);
        let is_shared = is_shared(spec, hooks, left, generation);
        if let Some(lease) = is_shared.then(|| generation.agents.join(spec, circumstances)).flatten() {
            check(lease.runnable().agent.agent())?;
            return Ok(FoundAgent::Ready(lease));
        }
        let graph = spec.graph(&*variables).map_err(StartError::Agent)?;
        check(&graph.first().agent)?;
        let policy = spec.workspace.policy_of(&spec.principal, &self.shared.home);
        let policy = policy.map_err(StartError::Policy)?;
        let (config, skills) = with_skills(generation, spec, &*variables);
        let (environment, servers) =
            self.environment(spec, config, policy, (skills, variables), generation, hooks);
        if let Some(journals) = self.journals(circumstances.sessions, &generation.config) {
            environment.keep_sessions(journals, left);
        }
        if spec.model_choice == ModelChoice::Routed {
            return Ok(FoundAgent::ToRoute { environment, graph, servers });
        }
        let agent = environment.prepare(&graph).map_err(StartError::Models)?;
        let runnable = runnable(agent, generation, servers, &spec.secrets);
        Ok(FoundAgent::Ready(if is_shared {
            generation.agents.insert(spec, circumstances, runnable)
        } else {
            AgentLease::alone(Arc::new(runnable))
        }))
    }

    /// Makes the tools of an agent ready and returns warnings about them.
    async fn start_tools(
        &self,
        runnable: &RunnableAgent,
        generation: &ConfigGeneration,
        context: &RunContext,
    ) -> Vec<String> {
        let RunnableAgent { agent, warnings, .. } = runnable;
        let mut warnings = warnings.clone();
        warnings.extend(agent.reachable_agents().iter().flat_map(|agent| agent.agent().warnings.clone()));
        let of_catalog = match runnable.warm_up {
            ToolWarmUp::EachRun => wiring::warm_up(agent.orchestrator()).await,
            ToolWarmUp::NotNeeded => agent.orchestrator().catalog().warnings(),
        };
        warnings.extend(of_catalog.iter().map(ToString::to_string));
        let definitions = DefinitionWatch::new(&generation.config, &self.shared.home)
            .ignoring(runnable.requested_labels())
            .for_principal(&context.principal);
        let changed = runnable.compared.warnings(&definitions, agent.orchestrator());
        warnings.extend(changed.iter().map(ToString::to_string));
        warnings.extend(agent.reachable_agents().iter().flat_map(|agent| agent.tool_warnings(context)));
        warnings
    }

    fn environment(
        &self,
        spec: &RunSpec,
        config: Arc<ResolvedConfig>,
        policy: SandboxPolicy,
        (skills, variables): (AvailableSkills, Variables),
        generation: &ConfigGeneration,
        hooks: &RunHooks,
    ) -> (Arc<RunEnvironment>, McpServers) {
        let face = McpClientSettings {
            relayed: RelayedCapabilities::default(),
            elicitation: elicitation(hooks),
            principal: spec.principal.clone(),
            trace: self.shared.trace.clone(),
            parents: self.shared.parents.clone(),
            shared: Arc::clone(&self.shared.servers),
            patience: ServerPatience::Run,
            login: LoginOffer::NotOffered,
        };
        let mut servers = wiring::mcp_servers(&config, &policy, &face);
        let requested = wiring::requested_servers(&spec.secrets, &*variables, &config, &face);
        servers.providers.extend(requested.providers);
        servers.unusable.extend(requested.unusable);
        let shared = generation.providers.iter();
        let shared =
            shared.map(|provider| Arc::new(SharedProvider(Arc::clone(provider))) as Arc<dyn ToolProvider>);
        let providers = servers.providers().into_iter().chain(shared).collect();
        let engine = match hooks.output_storage {
            OutputStorage::Stores => Cow::Borrowed(&generation.engine),
            OutputStorage::Memory => Cow::Owned(generation.engine.without_cache_store()),
        };
        let environment = RunEnvironment::sharing((policy, config), providers, variables, skills, &engine);
        environment.instruct(spec.instructions.clone());
        if let Some((tape, recorder)) = &hooks.recorder {
            environment.record_on(Arc::clone(tape), Arc::clone(recorder));
        }
        if let Some(models) = hooks.models.as_ref().or(generation.models.as_ref()) {
            environment.replace_models(Arc::clone(models));
        }
        (environment, servers)
    }

    /// Asks the fast model whether the fast or the complex model should work on the request, if both are configured and
    /// the agent names no model. If the fast model fails, the complex model is used.
    async fn route(
        &self,
        environment: &Arc<RunEnvironment>,
        graph: &mut AgentGraph,
        spec: &RunSpec,
        id: SessionId,
        context: &RunContext,
    ) -> Result<(Vec<Event>, Option<String>), StartError> {
        let choices = model_route::choices(&environment.config().models);
        let Some(choices) = choices.filter(|_| graph.first().agent.models.is_empty()) else {
            return Ok((Vec::new(), None));
        };
        let complex: ModelName = choices.1.clone();
        let fast = environment.models(std::slice::from_ref(&choices.0)).map_err(StartError::Models)?;
        let seen = Arc::new(RoutingEvents::default());
        let watchers = EventSinks(vec![Arc::clone(&seen) as _, Arc::clone(&context.events)]);
        let chosen = model_route::choose(&*fast, choices, &spec.request, id, Arc::new(watchers)).await;
        let (chosen, warning) = match chosen {
            Ok(chosen) => (chosen, None),
            Err(error) => {
                let warning = format!("the fast model could not choose a model: {error}; using `{complex}`");
                (complex, Some(warning))
            }
        };
        graph.set_first_model(chosen.to_string());
        Ok((seen.take(), warning))
    }
}

/// Decides whether other runs may use the agent of this run. Returns false for a run with secrets, a recording or its
/// own models, because they would affect the other runs, and for a resumed run, because it continues the sessions of
/// its sub-agents.
fn is_shared(spec: &RunSpec, hooks: &RunHooks, left: LeftSessions, generation: &ConfigGeneration) -> bool {
    left == LeftSessions::Ignored
        && requested_labels(&spec.secrets).count() == spec.secrets.len()
        && spec.model_choice == ModelChoice::Named
        && hooks.recorder.is_none()
        && hooks.models.is_none()
        && generation.config.mcp_servers.values().all(|server| server.shared || !server.enabled)
}

fn circumstances(
    spec: &RunSpec,
    variables: VariableSource<'_>,
    hooks: &RunHooks,
    generation: &ConfigGeneration,
) -> RunCircumstances {
    let requested_servers = (!spec.secrets.is_empty()).then(|| {
        let servers: Vec<Option<String>> = spec.secrets.iter().map(|name| variables(name)).collect();
        Digest::of_text(&format!("{:?}\n{servers:?}", spec.secrets))
    });
    RunCircumstances {
        requested_servers,
        elicitation: elicitation(hooks),
        sessions: hooks.sessions.under(&generation.config),
        output_storage: hooks.output_storage,
    }
}

fn elicitation(hooks: &RunHooks) -> ElicitationSupport {
    match hooks.elicitations {
        AnswerSource::ThroughHandle | AnswerSource::By(_) => ElicitationSupport::Offered,
        AnswerSource::Denied => ElicitationSupport::NotOffered,
    }
}

fn runnable(
    agent: Arc<PreparedAgent>,
    generation: &ConfigGeneration,
    servers: McpServers,
    secrets: &BTreeSet<String>,
) -> RunnableAgent {
    let unusable =
        |(name, reason): &(String, String)| format!("MCP server `{name}` cannot be used: {reason}");
    let is_ready = servers.providers.is_empty() && generation.providers.is_empty();
    RunnableAgent {
        warm_up: if is_ready { ToolWarmUp::NotNeeded } else { ToolWarmUp::EachRun },
        compared: ComparedDefinitions::default(),
        sampler: Arc::new(sampler(agent.environment(), generation, Some(agent.model().clone()))),
        warnings: servers.unusable.iter().map(unusable).collect(),
        requested: requested_labels(secrets).map(|label| requested(label, &servers)).collect(),
        servers: servers.providers,
        agent,
    }
}

/// Returns the provider of a server that the caller named, or the reason why there is none.
fn requested(label: &str, servers: &McpServers) -> RequestedProvider {
    let refused = servers.unusable.iter().find(|(name, _)| name == label);
    let found = servers.providers.iter().find(|provider| provider.namespace().as_str() == label);
    let provider = match (refused, found) {
        (None, Some(provider)) => Ok(Arc::clone(provider)),
        (Some((_, reason)), _) => Err(reason.clone()),
        (None, None) => Err("haft did not start an MCP server with this label".to_owned()),
    };
    RequestedProvider { label: label.to_owned(), provider }
}

/// Returns the sampler for sampling requests of MCP servers, which uses the connections of the runtime.
fn sampler(
    environment: &RunEnvironment,
    generation: &ConfigGeneration,
    usual: Option<ModelName>,
) -> ModelSampler {
    let engine = &generation.engine;
    let providers = ModelProviders::sharing(engine.clients().clone(), engine.circuits().clone());
    let asking = (Arc::clone(environment.variables()), providers);
    ModelSampler::of_run(Arc::clone(environment.config()), environment.policy(), asking, usual)
}

/// Returns the configuration with the servers of the run's skills, and the skills as the model sees them.
fn with_skills(
    generation: &ConfigGeneration,
    spec: &RunSpec,
    variables: VariableSource<'_>,
) -> (Arc<ResolvedConfig>, AvailableSkills) {
    let read = |source: &SkillSource| Skill::read(&source.file, &source.text, variables).ok();
    let active: Vec<Skill> = spec.skills.iter().filter_map(read).collect();
    let mut config = Arc::clone(&generation.config);
    // Most runs have no skills with servers, and share the configuration instead of copying it.
    if active.iter().any(|skill| !skill.servers.is_empty()) {
        skills::add_servers(Arc::make_mut(&mut config), &active);
    }
    let available = AvailableSkills::of(&generation.skills, &active, variables);
    (config, available)
}

/// Collects the events of the model choice.
#[derive(Debug, Default)]
struct RoutingEvents(Mutex<Vec<Event>>);

impl RoutingEvents {
    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl EventSink for RoutingEvents {
    fn emit(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

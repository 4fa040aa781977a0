//! Everything that a run needs before its first step: agents, tools, models, context.

use std::sync::{Arc, Mutex, PoisonError};

use haft_config::ResolvedConfig;
use haft_config::agents::graph::AgentGraph;
use haft_config::expand::VariableSource;
use haft_config::resolved::ModelName;
use haft_config::skills::{self, Skill};
use haft_core::event::{Event, EventSink, EventSinks};
use haft_core::event_store::RunKey;
use haft_core::position::SessionId;
use haft_core::provider::ToolProvider;
use haft_core::run::context::{RawResults, RunContext};
use haft_core::run::untrusted::UntrustedReads;
use haft_sandbox::SandboxPolicy;
use haft_tools::mcp::{ElicitationSupport, RelayedCapabilities};

use super::generation::ConfigGeneration;
use super::shared_provider::SharedProvider;
use super::{AnswerSource, PreparedRun, RunHooks, Runtime, StartError};
use crate::definition_watch::DefinitionWatch;
use crate::handle::RunShared;
use crate::models::ModelProviders;
use crate::reporting_grants::ReportingGrants;
use crate::runs::{AvailableSkills, LeftSessions, RunEnvironment, Variables, model_names, model_route};
use crate::sampling::ModelSampler;
use crate::spec::{ModelChoice, RunSpec, SkillSource};
use crate::wiring::{self, McpClientSettings, ServerPatience};

impl Runtime {
    /// Builds everything that a run needs before its first step.
    pub(super) async fn prepare(
        &self,
        id: SessionId,
        spec: &RunSpec,
        variables: Variables,
        hooks: RunHooks,
        left: LeftSessions,
        generation: &Arc<ConfigGeneration>,
    ) -> Result<PreparedRun, StartError> {
        let mut graph = spec.graph(&*variables).map_err(StartError::Agent)?;
        if left == LeftSessions::Ignored {
            crate::runs::check_input(&graph.first().agent, &spec.request)?;
        }
        let policy = spec.workspace.policy_of(&spec.principal, &self.shared.home);
        let policy = policy.map_err(StartError::Policy)?;
        let (config, skills) = with_skills(generation, spec, &*variables);
        let usual = model_names(&graph.first().agent, &config).map_err(StartError::Models)?;
        let asking = (Arc::clone(&variables), ModelProviders::sharing(generation.engine.clients().clone()));
        let sampler = ModelSampler::of_run(Arc::clone(&config), &policy, asking, usual.into_iter().next());
        let kept = hooks.keeps_session && generation.config.sessions.enabled;
        let takeover = hooks.takeover;
        let (log, desk) = self.log_and_desk(id, &spec.principal, kept, takeover).await;
        let key = RunKey { tenant: spec.principal.tenant().to_owned(), run: id };
        let outputs = self.outputs(&key, &config)?;
        let shared = RunShared::new(id, spec.principal.clone(), log.clone(), Arc::clone(&desk));
        let grants = ReportingGrants::new(Arc::clone(&self.shared.stores.grants), shared.warner());
        let untrusted = Arc::new(UntrustedReads::default());
        if left != LeftSessions::Ignored {
            // The journal does not say which results were untrusted, so all of an earlier process count as such.
            untrusted.record("an earlier part of this session");
        }
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
            sampler: Some(Arc::new(sampler)),
            events: hooks.sink(&log),
            relay: None,
            raw_results: RawResults::Dropped,
            untrusted,
        });
        let (environment, unusable) =
            self.environment(spec, config, policy, (skills, variables), generation, &hooks);
        if kept {
            environment.keep_sessions(self.shared.stores.journals(&generation.config), left);
        }
        let (routing, route_warning) = match spec.model_choice {
            ModelChoice::Named => (Vec::new(), None),
            ModelChoice::Routed => self.route(&environment, &mut graph, spec, id, &context).await?,
        };
        let agent = environment.prepare(&graph).map_err(StartError::Models)?;
        let mut warnings = unusable;
        warnings.extend(route_warning);
        warnings.extend(wiring::warm_up(agent.orchestrator()).await.iter().map(ToString::to_string));
        let definitions = DefinitionWatch::new(&generation.config, &self.shared.home);
        warnings.extend(definitions.warnings(agent.orchestrator()).iter().map(ToString::to_string));
        warnings.extend(agent.reachable_agents().iter().flat_map(|agent| agent.missing_tools()));
        warnings.extend(agent.reachable_agents().iter().flat_map(|agent| agent.schema_warnings(&context)));
        shared.warn(warnings);
        if let Some(problem) = agent.unmet_choice(&context) {
            return Err(StartError::ToolChoice { agent: agent.agent().name.clone(), problem });
        }
        Ok(PreparedRun { agent, context, shared, routing })
    }

    fn environment(
        &self,
        spec: &RunSpec,
        config: Arc<ResolvedConfig>,
        policy: SandboxPolicy,
        (skills, variables): (AvailableSkills, Variables),
        generation: &ConfigGeneration,
        hooks: &RunHooks,
    ) -> (Arc<RunEnvironment>, Vec<String>) {
        let face = McpClientSettings {
            relayed: RelayedCapabilities::default(),
            elicitation: match hooks.elicitations {
                AnswerSource::ThroughHandle | AnswerSource::By(_) => ElicitationSupport::Offered,
                AnswerSource::Denied => ElicitationSupport::NotOffered,
            },
            principal: spec.principal.clone(),
            trace: self.shared.trace.clone(),
            parents: self.shared.parents.clone(),
            shared: Arc::clone(&self.shared.servers),
            patience: ServerPatience::Run,
        };
        let servers = wiring::mcp_servers(&config, &policy, &face);
        let unusable =
            |(name, reason): &(String, String)| format!("MCP server `{name}` cannot be used: {reason}");
        let warnings = servers.unusable.iter().map(unusable).collect();
        let shared = generation.providers.iter();
        let shared =
            shared.map(|provider| Arc::new(SharedProvider(Arc::clone(provider))) as Arc<dyn ToolProvider>);
        let providers = servers.providers().into_iter().chain(shared).collect();
        let environment =
            RunEnvironment::sharing((policy, config), providers, variables, skills, &generation.engine);
        environment.instruct(spec.instructions.clone());
        if let Some((tape, recorder)) = &hooks.recorder {
            environment.record_on(Arc::clone(tape), Arc::clone(recorder));
        }
        if let Some(models) = hooks.models.as_ref().or(generation.models.as_ref()) {
            environment.replace_models(Arc::clone(models));
        }
        (environment, warnings)
    }

    /// Lets the fast model choose, where no model is named and there are two. A fast model that cannot be asked is no reason
    /// not to run.
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

/// Returns the configuration with the servers of the run's skills, and the skills as the model sees them.
fn with_skills(
    generation: &ConfigGeneration,
    spec: &RunSpec,
    variables: VariableSource<'_>,
) -> (Arc<ResolvedConfig>, AvailableSkills) {
    let read = |source: &SkillSource| Skill::read(&source.file, &source.text, variables).ok();
    let active: Vec<Skill> = spec.skills.iter().filter_map(read).collect();
    let mut config = Arc::clone(&generation.config);
    // Most runs have no such servers, and then share the configuration instead of a copy of it.
    if active.iter().any(|skill| !skill.servers.is_empty()) {
        skills::add_servers(Arc::make_mut(&mut config), &active);
    }
    let available = AvailableSkills::of(&generation.skills, &active, variables);
    (config, available)
}

/// Collects events.
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

//! Prepares the tools of the MCP gateway for a client: every principal has its own servers, workspace and stored
//! outputs.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_config::agents::graph::AgentGraph;
use haft_config::{ResolvedConfig, printable};
use haft_core::event::{EventSink, EventSinks};
use haft_core::glob::ToolGlob;
use haft_core::position::SessionId;
use haft_core::principal::Principal;
use haft_core::provider::ToolProvider;
use haft_engine::RunContext;
use haft_runtime::definition_watch::DefinitionWatch;
use haft_runtime::governor::EffectExposure;
use haft_runtime::runs::{RunAdmission, ServedAgents};
use haft_runtime::runtime::Runtime;
use haft_runtime::sampling::ModelSampler;
use haft_runtime::spec::WorkspaceSpec;
use haft_runtime::wiring::{self, OrchestratorOptions, ToolSettings};
use haft_sandbox::{Home, SandboxPolicy};
use haft_server::mcp::{
    BuiltinAccess, ClientAbilities, GatewayClient, OpenedTools, OutputsOpener, ToolsOpener,
};
use haft_server::{AgentCatalog, Server, needs_builtin_tools};
use haft_store::call_journal::CallJournalFile;
use haft_store::outputs::FileOutputs;
use haft_store::workspaces::{WorkspaceLease, WorkspaceName, WorkspaceStore};
use haft_tools::mcp::{ElicitationSupport, LoginOffer, RelayedCapabilities};
use haft_tools::output::OUTPUT_TOOL;

use super::super::args::{FileArgs, PolicyArgs};
use super::super::call::over_http;
use super::super::cli_error::CliError;
use super::super::settings::{self, Configuration};
use super::super::watch::CommandWatchers;
use super::super::{agents, approvals, servers, skills, terminal};
use crate::variables::variable;

/// The values that the tools of all clients share.
pub(crate) struct GatewayTools {
    pub(crate) configuration: Configuration,
    pub(crate) policy: PolicyArgs,
    pub(crate) exposure: EffectExposure,
    /// The workspace of the local user: the directory that the options select, by default the current directory. If
    /// `None`, the local user gets a separate directory, like all other principals.
    pub(crate) local: Option<ClientWorkspace>,
    /// The agents that clients can call.
    pub(crate) agents: GatewayAgents,
    /// The sinks of the server that also record the calls; empty for a gateway over the standard streams.
    pub(crate) server_sinks: Vec<Arc<dyn EventSink>>,
}

/// The directory that the tools of a client work in, and the sandbox around it.
#[derive(Clone)]
pub(crate) struct ClientWorkspace {
    pub(crate) spec: WorkspaceSpec,
    pub(crate) policy: SandboxPolicy,
}

/// The agents behind a gateway, and the runtime that runs them.
#[derive(Clone)]
pub(crate) struct GatewayAgents {
    runtime: Option<Runtime>,
    agents: Vec<Arc<AgentGraph>>,
    /// The check before each run; `None` for a gateway over the standard streams.
    admission: Option<RunAdmission>,
}

/// Selects when a gateway reads the files of its agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentReading {
    /// The gateway reads the agent files only at its start.
    Once,
    /// The gateway reads the agent files at its start and at each reload.
    AtReloads,
}

impl GatewayAgents {
    /// Reads all agents of haft's home directory and of the project. Starts no runtime if there are no agents and no
    /// reload can add some.
    pub(crate) async fn load(
        files: &FileArgs,
        configuration: &Configuration,
        reading: AgentReading,
    ) -> Result<Self, CliError> {
        let (catalog, mut warnings) = AgentCatalog::load(&agents::loader(files)?);
        let found: Vec<Arc<AgentGraph>> = catalog.graphs().cloned().collect();
        let mut runtime = None;
        if !found.is_empty() || reading == AgentReading::AtReloads {
            let builder = Runtime::builder(configuration.resolved.clone())
                .home(settings::home()?)
                .skills(skills::found(files)?);
            let built = builder.build_with_warnings().await;
            let (built, of_runtime) = built.map_err(CliError::usage)?;
            warnings.extend(of_runtime);
            runtime = Some(built);
        }
        for warning in &warnings {
            terminal::warn(&printable(warning));
        }
        Ok(Self { runtime, agents: found, admission: None })
    }

    /// Returns the agents of `haft serve`. The runtime of the server runs them and shuts them down.
    pub(crate) fn of(server: &Server) -> Self {
        let agents = server.agents().graphs().cloned().collect();
        Self { runtime: Some(server.runtime().clone()), agents, admission: Some(server.run_admission()) }
    }

    /// Makes each run of these agents subject to the limits of the API key that starts it; `server` enforces these
    /// limits.
    pub(crate) fn limited_by(mut self, server: &Server) -> Self {
        self.admission = self.runtime.as_ref().map(|runtime| server.run_admission_to(runtime));
        self
    }

    /// Returns a copy with the agents of another catalog and the same runtime.
    pub(crate) fn with_agents(&self, catalog: &AgentCatalog) -> Self {
        Self { agents: catalog.graphs().cloned().collect(), ..self.clone() }
    }

    /// Returns the agents as tools for a client. An agent that can reach built-in tools is included only if the client
    /// may use them.
    fn provider(
        &self,
        client: &GatewayClient,
        config: &ResolvedConfig,
        workspace: WorkspaceSpec,
    ) -> Option<Arc<dyn ToolProvider>> {
        let is_offered = |graph: &&Arc<AgentGraph>| {
            client.builtin_tools == BuiltinAccess::Offered || !needs_builtin_tools(config, graph)
        };
        let offered: Vec<Arc<AgentGraph>> = self.agents.iter().filter(is_offered).cloned().collect();
        let runtime = self.runtime.clone()?;
        let served = ServedAgents::new(runtime, offered, workspace);
        Some(Arc::new(served.admitted_by(self.admission.clone())))
    }

    /// Returns the runtime that runs the agents.
    pub(crate) fn runtime(&self) -> Option<Runtime> {
        self.runtime.clone()
    }

    /// Ends the runs and the MCP servers that the runs share.
    pub(crate) async fn shut_down(&self) {
        if let Some(runtime) = &self.runtime {
            runtime.shut_down().await;
        }
    }
}

impl GatewayTools {
    /// Returns the function that opens the tools for a client.
    pub(crate) fn opener(self, watch: &CommandWatchers) -> Result<ToolsOpener, CliError> {
        let mut configuration = self.configuration;
        configuration.resolved.telemetry.capture_content = watch.captures_content();
        let home = settings::home()?;
        let grants = approvals::store(&home);
        let journal_file = Arc::new(CallJournalFile::of(&home));
        let (place, parents) = (watch.place(), watch.trace_parents());
        let sinks: Vec<Arc<dyn EventSink>> = [watch.sinks(), self.server_sinks].concat();
        let (args, exposure, local, agents) = (self.policy, self.exposure, self.local, self.agents);
        // All clients share one record of reported changes. Otherwise the operator would get the same warning once for
        // each client.
        let definitions = DefinitionWatch::new(&configuration.resolved, &home);
        let own_engine = wiring::engine_with_stored_cache(&configuration.resolved, &home);
        Ok(Box::new(move |client: &GatewayClient| -> Result<OpenedTools, String> {
            let mut config = configuration.resolved.clone();
            let profile = client.profile.as_ref().and_then(|name| config.gateway.profiles.get(name));
            let is_read_only = profile.is_some_and(|profile| profile.read_only);
            let exposure = if is_read_only { EffectExposure::ReadOnly } else { exposure };
            if client.builtin_tools == BuiltinAccess::Withheld {
                config.tools_denied.extend(builtin_globs());
            }
            let own = local.as_ref().filter(|_| client.principal == Principal::local());
            let (ClientWorkspace { spec, policy }, lease) = match own {
                Some(local) => (local.clone(), None),
                None => workspace_of(&args, &configuration, &client.principal, &home)?,
            };
            let outputs =
                config.tool_output.enabled.then(|| outputs_opener(&home, &client.principal, &config));
            let sampler = ModelSampler::new(&config, &policy, Arc::new(variable), None);
            let journal = Arc::new(journal_file.of_principal(&client.principal));
            let events = EventSinks([sinks.clone(), vec![Arc::clone(&journal) as _]].concat());
            let context = RunContext {
                principal: client.principal.clone(),
                workspace: policy.workspace().to_string_lossy().into(),
                grants: Arc::clone(&grants),
                confinement: policy.confinement(),
                sampler: Some(Arc::new(sampler)),
                events: Arc::new(events),
                ..RunContext::default()
            };
            let face = wiring::McpClientSettings {
                principal: client.principal.clone(),
                parents: parents.clone(),
                ..offered(client.abilities, &config)
            };
            let upstreams = servers::usable(&config, &policy, &face);
            let logins = wiring::LoginTarget::all(&config, &home, &client.principal);
            let mut providers: Vec<Arc<dyn ToolProvider>> =
                upstreams.iter().map(|provider| Arc::clone(provider) as _).collect();
            providers.extend(agents.provider(client, &config, spec));
            let (definitions, naming) = (definitions.clone().for_principal(&client.principal), config.naming);
            let later = later(config.clone(), home.clone());
            let settings = ToolSettings { policy, timeout: None, config };
            let options = OrchestratorOptions { exposure, ..OrchestratorOptions::default() };
            // All clients of the process, and the runs of its agents, share the queues.
            let engine = agents.runtime.as_ref().map_or_else(|| own_engine.clone(), Runtime::engine);
            let orchestrator = wiring::orchestrator_with_engine(settings, providers, options, &engine);
            Ok(OpenedTools {
                orchestrator,
                context,
                outputs,
                journal,
                place,
                later,
                upstreams,
                logins,
                naming,
                definitions,
                workspace: lease,
            })
        }))
    }
}

/// Returns the function that opens the output store of a client.
fn outputs_opener(home: &Home, owner: &Principal, config: &ResolvedConfig) -> OutputsOpener {
    let (outputs, owner, limits) = (FileOutputs::of(home), owner.clone(), config.tool_output.limits.clone());
    Arc::new(move |session: SessionId| {
        outputs.open_owned(&owner, session, &limits).map_err(|error| {
            let hint = "the operator can set HAFT_HOME to a directory that haft can write to";
            format!("haft cannot open the store of tool outputs: {error}; {hint}")
        })
    })
}

/// Returns the names of the built-in tools, except for the tool that reads the client's own stored outputs.
fn builtin_globs() -> impl Iterator<Item = ToolGlob> {
    let names = wiring::builtin_names().into_iter().filter(|name| name != OUTPUT_TOOL);
    names.filter_map(|name| ToolGlob::new(&name).ok())
}

/// Returns the capabilities of the client that upstream servers may use.
fn offered(abilities: ClientAbilities, config: &ResolvedConfig) -> wiring::McpClientSettings {
    let elicitation = match (abilities.elicitation, abilities.url_elicitation) {
        (true, _) if abilities.form_defaults => ElicitationSupport::Offered,
        (true, _) => ElicitationSupport::WithoutDefaults,
        (false, true) => ElicitationSupport::UrlOnly,
        (false, false) => ElicitationSupport::NotOffered,
    };
    let relayed = RelayedCapabilities {
        url_elicitation: abilities.url_elicitation,
        sampling: abilities.sampling,
        sampling_tools: abilities.sampling_tools,
        sampling_context: abilities.sampling_context,
        roots: abilities.roots,
        roots_change: abilities.roots_change,
    };
    let login = if abilities.url_elicitation { LoginOffer::Offered } else { LoginOffer::NotOffered };
    wiring::McpClientSettings { elicitation, relayed, login, ..servers::face(config) }
}

fn later(config: ResolvedConfig, home: Home) -> BoxFuture<'static, Vec<Arc<dyn ToolProvider>>> {
    Box::pin(async move { over_http(&config, &home).await })
}

/// Returns the workspace of a client that is not the local user: the directory in which the runs of `haft serve` that
/// use no files work too.
fn workspace_of(
    args: &PolicyArgs,
    configuration: &Configuration,
    principal: &Principal,
    home: &Home,
) -> Result<(ClientWorkspace, Option<WorkspaceLease>), String> {
    let lease = WorkspaceStore::of(home)
        .open(principal, WorkspaceName::Subject)
        .map_err(|error| format!("haft cannot create the workspace of the client: {error}"))?;
    let spec = settings::workspace_of_stranger(lease.directory().to_owned(), args, configuration)
        .map_err(|error| error.to_string())?;
    let policy = spec.policy_of(principal, home).map_err(|error| error.to_string())?;
    Ok((ClientWorkspace { spec, policy }, Some(lease)))
}

//! Opens the tools of the MCP gateway for a client: every principal has its own servers, workspace and stored outputs.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_config::{ResolvedConfig, environment};
use haft_core::glob::ToolGlob;
use haft_core::principal::Principal;
use haft_core::provider::ToolProvider;
use haft_engine::RunContext;
use haft_runtime::definition_watch::DefinitionWatch;
use haft_runtime::governor::EffectExposure;
use haft_runtime::sampling::ModelSampler;
use haft_runtime::wiring::{self, OrchestratorOptions, ToolSettings};
use haft_sandbox::{Home, SandboxPolicy};
use haft_server::mcp::{BuiltinAccess, ClientAbilities, GatewayClient, OpenedTools, ToolsOpener};
use haft_store::tenant::directory_of;
use haft_tools::mcp::{ElicitationSupport, RelayedCapabilities};
use haft_tools::output::OUTPUT_TOOL;

use super::super::args::PolicyArgs;
use super::super::call::{over_http, store};
use super::super::settings::{self, CliError, Configuration};
use super::super::watch::CommandWatchers;
use super::super::{approvals, servers};

/// Everything that the tools of all clients have in common.
pub(crate) struct GatewayTools {
    pub(crate) configuration: Configuration,
    pub(crate) policy: PolicyArgs,
    pub(crate) exposure: EffectExposure,
    /// The policy of the local user in the directory of the command. `None` gives the local user a directory of its
    /// own, as all other principals have one.
    pub(crate) local: Option<SandboxPolicy>,
}

impl GatewayTools {
    /// Returns the opener.
    pub(crate) fn opener(self, watch: &CommandWatchers) -> Result<ToolsOpener, CliError> {
        let mut configuration = self.configuration;
        configuration.resolved.telemetry.capture_content = watch.captures_content();
        let home = settings::home()?;
        let grants = approvals::store(&home);
        let (place, parents, events) = (watch.place(), watch.trace_parents(), watch.sink());
        let (args, exposure, local) = (self.policy, self.exposure, self.local);
        Ok(Box::new(move |client: &GatewayClient| -> Result<OpenedTools, String> {
            let mut config = configuration.resolved.clone();
            if client.builtin_tools == BuiltinAccess::Withheld {
                config.tools_denied.extend(builtin_globs());
            }
            let policy = match local.as_ref().filter(|_| client.principal == Principal::local()) {
                Some(local) => local.clone(),
                None => policy_of(&args, &configuration, &client.principal, &home)?,
            };
            let outputs = store(&home, &config.tool_output.limits).map_err(|(_, reason)| reason)?;
            let sampler = ModelSampler::new(&config, &policy, Arc::new(environment), None);
            let context = RunContext {
                principal: client.principal.clone(),
                workspace: policy.workspace().to_string_lossy().into(),
                grants: Arc::clone(&grants),
                confinement: policy.confinement(),
                outputs: config.tool_output.enabled.then(|| Arc::new(outputs) as _),
                sampler: Some(Arc::new(sampler)),
                events: Arc::clone(&events),
                ..RunContext::default()
            };
            let face = wiring::McpClientSettings {
                principal: client.principal.clone(),
                parents: parents.clone(),
                ..offered(client.abilities, &config)
            };
            let upstreams = servers::usable(&config, &policy, &face);
            let providers: Vec<Arc<dyn ToolProvider>> =
                upstreams.iter().map(|provider| Arc::clone(provider) as _).collect();
            let (definitions, naming) = (DefinitionWatch::new(&config, &home), config.naming);
            let later = later(config.clone(), home.clone());
            let settings = ToolSettings { policy, timeout: None, config };
            let options = OrchestratorOptions { exposure, ..OrchestratorOptions::default() };
            let orchestrator = wiring::orchestrator_with_options(settings, providers, options);
            Ok(OpenedTools { orchestrator, context, place, later, upstreams, naming, definitions })
        }))
    }
}

/// The names of the built-in tools, but for the one that reads the client's own stored outputs.
fn builtin_globs() -> impl Iterator<Item = ToolGlob> {
    let names = wiring::builtin_names().into_iter().filter(|name| name != OUTPUT_TOOL);
    names.filter_map(|name| ToolGlob::new(&name).ok())
}

/// Returns the abilities of the client that upstream servers may use.
fn offered(abilities: ClientAbilities, config: &ResolvedConfig) -> wiring::McpClientSettings {
    let elicitation =
        if abilities.elicitation { ElicitationSupport::Offered } else { ElicitationSupport::NotOffered };
    let relayed = RelayedCapabilities {
        url_elicitation: abilities.url_elicitation,
        sampling: abilities.sampling,
        roots: abilities.roots,
    };
    wiring::McpClientSettings { elicitation, relayed, ..servers::face(config) }
}

fn later(config: ResolvedConfig, home: Home) -> BoxFuture<'static, Vec<Arc<dyn ToolProvider>>> {
    Box::pin(async move { over_http(&config, &home).await })
}

/// The policy of a client that is not the local user: its workspace is a directory of its own, as in `haft serve`.
fn policy_of(
    args: &PolicyArgs,
    configuration: &Configuration,
    principal: &Principal,
    home: &Home,
) -> Result<SandboxPolicy, String> {
    let directory: PathBuf =
        home.workspace().join(directory_of(principal.tenant())).join(directory_of(principal.subject()));
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.map_err(|error| format!("the workspace cannot be created: {error}"))?;
    settings::policy_of(principal, directory, args, configuration).map_err(|(_, reason)| reason)
}

//! `haft serve`: the HTTP server.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use haft_config::printable;
use haft_core::event::EventSink;
use haft_core::principal::Principal;
use haft_runtime::governor::EffectExposure;
use haft_runtime::runtime::{Runtime, Stores};
use haft_runtime::spec::{UserHomeView, WorkspaceSpec};
use haft_server::mcp::McpGateway;
use haft_server::{
    AgentCatalog, AuthMode, ConfigReloads, OperatorLog, ReloadedFiles, ServedRoutes, Server, ServerSettings,
};
use haft_store::api_keys::{KeyLimits, KeyScope, NewApiKey};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::args::{FileArgs, PolicyArgs, ServeArgs};
use super::cancel::SignalListener;
use super::cli_error::CliError;
use super::exit::ExitReason;
use super::mcp::opener::{GatewayAgents, GatewayTools};
use super::mcp::serve::{GatewayFace, ServedProfiles};
use super::mcp::view::ViewSettings;
use super::settings::{self, Configuration};
use super::watch::{self, CallLog, CommandWatchers, RunTelemetry};
use super::{agents, keys, mcp, open_files, skills, terminal};

/// The time for which the MCP servers of an agent keep running after the last run of the agent, so that the next
/// request need not start them again.
const IDLE_AGENT_MAX: Duration = Duration::from_mins(1);

/// The arguments of every command that serves HTTP.
pub(super) struct HttpServeSettings<'a> {
    pub(super) address: SocketAddr,
    pub(super) allow_host: &'a [String],
    pub(super) allow_origin: &'a [String],
    pub(super) no_auth: bool,
    pub(super) check: bool,
    /// The scopes of the key that the first start creates.
    pub(super) first_scopes: Vec<KeyScope>,
    pub(super) files: &'a FileArgs,
    pub(super) configuration: Configuration,
    /// The exporter for the spans of runs.
    pub(super) telemetry: RunTelemetry,
}

/// Serves the API and the MCP gateway until the command is interrupted or terminated, and then exits with 0.
pub(super) async fn serve(args: &ServeArgs) -> ExitCode {
    let configuration = match settings::configuration(&args.files) {
        Ok(configuration) => configuration,
        Err(error) => return error.report(),
    };
    let watch = match watchers(&configuration) {
        Ok(watch) => Arc::new(watch),
        Err(error) => return error.report(),
    };
    let settings = HttpServeSettings {
        address: args.address,
        allow_host: &args.allow_host,
        allow_origin: &args.allow_origin,
        no_auth: args.no_auth,
        check: args.check,
        first_scopes: vec![KeyScope::Api, KeyScope::Approvals],
        files: &args.files,
        configuration: configuration.clone(),
        telemetry: watch.run_telemetry(),
    };
    let watching = Arc::clone(&watch);
    // Box the future: otherwise each enclosing future would contain this large future inline.
    let exit = Box::pin(run(settings, |server| {
        let (files, agents) = (args.files.clone(), GatewayAgents::of(&server));
        let sinks = server.call_sinks();
        let build: GatewayBuilder = Box::new(move |configuration, catalog| {
            gateway(&files, configuration, (agents.with_agents(catalog), sinks.clone()), &watching)
        });
        let gateway = build(configuration, &server.agents())?;
        // The server reloads its own runtime, which also runs the agents.
        let reload = GatewayReload { build, runtime: None };
        Ok((server.with_mcp(gateway, ServedRoutes::All), reload))
    }))
    .await;
    if let Some(watch) = Arc::into_inner(watch) {
        watch.finish();
    }
    exit
}

/// Builds the MCP gateway of a server from the configuration and the agents, at the start and at each reload.
pub(super) type GatewayBuilder =
    Box<dyn Fn(Configuration, &AgentCatalog) -> Result<McpGateway, CliError> + Send + Sync>;

/// The parts that a server needs to reload its MCP gateway.
pub(super) struct GatewayReload {
    pub(super) build: GatewayBuilder,
    /// The runtime of the agents, if the gateway has its own.
    pub(super) runtime: Option<Runtime>,
}

fn watchers(configuration: &Configuration) -> Result<CommandWatchers, CliError> {
    let content = watch::content(configuration.resolved.telemetry);
    Ok(CommandWatchers::of_gateway(CallLog::Off, &settings::home()?, content))
}

/// Builds the MCP gateway that is served together with the API: all tools, under the configured rules.
fn gateway(
    files: &FileArgs,
    configuration: Configuration,
    (agents, server_sinks): (GatewayAgents, Vec<Arc<dyn EventSink>>),
    watch: &CommandWatchers,
) -> Result<McpGateway, CliError> {
    let policy = PolicyArgs { files: files.clone(), ..PolicyArgs::default() };
    let exposure = EffectExposure::All;
    let tools = GatewayTools { configuration, policy, exposure, local: None, agents, server_sinks };
    let (view, profiles) = (ViewSettings::everything(), ServedProfiles::All);
    let face = GatewayFace { name: "haft", view, profiles };
    mcp::serve::build(face, tools, watch)
}

/// Serves until the command is interrupted or terminated. `mount` adds the MCP gateway to the server.
pub(super) async fn run(
    args: HttpServeSettings<'_>,
    mount: impl FnOnce(Server) -> Result<(Server, GatewayReload), CliError>,
) -> ExitCode {
    let mut signals = SignalListener::begin_without_hangup();
    // Listen for SIGHUP before the server starts: without a listener, SIGHUP would end the process.
    let hangups = signal(SignalKind::hangup()).ok();
    let (server, gateway) = match prepare(&args).await.and_then(mount) {
        Ok(mounted) => mounted,
        Err(error) => return error.report(),
    };
    if args.check {
        return terminal::answer(&format!("ok: the server can listen on {}", server.address()));
    }
    let first_key = match first_key(&args) {
        Ok(key) => key,
        Err(error) => return error.report(),
    };
    let printed = terminal::answer(&server.url());
    if printed != ExitCode::SUCCESS {
        return printed;
    }
    if let Some(key) = first_key {
        terminal::note(&format!("API key (haft shows it only now): {key}"));
    }
    let reloads = server.reloads().with_runtime(gateway.runtime);
    let files = ReloadSources { files: args.files.clone(), telemetry: args.telemetry.clone() };
    let reloading = tokio::spawn(reload_at_hangup(hangups, reloads, files, gateway.build));
    let stop = async move {
        signals.first_signal().await;
    };
    server.run(stop).await;
    reloading.abort();
    // Wait for the end of the task, because it holds the watchers of the gateway and the caller finishes them next.
    let _ = reloading.await;
    ExitReason::Success.into()
}

/// The files that a reload reads, and the telemetry settings that stay the same.
struct ReloadSources {
    files: FileArgs,
    telemetry: RunTelemetry,
}

/// Reads the configuration, the agents and the skills again at each SIGHUP. If a file is invalid, the server keeps all
/// its old settings.
async fn reload_at_hangup(
    hangups: Option<Signal>,
    reloads: ConfigReloads,
    files: ReloadSources,
    gateway: GatewayBuilder,
) {
    let Some(mut hangups) = hangups else { return };
    while hangups.recv().await.is_some() {
        let applied = match read_again(&files, &gateway) {
            Ok(read) => reloads.apply(read).await.map_err(|problems| {
                problems.iter().map(|problem| printable(problem)).collect::<Vec<_>>().join("\n")
            }),
            Err(error) => {
                reloads.refuse();
                Err(error.to_string())
            }
        };
        match applied {
            Ok(warnings) => {
                for warning in &warnings {
                    terminal::warn(&printable(warning));
                }
                terminal::note("haft reloaded the configuration; new runs use it");
            }
            Err(problems) => terminal::warn(&format!(
                "haft cannot reload the configuration and keeps the old one: {problems}"
            )),
        }
    }
}

fn read_again(sources: &ReloadSources, gateway: &GatewayBuilder) -> Result<ReloadedFiles, CliError> {
    let files = &sources.files;
    let configuration = settings::configuration(files)?;
    let mut config = configuration.resolved.clone();
    sources.telemetry.apply(&mut config.telemetry);
    let (agents, _) = AgentCatalog::load(&agents::loader(files)?);
    let gateway = Some(gateway(configuration, &agents)?);
    Ok(ReloadedFiles { config, agents, skills: skills::found(files)?, gateway })
}

async fn prepare(args: &HttpServeSettings<'_>) -> Result<Server, CliError> {
    let configuration = &args.configuration;
    let home = settings::home()?;
    let settings = ServerSettings {
        allowed_hosts: args.allow_host.to_vec(),
        allowed_origins: args.allow_origin.to_vec(),
        auth: if args.no_auth { AuthMode::NoAuth } else { AuthMode::Keys },
        serve: configuration.resolved.serve.clone(),
        log: OperatorLog::new(|message| terminal::warn(&printable(message))),
        ..ServerSettings::at(args.address, workspace(&home.workspace(), configuration))
    };
    let (agents, mut warnings) = AgentCatalog::load(&agents::loader(args.files)?);
    let mut config = configuration.resolved.clone();
    args.telemetry.apply(&mut config.telemetry);
    let builder = Runtime::builder(config)
        .stores(Stores::at(&home).syncing_together())
        .home(home)
        .skills(skills::found(args.files)?)
        .trace_parents(args.telemetry.parents.clone())
        .keep_idle_agents(IDLE_AGENT_MAX);
    let built = builder.build_with_warnings().await;
    let (runtime, of_runtime) = built.map_err(CliError::usage)?;
    if let Some(sink) = &args.telemetry.sink {
        runtime.watch(Arc::clone(sink));
    }
    warnings.extend(of_runtime);
    warnings.extend(open_files::shortage(open_files::raise_limit(), &configuration.resolved.serve));
    for warning in &warnings {
        terminal::warn(&printable(warning));
    }
    Ok(Server::bind(settings, runtime, agents).await?)
}

/// Returns the workspace and sandbox of runs, as configured. For each run, the server replaces `directory` with the
/// directory of the caller.
fn workspace(directory: &std::path::Path, configuration: &Configuration) -> WorkspaceSpec {
    let config = &configuration.resolved.sandbox;
    WorkspaceSpec {
        directory: directory.to_owned(),
        mode: config.mode,
        network: config.network,
        unix_sockets: config.unix_sockets,
        git: config.git,
        writable: config.writable.clone(),
        readable: config.readable.clone(),
        secrets: config.secrets.clone(),
        environment: config.environment.clone(),
        protected: configuration.in_use().to_vec(),
        limits: config.limits.clone(),
        home: UserHomeView::Covered,
    }
}

/// Creates an API key if there is none, so that the first start needs no further command.
fn first_key(args: &HttpServeSettings<'_>) -> Result<Option<String>, CliError> {
    let store = keys::store()?;
    let known = store.load().map_err(|error| keys::unusable(&error))?;
    if args.no_auth || !known.all().is_empty() {
        return Ok(None);
    }
    let owner = Principal::local();
    let new = NewApiKey {
        name: "first".into(),
        tenant: "default".into(),
        subject: owner.subject().to_owned(),
        scopes: args.first_scopes.clone(),
        expires_ms: None,
        limits: KeyLimits::default(),
    };
    let (_, secret) = keys::create_key(new, keys::now_ms())?;
    Ok(Some(secret.expose().to_owned()))
}

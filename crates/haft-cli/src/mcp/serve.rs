//! `haft mcp serve`: offers all tools as one MCP server, on the standard streams or over HTTP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use haft_core::event::EventSink;
use haft_core::principal::Principal;
use haft_core::result::ToolError;
use haft_server::mcp::McpGateway;
use haft_server::{AgentCatalog, ServedRoutes};
use haft_store::api_keys::KeyScope;
use tokio::io::BufReader;

use super::super::cli_error::CliError;
use super::super::exit::ExitReason;
use super::super::serve::{self as http_server, GatewayReload, HttpServeSettings};
use super::super::settings::{self, Configuration};
use super::super::watch::{self, CallLog, CommandWatchers, RunTelemetry};
use super::super::{approver, cancel, hints, remedy, terminal};
use super::args::McpServeArgs;
use super::opener::{AgentReading, ClientWorkspace, GatewayAgents, GatewayTools};
use super::std_streams::{InputStream, OutputStream};
use super::view::ViewSettings;

/// The size of the buffer for requests, in bytes.
const INPUT_BUFFER_BYTES: usize = 64 << 10;

pub(super) async fn serve(args: &McpServeArgs) -> ExitCode {
    let configuration = match settings::configuration(&args.policy.files) {
        Ok(configuration) => configuration,
        Err(error) => return error.report(),
    };
    let plan = match GatewayPlan::prepare(args, &configuration).await {
        Ok(plan) => plan,
        Err(error) => return error.report(),
    };
    let (agents, watch) = (plan.agents.clone(), Arc::clone(&plan.watch));
    let exit = match args.http {
        Some(address) => serve_http(args, address, configuration, plan).await,
        None => serve_streams(configuration, plan).await,
    };
    agents.shut_down().await;
    if let Some(watch) = Arc::into_inner(watch) {
        watch.finish();
    }
    exit
}

/// Serves one client on the standard streams.
async fn serve_streams(configuration: Configuration, plan: GatewayPlan) -> ExitCode {
    let gateway = match plan.gateway(configuration) {
        Ok(gateway) => gateway,
        Err(error) => return error.report(),
    };
    // Drop the plan, because it holds the watchers: the command can finish them only after the last reference is gone.
    drop(plan);
    let input = BufReader::with_capacity(INPUT_BUFFER_BYTES, InputStream::open());
    let served = tokio::select! {
        biased;
        exit = cancel::cancelled() => return exit.into(),
        served = haft_server::mcp::serve(gateway, input, OutputStream::open()) => served,
    };
    match served {
        Ok(()) => ExitReason::Success.into(),
        Err(error) => terminal::failed(
            ExitReason::ClosedPipe,
            &format!("the connection to the MCP client broke: {error}"),
        ),
    }
}

/// Serves many clients over HTTP, with the keys of `haft serve`.
async fn serve_http(
    args: &McpServeArgs,
    address: SocketAddr,
    configuration: Configuration,
    plan: GatewayPlan,
) -> ExitCode {
    let settings = HttpServeSettings {
        address,
        allow_host: &args.access.allow_host,
        allow_origin: &args.access.allow_origin,
        no_auth: args.access.no_auth,
        check: false,
        first_scopes: vec![KeyScope::Api, KeyScope::BuiltinTools],
        files: &args.policy.files,
        configuration: configuration.clone(),
        // The runtime of this server runs no agents, so it exports no spans of runs.
        telemetry: RunTelemetry::default(),
    };
    // Box the future: otherwise each enclosing future would contain this large future inline.
    Box::pin(http_server::run(settings, |server| {
        let agents = plan.agents.clone().limited_by(&server);
        let plan = GatewayPlan { agents, server_sinks: server.call_sinks(), ..plan };
        let gateway = plan.gateway(configuration)?;
        let runtime = plan.agents.runtime();
        let build = Box::new(move |configuration, catalog: &AgentCatalog| {
            GatewayPlan { agents: plan.agents.with_agents(catalog), ..plan.clone() }.gateway(configuration)
        });
        Ok((server.with_mcp(gateway, ServedRoutes::McpOnly), GatewayReload { build, runtime }))
    }))
    .await
}

/// The values from which the gateway is built. A reload builds it again from these values, with the current agents.
#[derive(Clone)]
struct GatewayPlan {
    args: McpServeArgs,
    view: ViewSettings,
    local: ClientWorkspace,
    agents: GatewayAgents,
    watch: Arc<CommandWatchers>,
    /// The sinks of the HTTP server that also record the calls.
    server_sinks: Vec<Arc<dyn EventSink>>,
}

impl GatewayPlan {
    async fn prepare(args: &McpServeArgs, configuration: &Configuration) -> Result<Self, CliError> {
        let reading = if args.http.is_some() { AgentReading::AtReloads } else { AgentReading::Once };
        let agents = GatewayAgents::load(&args.policy.files, configuration, reading).await?;
        let view = ViewSettings::of_options(args)?;
        let log = if args.verbose { CallLog::Written } else { CallLog::Off };
        let content = watch::content(configuration.resolved.telemetry);
        let watch = Arc::new(CommandWatchers::of_gateway(log, &settings::home()?, content));
        let spec = settings::workspace_spec(&args.policy, configuration).await?;
        let local = ClientWorkspace { policy: settings::granted(&spec)?, spec };
        Ok(Self { args: args.clone(), view, local, agents, watch, server_sinks: Vec::new() })
    }

    /// Builds the gateway. MCP servers start only after the first reply to a client.
    fn gateway(&self, mut configuration: Configuration) -> Result<McpGateway, CliError> {
        let Self { args, view, local, agents, watch, server_sinks } = self;
        configuration.resolved.trace_mcp |= args.trace_mcp;
        let (view, profiles) = match &args.profile {
            Some(name) => (view.narrowed_by_name(name, &configuration.resolved)?, ServedProfiles::None),
            None => (view.clone(), ServedProfiles::All),
        };
        let tools = GatewayTools {
            configuration,
            policy: args.policy.clone(),
            exposure: view.exposure,
            local: Some(local.clone()),
            agents: agents.clone(),
            server_sinks: server_sinks.clone(),
        };
        let face = GatewayFace { name: &args.name, view, profiles };
        // Ask the operator only over HTTP: with the standard streams, the terminal belongs to the client.
        let operator = args.http.and_then(|_| approver::operator_approvers());
        Ok(McpGateway { operator, ..build(face, tools, watch)? })
    }
}

/// The settings of the gateway that its clients see.
pub(crate) struct GatewayFace<'a> {
    pub(crate) name: &'a str,
    /// The tools that a client without a profile sees. A profile can only remove some of these tools.
    pub(crate) view: ViewSettings,
    pub(crate) profiles: ServedProfiles,
}

/// The profiles of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServedProfiles {
    /// The path or the name of a client selects a profile of the configuration.
    All,
    /// Clients cannot select a profile: the option `--profile` has selected one, and the view contains only its tools.
    None,
}

/// Builds the gateway with these tools.
pub(crate) fn build(
    GatewayFace { name, view, profiles }: GatewayFace<'_>,
    tools: GatewayTools,
    watch: &CommandWatchers,
) -> Result<McpGateway, CliError> {
    let config = &tools.configuration.resolved;
    let hinted = Arc::new(config.clone());
    Ok(McpGateway {
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        view: view.view(config),
        profiles: match profiles {
            ServedProfiles::All => view.profiles(config),
            ServedProfiles::None => BTreeMap::new(),
        },
        ready_wait: config.mcp_ready_wait,
        hints: Arc::new(move |error: &ToolError, tool: &str, principal: &Principal| {
            remedy::for_client(error, tool, (&hinted, principal))
        }),
        warn: Arc::new(|warning| {
            let text = warning.to_string();
            terminal::warn(&hints::with(&text, hints::warning(&text)));
        }),
        operator: None,
        open: tools.opener(watch)?,
    })
}

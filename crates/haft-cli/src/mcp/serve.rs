//! `haft mcp serve`: all tools as one MCP server on the standard streams.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use haft_config::ResolvedConfig;
use haft_core::glob::ToolGlob;
use haft_core::name::GroupName;
use haft_core::result::ToolError;
use haft_engine::{ToolFilter, ToolFilterItem};
use haft_runtime::governor::EffectExposure;
use haft_server::ServedRoutes;
use haft_server::mcp::{ListedTools, McpGateway, SearchSettings};
use haft_store::api_keys::KeyScope;
use tokio::io::BufReader;

use super::super::exit::ExitReason;
use super::super::serve::{self as http_server, HttpServeSettings};
use super::super::settings::{self, CliError, Configuration};
use super::super::watch::{self, CallLog, CommandWatchers};
use super::super::{cancel, hints, remedy, terminal};
use super::args::{ListForm, McpServeArgs};
use super::opener::{ClientWorkspace, GatewayAgents, GatewayTools};
use super::std_streams::{InputStream, OutputStream};

/// The size of the buffer for requests, in bytes.
const INPUT_BUFFER_BYTES: usize = 64 << 10;

pub(super) async fn serve(args: &McpServeArgs) -> ExitCode {
    let configuration = match settings::configuration(&args.policy.files) {
        Ok(configuration) => configuration,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let agents = match GatewayAgents::load(&args.policy.files, &configuration).await {
        Ok(agents) => agents,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let (gateway, watch) = match gateway(args, configuration.clone(), agents.clone()).await {
        Ok(made) => made,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let exit = match args.http {
        Some(address) => serve_http(args, address, configuration, gateway).await,
        None => serve_streams(gateway).await,
    };
    agents.shut_down().await;
    watch.finish();
    exit
}

/// Serves one client on the standard streams.
async fn serve_streams(gateway: McpGateway) -> ExitCode {
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
    gateway: McpGateway,
) -> ExitCode {
    let settings = HttpServeSettings {
        address,
        allow_host: &args.access.allow_host,
        allow_origin: &args.access.allow_origin,
        no_auth: args.access.no_auth,
        check: false,
        first_scopes: vec![KeyScope::Api, KeyScope::BuiltinTools],
        files: &args.policy.files,
        configuration,
    };
    http_server::run(settings, |server| Ok(server.with_mcp(gateway, ServedRoutes::McpOnly))).await
}

/// Prepares the gateway. Servers start only after the first reply.
async fn gateway(
    args: &McpServeArgs,
    mut configuration: Configuration,
    agents: GatewayAgents,
) -> Result<(McpGateway, CommandWatchers), CliError> {
    let selection = selection(args)?;
    let home = settings::home()?;
    let log = if args.verbose { CallLog::Written } else { CallLog::Off };
    let watch = CommandWatchers::of_gateway(log, &home, watch::content(configuration.resolved.telemetry));
    configuration.resolved.trace_mcp |= args.trace_mcp;
    let exposure = if args.read_only { EffectExposure::ReadOnly } else { EffectExposure::All };
    let policy = args.policy.clone();
    let spec = settings::workspace_spec(&policy, &configuration).await?;
    let local = ClientWorkspace { policy: settings::granted(&spec)?, spec };
    let tools = GatewayTools { configuration, policy, exposure, local: Some(local), agents };
    let listed = listed(args.expose, &tools.configuration.resolved);
    let gateway = build(GatewayFace { name: &args.name, selection, listed }, tools, &watch)?;
    Ok((gateway, watch))
}

/// Decides which tools are listed. The patterns of `alwaysShow` apply as in runs.
fn listed(form: ListForm, config: &ResolvedConfig) -> ListedTools {
    match form {
        ListForm::All => ListedTools::All,
        ListForm::Search => ListedTools::Search(SearchSettings {
            always_show: config.tool_search.always_show.clone(),
            lock: config.tool_lock.clone(),
        }),
    }
}

/// The settings of the gateway that its clients see.
pub(crate) struct GatewayFace<'a> {
    pub(crate) name: &'a str,
    pub(crate) selection: ToolFilter,
    pub(crate) listed: ListedTools,
}

/// Builds the gateway with these tools.
pub(crate) fn build(
    GatewayFace { name, selection, listed }: GatewayFace<'_>,
    tools: GatewayTools,
    watch: &CommandWatchers,
) -> Result<McpGateway, CliError> {
    let config = &tools.configuration.resolved;
    let hinted = Arc::new(config.clone());
    Ok(McpGateway {
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instructions: Some(instructions(&listed).to_owned()),
        selection,
        listed,
        ready_wait: config.mcp_ready_wait,
        hints: Arc::new(move |error: &ToolError, tool: &str| remedy::of(error, tool, &hinted)),
        warn: Arc::new(|warning| {
            let text = warning.to_string();
            terminal::warn(&hints::with(&text, hints::warning(&text)));
        }),
        open: tools.opener(watch)?,
    })
}

/// Returns the instructions for the model of the client.
fn instructions(listed: &ListedTools) -> &'static str {
    match listed {
        ListedTools::All => {
            "This server offers the tools of several MCP servers. Each tool name begins with a server name. \
             A result that is too large is stored: query it with `tool_output` and the handle in the result."
        }
        ListedTools::Search(_) => {
            "This server offers the tools of several MCP servers, but does not list them. Find a tool with \
             `tool_search`, read its definition with `tool_describe`, and call it with `tool_call`. A result that is \
             too large is stored: query it with `tool_output` and the handle in the result."
        }
    }
}

/// Returns the tools that the client may see. Without a selection, these are all active tools.
fn selection(args: &McpServeArgs) -> Result<ToolFilter, CliError> {
    let group =
        |name: &String| GroupName::new(name).map(ToolFilterItem::Group).map_err(|error| error.to_string());
    let tool =
        |glob: &String| ToolGlob::new(glob).map(ToolFilterItem::Tool).map_err(|error| error.to_string());
    let items: Result<Vec<_>, String> =
        args.group.iter().map(group).chain(args.tools.iter().map(tool)).collect();
    let items = items.map_err(|message| (ExitReason::Usage, message))?;
    Ok(if items.is_empty() { ToolFilter::All } else { ToolFilter::of(items) })
}

//! `haft mcp serve`: all tools as one MCP server on the standard streams.

use std::process::ExitCode;
use std::sync::Arc;

use haft_config::environment;
use haft_core::glob::ToolGlob;
use haft_core::name::GroupName;
use haft_core::provider::ToolProvider;
use haft_core::result::ToolError;
use haft_engine::{RunContext, ToolFilter, ToolFilterItem};
use haft_runtime::definition_watch::DefinitionWatch;
use haft_runtime::governor::EffectExposure;
use haft_runtime::sampling::ModelSampler;
use haft_runtime::wiring::{self, OrchestratorOptions, ToolSettings};
use haft_server::mcp::{ClientAbilities, McpGateway, OpenedTools, ToolsOpener};
use haft_tools::mcp::ElicitationSupport;
use tokio::io::BufReader;

use super::super::approvals;
use super::super::call::{over_http, store};
use super::super::exit::ExitReason;
use super::super::servers::{ServerRequirements, providers};
use super::super::settings::{self, CliError};
use super::super::watch::{self, CommandWatchers};
use super::super::{cancel, hints, remedy, terminal};
use super::args::McpServeArgs;

/// The size of the buffer for requests, in bytes.
const INPUT_BUFFER_BYTES: usize = 64 << 10;

pub(super) async fn serve(args: &McpServeArgs) -> ExitCode {
    let (gateway, watch) = match gateway(args).await {
        Ok(made) => made,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let input = BufReader::with_capacity(INPUT_BUFFER_BYTES, tokio::io::stdin());
    let served = tokio::select! {
        biased;
        exit = cancel::cancelled() => return exit.into(),
        served = haft_server::mcp::serve(gateway, input, tokio::io::stdout()) => served,
    };
    watch.finish();
    match served {
        Ok(()) => ExitReason::Success.into(),
        Err(error) => terminal::failed(ExitReason::ClosedPipe, &format!("the client is gone: {error}")),
    }
}

/// Reads the configuration and prepares everything but the servers, which start behind the first reply.
async fn gateway(args: &McpServeArgs) -> Result<(McpGateway, CommandWatchers), CliError> {
    let selection = selection(args)?;
    let configuration = settings::configuration(&args.policy.files)?;
    let home = settings::home()?;
    let config = &configuration.resolved;
    let watch = CommandWatchers::of_gateway(args, &home, watch::content(config.telemetry));
    let hinted = Arc::new(config.clone());
    let gateway = McpGateway {
        name: args.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instructions: Some(INSTRUCTIONS.to_owned()),
        selection,
        ready_wait: config.mcp_ready_wait,
        hints: Arc::new(move |error: &ToolError, tool: &str| remedy::of(error, tool, &hinted)),
        warn: Arc::new(|warning| {
            let text = warning.to_string();
            terminal::warn(&hints::with(&text, hints::warning(&text)));
        }),
        open: opener(args, configuration, &watch).await?,
    };
    Ok((gateway, watch))
}

/// The instructions for the model of the client.
const INSTRUCTIONS: &str = "The tools of several servers. The name of a tool begins with the name of its server. \
    A result that is too large is stored: query it with `tool_output` and the handle in the result.";

async fn opener(
    args: &McpServeArgs,
    configuration: settings::Configuration,
    watch: &CommandWatchers,
) -> Result<ToolsOpener, CliError> {
    let policy = settings::policy(&args.policy, &configuration).await?;
    let home = policy.home().clone();
    let mut config = configuration.resolved;
    config.trace_mcp |= args.trace_mcp;
    config.telemetry.capture_content = watch.captures_content();
    let outputs = store(&home, &config.tool_output.limits)?;
    let context = RunContext {
        workspace: policy.workspace().to_string_lossy().into(),
        grants: approvals::store(&home),
        confinement: policy.confinement(),
        outputs: config.tool_output.enabled.then(|| Arc::new(outputs) as _),
        sampler: Some(Arc::new(ModelSampler::new(&config, &policy, Arc::new(environment), None))),
        events: watch.sink(),
        ..RunContext::default()
    };
    let (place, parents) = (watch.place(), watch.trace_parents());
    let exposure = if args.read_only { EffectExposure::ReadOnly } else { EffectExposure::All };
    Ok(Box::new(move |abilities: ClientAbilities| {
        let elicitation =
            if abilities.elicitation { ElicitationSupport::Offered } else { ElicitationSupport::NotOffered };
        let needs = ServerRequirements { tool: None, elicitation, parents };
        let servers = providers(&config, &policy, needs);
        let definitions = DefinitionWatch::new(&config, &home);
        let later_config = config.clone();
        let later = Box::pin(async move { over_http(&later_config, &home).await })
            as futures_util::future::BoxFuture<'static, Vec<Arc<dyn ToolProvider>>>;
        let settings = ToolSettings { policy, timeout: None, config };
        let options = OrchestratorOptions { exposure, ..OrchestratorOptions::default() };
        let orchestrator = wiring::orchestrator_with_options(settings, servers, options);
        OpenedTools { orchestrator, context, place, later, definitions }
    }))
}

/// Returns the tools that the client may see. Without a selection these are all active tools.
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

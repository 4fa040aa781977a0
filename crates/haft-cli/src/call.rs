//! `haft call TOOL JSON`: one call.

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;

use haft_core::arguments::{ARGUMENTS_BYTES_MAX, RawArguments};
use haft_core::provider::ToolProvider;
use haft_core::result::{ToolError, ToolErrorKind, ToolResult};
use haft_core::tool::{CallId, ToolCall};
use haft_engine::{CatalogWarning, Orchestrator, RunContext};
use haft_sandbox::Home;
use haft_store::outputs::{FileStore, StoreLimits};
use haft_tools::mcp::{ElicitationSupport, Elicitor};
use haft_tools::rest::RestTools;
use serde::Serialize;
use serde_json::Value;

use super::approvals;
use super::approver::TerminalApprover;
use super::args::{CallArgs, PolicyArgs};
use super::cancel::CancelSignals;
use super::cli_error::CliError;
use super::elicitor::TerminalElicitor;
use super::exit::ExitReason;
use super::hints;
use super::remedy;
use super::sandbox_refusal::{self, SandboxRefusal};
use super::servers::{ServerRequirements, begins_with, providers};
use super::settings;
use super::status_line::waiting;
use super::terminal;
use super::watch::{self, CommandWatchers};
use crate::variables::variable;
use haft_config::ResolvedConfig;
use haft_runtime::definition_watch::DefinitionWatch;
use haft_runtime::rest::Freshness;
use haft_runtime::sampling::ModelSampler;
use haft_runtime::wiring::{self, ToolSettings};

pub(super) async fn run(args: &CallArgs) -> ExitCode {
    let prepared = async { Ok::<_, CliError>((arguments(args)?, orchestrator(args).await?)) };
    let (arguments, CallSetup { orchestrator, watch, context, definitions }) = match prepared.await {
        Ok(prepared) => prepared,
        Err(error) => return error.report(),
    };
    let name = args.tool.clone().unwrap_or_default();
    let call = ToolCall { id: CallId("1".into()), name, arguments };
    let mut signals = CancelSignals::listen();
    let outcome = tokio::select! {
        // `biased` checks the result first: a result that is complete when a signal arrives is still printed.
        biased;
        result = async {
            // Hold back warnings about the server of the called tool: `explain_unknown_tool` may report one as the
            // error.
            let warnings = warmed_up(&orchestrator, &definitions).await;
            // A warning about a tool list comes from a server that is ready, so it cannot explain why the called tool
            // is unknown.
            let of_lists = orchestrator.catalog().warnings();
            let is_reason = |warning: &CatalogWarning| concerns(&call.name, warning) && !of_lists.contains(warning);
            let (own, others): (Vec<_>, Vec<_>) = warnings.into_iter().partition(is_reason);
            warn(&others);
            let result = orchestrator.execute_with(call, watch.options(&context)).await;
            explain_unknown_tool(result, &own)
        } => Ok(result),
        exit = signals.first() => Err(exit),
    };
    let code = match outcome {
        Err(exit) => {
            shut_down_after_signal(&orchestrator, &definitions, &mut signals).await;
            exit.into()
        }
        Ok(result) => {
            end(&orchestrator, &definitions).await;
            watch.log_result(&result);
            print(args, &result, &watch)
        }
    };
    watch.finish();
    code
}

fn print(args: &CallArgs, result: &ToolResult, watch: &CommandWatchers) -> ExitCode {
    if args.json {
        return print_json(result, watch.tree_json());
    }
    let code = print_text(result, &args.policy);
    watch.draw_tree();
    code
}

/// Prepares the tools before the first call, and reports each warning once.
pub(super) async fn begin(orchestrator: &Orchestrator, definitions: &DefinitionWatch) {
    warn(&warmed_up(orchestrator, definitions).await);
}

/// Prepares the tools, and returns the warnings, which the caller reports.
async fn warmed_up(orchestrator: &Orchestrator, definitions: &DefinitionWatch) -> Vec<CatalogWarning> {
    let mut warnings = waiting("preparing tools", String::new, wiring::warm_up(orchestrator)).await;
    warnings.extend(definitions.warnings(orchestrator));
    warnings
}

fn warn(warnings: &[CatalogWarning]) {
    for warning in warnings {
        let warning = warning.to_string();
        terminal::warn(&hints::with(&warning, hints::warning(&warning)));
    }
}

fn concerns(tool: &str, warning: &CatalogWarning) -> bool {
    begins_with(tool, &warning.provider)
}

/// Replaces the error "unknown tool" by the reason why the tool's server is not ready. The tools of a server that was
/// never ready are unknown, so the caller made no mistake. `warnings` are the warnings about this server.
fn explain_unknown_tool(mut result: ToolResult, warnings: &[CatalogWarning]) -> ToolResult {
    match (result.error_kind(), warnings) {
        (Some(ToolErrorKind::UnknownTool), [first, rest @ ..]) => {
            result.outcome = Err(ToolError::new(ToolErrorKind::Unavailable, first.to_string()));
            warn(rest);
        }
        (_, warnings) => warn(warnings),
    }
    result
}

pub(super) async fn end(orchestrator: &Orchestrator, definitions: &DefinitionWatch) {
    // A server that started during a call may have listed definitions that differ from the earlier ones.
    warn(&definitions.late_warnings(orchestrator));
    wiring::shut_down(orchestrator).await.iter().for_each(|warning| terminal::warn(&warning.to_string()));
}

/// Shuts down after a signal. Tells servers that the call is cancelled and lets them end cleanly, unless a second
/// signal arrives.
pub(super) async fn shut_down_after_signal(
    orchestrator: &Orchestrator,
    definitions: &DefinitionWatch,
    signals: &mut CancelSignals,
) {
    tokio::select! {
        biased;
        () = end(orchestrator, definitions) => {}
        _ = signals.next() => {}
    }
}

/// The values that the calls of one command need.
pub(super) struct CallSetup {
    pub(super) orchestrator: Orchestrator,
    pub(super) watch: CommandWatchers,
    pub(super) context: Arc<RunContext>,
    pub(super) definitions: DefinitionWatch,
}

pub(super) async fn orchestrator(args: &CallArgs) -> Result<CallSetup, CliError> {
    let mut config = settings::configuration(&args.policy.files)?;
    config.resolved.trace_mcp |= args.trace_mcp;
    let policy = settings::policy(&args.policy, &config).await?;
    let home = policy.home().clone();
    let approver = if args.stdin { None } else { TerminalApprover::for_interactive_terminal() };
    let store = store(&home, &config.resolved.tool_output.limits)?;
    let others = others(args, &config.resolved, &home).await;
    let watch = CommandWatchers::begin(args, &home, watch::content(config.resolved.telemetry));
    let person = if args.stdin { None } else { TerminalElicitor::for_interactive_terminal() };
    let sampler = ModelSampler::new(&config.resolved, &policy, Arc::new(variable), None);
    let elicitation = elicitation(person.as_ref());
    let asked =
        ServerRequirements { tool: args.tool.as_deref(), elicitation, parents: watch.trace_parents() };
    let servers = providers(&config.resolved, &policy, asked);
    config.resolved.telemetry.capture_content = watch.captures_content();
    let context = RunContext {
        workspace: policy.workspace().to_string_lossy().into(),
        approver,
        grants: approvals::store(&home),
        confinement: policy.confinement(),
        outputs: config.resolved.tool_output.enabled.then(|| Arc::new(store) as _),
        elicitor: person,
        sampler: Some(Arc::new(sampler)),
        events: watch.sink(),
        ..RunContext::default()
    };
    let definitions = DefinitionWatch::new(&config.resolved, &home);
    let settings = ToolSettings { policy, timeout: args.timeout, config: config.resolved };
    let orchestrator = wiring::orchestrator_with_stored_cache(settings, [servers, others].concat());
    Ok(CallSetup { orchestrator, watch, context: Arc::new(context), definitions })
}

/// Returns the elicitation support that haft declares to servers. haft offers elicitation only if a user can answer.
pub(super) fn elicitation(person: Option<&Arc<dyn Elicitor>>) -> ElicitationSupport {
    if person.is_some() { ElicitationSupport::Offered } else { ElicitationSupport::NotOffered }
}

/// Returns the HTTP tools. Reading OpenAPI documents is slow, so a call of a built-in tool skips it.
async fn others(args: &CallArgs, config: &ResolvedConfig, home: &Home) -> Vec<Arc<dyn ToolProvider>> {
    if args.tool.as_deref().is_some_and(wiring::is_builtin) {
        return Vec::new();
    }
    over_http(config, home).await
}

pub(super) async fn over_http(config: &ResolvedConfig, home: &Home) -> Vec<Arc<dyn ToolProvider>> {
    let tools = super::rest::tools(config, home, Freshness::Kept).await;
    if tools.is_empty() { Vec::new() } else { vec![Arc::new(RestTools::new(tools))] }
}

pub(super) fn store(home: &Home, limits: &StoreLimits) -> Result<FileStore, CliError> {
    FileStore::open(&home.data().join("outputs"), limits.clone()).map_err(|error| {
        let hint = "set HAFT_HOME to a directory that you can write to";
        CliError::internal(format!("haft cannot open the store of tool outputs: {error}")).with_hint(hint)
    })
}

fn arguments(args: &CallArgs) -> Result<RawArguments, CliError> {
    match args.arguments.as_deref() {
        None => Ok(RawArguments::from_text("{}")),
        Some("-") => read_arguments(std::io::stdin()),
        Some(text) => Ok(RawArguments::from_text(text)),
    }
}

fn read_arguments(input: impl Read) -> Result<RawArguments, CliError> {
    let unreadable = |error: &dyn std::fmt::Display| {
        let hint = "send one JSON object as UTF-8 text";
        CliError::input(format!("haft cannot read the tool arguments from standard input: {error}"))
            .with_hint(hint)
    };
    let mut bytes = Vec::new();
    // Read one byte more than allowed, so that the parser can report that the arguments are too large.
    let bytes_max = u64::try_from(ARGUMENTS_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    input.take(bytes_max).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    if bytes.len() > ARGUMENTS_BYTES_MAX {
        // The text may be cut inside a character, but the parser rejects it for its size anyway.
        return Ok(RawArguments::from_text(String::from_utf8_lossy(&bytes)));
    }
    String::from_utf8(bytes).map(RawArguments::from_text).map_err(|error| unreadable(&error.utf8_error()))
}

/// Prints the result. The output of a tool that ran and failed goes to standard output; all other errors go to standard
/// error.
fn print_text(result: &ToolResult, policy: &PolicyArgs) -> ExitCode {
    match &result.outcome {
        Ok(output) => terminal::answer(&output.as_text()),
        Err(error) if error.kind == ToolErrorKind::Failed => {
            let printed = terminal::answer(&error.message);
            if let Some(refusal) = refusal(error, result, policy) {
                terminal::note(&format!("hint: {}", refusal.hint()));
            }
            if printed == ExitCode::SUCCESS { ExitReason::Failed.into() } else { printed }
        }
        Err(error) => for_users(error, result, policy).report(),
    }
}

/// Converts an error for models to one for users: removes the label `Error:`, which haft prints for each error, and adds
/// a hint.
fn for_users(error: &ToolError, result: &ToolResult, policy: &PolicyArgs) -> CliError {
    let lines: Vec<&str> = error.message.lines().map(|line| strip_error_label(line, error.kind)).collect();
    CliError::new(error.kind.into(), lines.join("\n")).with_optional_hint(hint(error, result, policy))
}

/// Removes the label with which some error messages for models begin. Lines of other errors are not changed, because
/// they may be output of a command.
pub(crate) fn strip_error_label(line: &str, kind: ToolErrorKind) -> &str {
    match kind {
        ToolErrorKind::InvalidArguments => line.strip_prefix("Error: ").unwrap_or(line),
        ToolErrorKind::Denied => line.strip_prefix("Error ").unwrap_or(line),
        ToolErrorKind::UnknownTool
        | ToolErrorKind::ApprovalPending
        | ToolErrorKind::LimitExceeded
        | ToolErrorKind::QueueFull
        | ToolErrorKind::Cancelled
        | ToolErrorKind::Timeout
        | ToolErrorKind::Unavailable
        | ToolErrorKind::Failed
        | ToolErrorKind::Internal
        | ToolErrorKind::UnknownOutcome => line,
    }
}

fn refusal(error: &ToolError, result: &ToolResult, policy: &PolicyArgs) -> Option<SandboxRefusal> {
    let config = settings::configuration(&policy.files).ok()?.resolved.sandbox;
    let access = policy.network.map(settings::access).or(config.network);
    let network = sandbox_refusal::network(access, policy.mode.unwrap_or(config.mode));
    SandboxRefusal::find(&result.call.name, &error.message, network)
}

fn hint(error: &ToolError, result: &ToolResult, policy: &PolicyArgs) -> Option<String> {
    if let Some(refusal) = refusal(error, result, policy) {
        return Some(refusal.hint().into());
    }
    if error.kind == ToolErrorKind::Denied && result.receipt.executed {
        return Some("--writable and --readable allow access to more paths; see `haft call --help`".into());
    }
    let config = settings::configuration(&policy.files).ok()?;
    remedy::of(error, &result.call.name, &config.resolved)
}

/// The result as JSON, for programs.
#[derive(Serialize)]
struct CallResultJson<'a> {
    tool: &'a str,
    content: String,
    is_error: bool,
    error_kind: Option<&'static str>,
    retryable: Option<bool>,
    executed: bool,
    latency_ms: u128,
    output_bytes: usize,
    repairs: &'a [&'static str],
    unvalidated: bool,
    notes: &'a std::collections::BTreeMap<&'static str, Value>,
    /// The call tree; `None` without the option `--tree`.
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<Value>,
}

fn print_json(result: &ToolResult, tree: Option<Value>) -> ExitCode {
    let kind = result.error_kind();
    let printed = CallResultJson {
        tool: &result.call.name,
        content: result.text(),
        is_error: kind.is_some(),
        error_kind: kind.map(ToolErrorKind::name),
        retryable: kind.map(|kind| kind.row().retryable),
        executed: result.receipt.executed,
        latency_ms: result.receipt.latency.as_millis(),
        output_bytes: result.receipt.output_bytes,
        repairs: &result.receipt.repairs,
        unvalidated: result.receipt.unvalidated,
        notes: &result.receipt.notes,
        tree,
    };
    let code = match serde_json::to_string_pretty(&printed) {
        Ok(text) => terminal::answer(&text),
        Err(error) => terminal::failed(ExitReason::Internal, &error.to_string()),
    };
    match kind {
        Some(kind) if code == ExitCode::SUCCESS => ExitReason::from(kind).into(),
        Some(_) | None => code,
    }
}

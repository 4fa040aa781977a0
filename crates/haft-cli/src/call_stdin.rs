//! `haft call --stdin`: reads one call per line and writes one result per line.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use haft_core::arguments::{ARGUMENTS_BYTES_MAX, RawArguments};
use haft_core::result::{ToolErrorKind, ToolResult};
use haft_core::tool::{CallId, ToolCall};
use haft_engine::{CallOptions, EffectOrder, Orchestrator, RunContext};
use haft_runtime::lines::{InputLine, InputLineReader};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncWriteExt, BufReader};

use super::args::CallArgs;
use super::call::{CallSetup, begin, end, orchestrator, shut_down_after_signal};
use super::cancel::CancelSignals;
use super::exit::ExitReason;
use super::terminal;
use super::watch::CommandWatchers;

/// The maximum length of a line, in bytes: the largest arguments plus space for the fields around them.
const LINE_BYTES_MAX: usize = ARGUMENTS_BYTES_MAX + (64 << 10);

pub(super) async fn run(args: &CallArgs) -> ExitCode {
    let CallSetup { orchestrator, watch, context, definitions } = match orchestrator(args).await {
        Ok(both) => both,
        Err(error) => return error.report(),
    };
    let mut signals = CancelSignals::listen();
    let served = tokio::select! {
        biased;
        served = async { begin(&orchestrator, &definitions).await; serve(&orchestrator, &watch, &context, args).await } => Ok(served),
        exit = signals.first() => Err(exit),
    };
    let code = match served {
        Err(exit) => {
            shut_down_after_signal(&orchestrator, &definitions, &mut signals).await;
            exit.into()
        }
        Ok(served) => {
            end(&orchestrator, &definitions).await;
            served.map_or_else(CallStreamError::report, |()| ExitReason::Success.into())
        }
    };
    watch.draw_tree();
    watch.finish();
    code
}

/// The reason why the stream ended before the end of its input.
enum CallStreamError {
    Reading(io::Error),
    Writing(io::Error),
}

impl CallStreamError {
    fn report(self) -> ExitCode {
        match self {
            CallStreamError::Reading(error) => {
                terminal::failed(ExitReason::Internal, &format!("haft cannot read standard input: {error}"))
            }
            CallStreamError::Writing(error) => terminal::written(Err(error)),
        }
    }
}

/// Serves calls. Reads a line only if another call may start now; otherwise the input stays in the pipe.
async fn serve(
    orchestrator: &Orchestrator,
    watch: &CommandWatchers,
    context: &Arc<RunContext>,
    args: &CallArgs,
) -> Result<(), CallStreamError> {
    let order = args.ordered.then(EffectOrder::default);
    let mut lines = InputLineReader::new(BufReader::new(tokio::io::stdin()), LINE_BYTES_MAX);
    let mut running: FuturesUnordered<BoxFuture<'_, (JsonCallId, ToolResult)>> = FuturesUnordered::new();
    let mut open = true;
    while open || !running.is_empty() {
        tokio::select! {
            biased;
            Some((id, result)) = running.next() => {
                watch.log_result(&result);
                CallOutputLine::of(id, &result).print().await.map_err(CallStreamError::Writing)?;
            }
            line = lines.next(), if open && running.len() < usize::from(args.jobs) => match line.map_err(CallStreamError::Reading)? {
                None => open = false,
                Some(line) => match CallInputLine::from_line(line) {
                    Ok(None) => {}
                    Ok(Some(asked)) => running.push(perform(orchestrator, watch.options(context), order.as_ref(), asked)),
                    Err(answer) => answer.print().await.map_err(CallStreamError::Writing)?,
                },
            },
        }
    }
    Ok(())
}

fn perform<'a>(
    orchestrator: &'a Orchestrator,
    options: CallOptions,
    order: Option<&EffectOrder>,
    asked: CallInputLine,
) -> BoxFuture<'a, (JsonCallId, ToolResult)> {
    let CallInputLine { id, tool, args } = asked;
    let arguments = RawArguments::from_text(args.map_or("{}".into(), |args| args.get().to_owned()));
    let call_id = CallId(id.as_ref().map_or("null", |id| id.get()).to_owned());
    let call = ToolCall { id: call_id, name: tool, arguments };
    match order {
        Some(order) => orchestrator.execute_in_turn(order, call, options).map(|result| (id, result)).boxed(),
        None => orchestrator.execute_with(call, options).map(|result| (id, result)).boxed(),
    }
}

/// The caller's id, which may be any JSON value. It is kept as text, so that a number with many digits is returned
/// unchanged.
type JsonCallId = Option<Box<RawValue>>;

/// A line of input, which describes one call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallInputLine {
    #[serde(default)]
    id: JsonCallId,
    tool: String,
    /// The arguments as JSON text. The orchestrator parses them.
    #[serde(default)]
    args: Option<Box<RawValue>>,
}

impl CallInputLine {
    /// Parses a line. Returns `None` for an empty line, and a result to print for an invalid one.
    fn from_line(line: InputLine) -> Result<Option<Self>, CallOutputLine> {
        let text = match line {
            InputLine::Text(text) => text,
            InputLine::TooLong { bytes } => {
                let message = format!("the input line has {bytes} bytes; the limit is {LINE_BYTES_MAX}");
                return Err(CallOutputLine::bad_line(None, message));
            }
        };
        if text.trim_ascii().is_empty() {
            return Ok(None);
        }
        let not_a_call = |reason: &dyn std::fmt::Display| {
            let message = format!(
                "the input line is not a tool call: {reason}; expected {{\"id\":…,\"tool\":\"bash\",\"args\":{{…}}}}"
            );
            CallOutputLine::bad_line(id_of(&text), message)
        };
        // Require an object, because serde would also accept a JSON array with the values of the fields in order.
        if !text.trim_ascii_start().starts_with(b"{") {
            return Err(not_a_call(&"the input line is not a JSON object"));
        }
        serde_json::from_slice(&text).map(Some).map_err(|error| not_a_call(&error))
    }
}

/// Returns the id of a line that is a JSON object but not a call, so that the caller can match the error to its line.
fn id_of(text: &[u8]) -> JsonCallId {
    #[derive(Deserialize)]
    struct OnlyId {
        id: JsonCallId,
    }
    let object = Some(text).filter(|text| text.trim_ascii_start().starts_with(b"{"))?;
    serde_json::from_slice::<OnlyId>(object).ok()?.id
}

/// A line of output, with the result of one call.
#[derive(Debug, Serialize)]
struct CallOutputLine {
    id: JsonCallId,
    content: String,
    is_error: bool,
    error_kind: Option<&'static str>,
    latency_ms: u128,
}

impl CallOutputLine {
    fn of(id: JsonCallId, result: &ToolResult) -> Self {
        let kind = result.error_kind();
        Self {
            id,
            content: result.text(),
            is_error: kind.is_some(),
            error_kind: kind.map(ToolErrorKind::name),
            latency_ms: result.receipt.latency.as_millis(),
        }
    }

    fn bad_line(id: JsonCallId, message: String) -> Self {
        let error_kind = Some(ToolErrorKind::InvalidArguments.name());
        Self { id, content: message, is_error: true, error_kind, latency_ms: 0 }
    }

    /// Prints asynchronously: a slow reader must not prevent haft from handling a signal.
    async fn print(&self) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut out = tokio::io::stdout();
        out.write_all(&line).await?;
        out.flush().await
    }
}

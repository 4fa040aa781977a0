//! `haft call --stdin`: one call per line in, one answer per line out.

use std::io::{self, Write};
use std::process::ExitCode;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use haft_core::arguments::Arguments;
use haft_core::result::{ToolErrorKind, ToolResult};
use haft_core::tool::{CallId, ToolCall};
use haft_engine::{EffectOrder, Orchestrator};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::BufReader;

use super::args::CallArgs;
use super::call::orchestrator;
use super::cancel;
use super::lines::{LINE_BYTES_MAX, Line, Lines};
use super::terminal;
use crate::wiring;

pub(super) async fn run(args: &CallArgs) -> ExitCode {
    let orchestrator = match orchestrator(args) {
        Ok(orchestrator) => orchestrator,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let order = args.ordered.then(EffectOrder::default);
    let served = tokio::select! {
        biased;
        served = serve(&orchestrator, order.as_ref(), usize::from(args.jobs)) => served,
        exit = cancel::cancelled() => return exit.into(),
    };
    wiring::shut_down(&orchestrator).await;
    terminal::written(served)
}

/// Reads only while there is room for another call, so that input waits where it is.
async fn serve(orchestrator: &Orchestrator, order: Option<&EffectOrder>, jobs: usize) -> io::Result<()> {
    let mut lines = Lines::new(BufReader::new(tokio::io::stdin()), LINE_BYTES_MAX);
    let mut running: FuturesUnordered<BoxFuture<'_, Answer>> = FuturesUnordered::new();
    let mut open = true;
    while open || !running.is_empty() {
        tokio::select! {
            biased;
            Some(answer) = running.next() => answer.print()?,
            line = lines.next(), if open && running.len() < jobs => match line? {
                None => open = false,
                Some(line) => match Asked::from_line(line) {
                    Ok(None) => {}
                    Ok(Some(asked)) => running.push(perform(orchestrator, order, asked)),
                    Err(answer) => answer.print()?,
                },
            },
        }
    }
    Ok(())
}

fn perform<'a>(orchestrator: &'a Orchestrator, order: Option<&EffectOrder>, asked: Asked) -> BoxFuture<'a, Answer> {
    let Asked { id, tool, args } = asked;
    let arguments = Arguments::from_text(args.map_or("{}".into(), |args| args.get().to_owned()));
    let call = ToolCall { id: CallId(id.to_string()), name: tool, arguments };
    match order {
        Some(order) => orchestrator.execute_in_turn(order, call).map(|result| Answer::of(id, &result)).boxed(),
        None => orchestrator.execute(call).map(|result| Answer::of(id, &result)).boxed(),
    }
}

/// A line of input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(default)]
    id: Value,
    tool: String,
    /// In the asker's own text: the parser decides what it is.
    #[serde(default)]
    args: Option<Box<RawValue>>,
}

impl Asked {
    /// `None` for an empty line; an answer for one that cannot be understood.
    fn from_line(line: Line) -> Result<Option<Self>, Answer> {
        let text = match line {
            Line::Text(text) => text,
            Line::TooLong { bytes } => {
                let message = format!("the line has {bytes} bytes; at most {LINE_BYTES_MAX} are taken");
                return Err(Answer::bad_line(Value::Null, message));
            }
        };
        if text.trim_ascii().is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            let message = format!("not a call: {error}; expected {{\"id\":…,\"tool\":\"bash\",\"args\":{{…}}}}");
            Answer::bad_line(id_of(&text), message)
        })
    }
}

/// The id of a line that is JSON but no call, so that even its answer finds the asker.
fn id_of(text: &[u8]) -> Value {
    serde_json::from_slice::<Value>(text).ok().and_then(|mut value| Some(value.get_mut("id")?.take())).unwrap_or_default()
}

/// A line of output.
#[derive(Debug, Serialize)]
struct Answer {
    id: Value,
    content: String,
    is_error: bool,
    error_kind: Option<&'static str>,
    latency_ms: u128,
}

impl Answer {
    fn of(id: Value, result: &ToolResult) -> Self {
        let kind = result.error_kind();
        Self {
            id,
            content: result.text(),
            is_error: kind.is_some(),
            error_kind: kind.map(ToolErrorKind::name),
            latency_ms: result.receipt.latency.as_millis(),
        }
    }

    fn bad_line(id: Value, message: String) -> Self {
        let error_kind = Some(ToolErrorKind::InvalidArguments.name());
        Self { id, content: message, is_error: true, error_kind, latency_ms: 0 }
    }

    fn print(&self) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut out = io::stdout().lock();
        out.write_all(&line)?;
        out.flush()
    }
}

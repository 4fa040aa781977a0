//! The event watchers of one command: status line, operation tree, log, usage records and telemetry.

use std::sync::Arc;

use haft_config::resolved::TelemetrySettings as TelemetryConfig;
use haft_core::event::{EventSink, EventSinks};
use haft_core::position::{RunPosition, SessionId};
use haft_core::result::ToolResult;
use haft_engine::{CallOptions, RunContext};
use haft_sandbox::Home;
use haft_tools::mcp::TraceParents;
use serde_json::Value;

use super::args::{AskArgs, CallArgs, LogFormat, ShowArgs};
use super::hints;
use super::log::{LogContent, LogLevel, LogWriter};
use super::terminal::{self, StatusLine};
use super::tree::TreeKeeper;
use haft_runtime::telemetry::{Telemetry, captures_content};
use haft_store::accounting::{AccountingSink, FileAccounting};

/// The event watchers of one command.
pub(super) struct CommandWatchers {
    session: SessionId,
    sinks: EventSinks,
    log: Arc<LogWriter>,
    /// The operation tree; `None` without the option `--tree`.
    tree: Option<Arc<TreeKeeper>>,
    telemetry: Option<Telemetry>,
    /// True if a watcher may use the content of calls.
    captures_content: bool,
}

/// Selects whether each call of an MCP client is logged.
#[cfg(feature = "serve")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallLog {
    Written,
    Off,
}

/// The telemetry of the runs of a server; empty if the environment names no collector.
#[cfg(feature = "serve")]
#[derive(Clone, Default)]
pub(super) struct RunTelemetry {
    pub(super) sink: Option<Arc<dyn EventSink>>,
    pub(super) parents: Option<Arc<dyn TraceParents>>,
    captures_content: bool,
}

#[cfg(feature = "serve")]
impl RunTelemetry {
    /// Sets whether events contain the content of calls. They must not contain it if no watcher uses it.
    pub(super) fn apply(&self, config: &mut TelemetryConfig) {
        config.capture_content = self.captures_content;
    }
}

/// The options that control the watchers.
#[derive(Debug, Clone, Copy)]
struct WatcherOptions {
    verbose: bool,
    log_format: Option<LogFormat>,
    tree: bool,
    content: LogContent,
}

impl CommandWatchers {
    pub(super) fn begin(args: &CallArgs, home: &Home, content: LogContent) -> Self {
        // The status line is first, so that it is cleared before another watcher writes a line.
        let status = if args.stdin { None } else { StatusLine::new() };
        let first = status.map(|status| Arc::new(status) as Arc<dyn EventSink>);
        let options =
            WatcherOptions { verbose: args.verbose, log_format: args.log_format, tree: args.tree, content };
        Self::with(options, Some(home), first.into_iter().collect())
    }

    /// Creates the watchers of a run. The runtime records the usage of a run, so these watchers do not record it again.
    /// The `first` sinks receive each event first.
    pub(super) fn of_run(show: ShowArgs, content: LogContent, first: Vec<Arc<dyn EventSink>>) -> Self {
        let options =
            WatcherOptions { verbose: show.verbose, log_format: show.log_format, tree: show.tree, content };
        Self::with(options, None, first)
    }

    #[cfg(feature = "serve")]
    /// Creates the watchers of the calls of MCP clients. They write nothing to standard output, because it belongs to
    /// the protocol.
    pub(super) fn of_gateway(log: CallLog, home: &Home, content: LogContent) -> Self {
        let verbose = log == CallLog::Written;
        let options = WatcherOptions { verbose, log_format: None, tree: false, content };
        Self::with(options, Some(home), Vec::new())
    }

    /// Creates the watchers of one question to a model. Its events have no content, and the runtime records its usage.
    pub(super) fn of_question(args: &AskArgs) -> Self {
        let options = WatcherOptions {
            verbose: args.verbose,
            log_format: args.log_format,
            tree: false,
            content: LogContent::Removed,
        };
        Self::with(options, None, Vec::new())
    }

    /// Builds the watchers. Without a home directory, usage is not recorded.
    fn with(options: WatcherOptions, home: Option<&Home>, mut sinks: Vec<Arc<dyn EventSink>>) -> Self {
        let level = level(options);
        let tree = Arc::new(TreeKeeper::default());
        let format = options.log_format.unwrap_or(LogFormat::Text);
        let log = Arc::new(LogWriter::new(level, format, options.content, Arc::clone(&tree)));
        let telemetry = Telemetry::from_environment().unwrap_or_else(|complaint| {
            terminal::warn(&complaint);
            None
        });
        sinks.extend(home.map(accounting));
        if options.tree || level > LogLevel::Off {
            sinks.push(Arc::clone(&tree) as _);
        }
        if level > LogLevel::Off {
            sinks.push(Arc::clone(&log) as _);
        }
        sinks.extend(telemetry.as_ref().map(Telemetry::sink));
        let uses_content = telemetry.is_some() || (level > LogLevel::Off && format == LogFormat::Json);
        Self {
            session: SessionId(uuid::Uuid::new_v4().as_u128()),
            sinks: EventSinks(sinks),
            log,
            tree: options.tree.then_some(tree),
            telemetry,
            captures_content: uses_content && options.content == LogContent::Captured,
        }
    }

    /// Returns the watchers, in the order in which they receive events.
    pub(super) fn sinks(&self) -> Vec<Arc<dyn EventSink>> {
        self.sinks.0.clone()
    }

    /// Records the calls in an existing session instead of a new one.
    pub(super) fn continue_session(&mut self, session: SessionId) {
        self.session = session;
    }

    pub(super) fn sink(&self) -> Arc<dyn EventSink> {
        Arc::new(self.sinks.clone())
    }

    /// Returns the lookup that finds the parent span for a request to an MCP server.
    pub(super) fn trace_parents(&self) -> Option<Arc<dyn TraceParents>> {
        self.telemetry.as_ref().map(Telemetry::trace_parents)
    }

    /// Returns the telemetry for the runs of a server, which record their usage themselves.
    #[cfg(feature = "serve")]
    pub(super) fn run_telemetry(&self) -> RunTelemetry {
        RunTelemetry {
            sink: self.telemetry.as_ref().map(Telemetry::sink),
            parents: self.trace_parents(),
            captures_content: self.captures_content(),
        }
    }

    /// Returns true if the operator enabled content capture and a watcher uses the content: spans or JSON log lines.
    pub(super) fn captures_content(&self) -> bool {
        self.captures_content
    }

    /// Returns the options of a call. All calls of one command are one turn of one session.
    pub(super) fn options(&self, context: &Arc<RunContext>) -> CallOptions {
        CallOptions { context: Arc::clone(context), place: self.place(), ..CallOptions::default() }
    }

    pub(super) fn place(&self) -> RunPosition {
        RunPosition::first(self.session)
    }

    pub(super) fn log_result(&self, result: &ToolResult) {
        self.log.log_result(result);
    }

    /// Returns the tree as JSON.
    pub(super) fn tree_json(&self) -> Option<Value> {
        self.tree.as_ref().map(|tree| tree.json())
    }

    pub(super) fn draw_tree(&self) {
        if let Some(tree) = &self.tree {
            terminal::note(&tree.drawn());
        }
    }

    /// Flushes telemetry. Call this method after the last answer, because a slow collector must not delay the answer.
    pub(super) fn finish(self) {
        if let Some(Err(complaint)) = self.telemetry.map(Telemetry::finish) {
            terminal::warn(&hints::with(&complaint, Some(hints::SPANS_LOST)));
        }
    }
}

/// Returns the content that spans and JSON log lines may contain. The environment takes precedence over the
/// configuration.
pub(super) fn content(configured: TelemetryConfig) -> LogContent {
    if captures_content().unwrap_or(configured.capture_content) {
        LogContent::Captured
    } else {
        LogContent::Removed
    }
}

/// Returns the log level. `-v` takes precedence over the environment.
fn level(options: WatcherOptions) -> LogLevel {
    if options.verbose {
        return LogLevel::Info;
    }
    let named = std::env::var("HAFT_LOG").unwrap_or_default();
    LogLevel::named(&named).unwrap_or_else(|complaint| {
        terminal::warn(&complaint);
        LogLevel::Off
    })
}

fn accounting(home: &Home) -> Arc<dyn EventSink> {
    warn_if_unwritable(home);
    Arc::new(AccountingSink::new(Arc::new(FileAccounting::of(home))))
}

/// Warns if usage records cannot be written. Calls continue without records, until haft can write records again.
pub(super) fn warn_if_unwritable(home: &Home) {
    if let Err(error) = FileAccounting::of(home).check_writable() {
        terminal::warn(&format!("haft cannot record calls for `haft stats`: {error}"));
    }
}

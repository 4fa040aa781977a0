//! Writes log lines for events to standard error. Text lines name the tool or model and the outcome, never the content;
//! JSON lines are the events themselves.

mod json;
mod model;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use haft_core::approval::shown;
use haft_core::event::{CallAccount, Event, EventSink, ToolReference};
use haft_core::position::CallOperation;
use haft_core::result::{ToolErrorKind, ToolResult};
use serde_json::Value;

use self::json::JsonLines;
pub(super) use self::json::LogContent;
use self::model::ModelLogLine;
use super::args::LogFormat;
use super::terminal;
use super::tree::TreeKeeper;

/// The lowest severity that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
}

impl LogLevel {
    /// Parses `HAFT_LOG`. There is no level below `info`, so `debug` and `trace` mean `info`.
    pub(super) fn named(text: &str) -> Result<Self, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "" | "off" | "none" => Ok(LogLevel::Off),
            "error" => Ok(LogLevel::Error),
            "warn" | "warning" => Ok(LogLevel::Warn),
            "info" | "debug" | "trace" => Ok(LogLevel::Info),
            _ => Err("HAFT_LOG must be off, error, warn or info; logging is off".into()),
        }
    }
}

/// Writes lines of the selected severity, and warns once if the sandbox is weaker than configured.
#[derive(Debug)]
pub(super) struct LogWriter {
    level: LogLevel,
    format: LogFormat,
    json: Mutex<JsonLines>,
    /// The call tree, which knows the position of each call. It must receive each event before the log does.
    tree: Arc<TreeKeeper>,
    warned: AtomicBool,
}

impl LogWriter {
    pub(super) fn new(
        level: LogLevel,
        format: LogFormat,
        content: LogContent,
        tree: Arc<TreeKeeper>,
    ) -> Self {
        let json = Mutex::new(JsonLines::new(content));
        Self { level, format, json, tree, warned: AtomicBool::new(false) }
    }

    /// Returns the text line of an event; `None` for events of runs, which the screen shows.
    fn text(&self, event: &Event) -> Option<String> {
        if let Some(line) = ModelLogLine::of(event) {
            return Some(line.text());
        }
        let line = ToolLogLine::of(event)?;
        Some(line.text(&self.tree.path(line.operation.id)))
    }

    /// Writes the line under a lock, so that the lines are in the order of their numbers.
    fn write_json(&self, event: &Event) {
        let mut json = self.json.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = json.line(event, now_ms()) {
            terminal::note(&line);
        }
    }

    /// Logs the details that are only in the receipt of a call.
    pub(super) fn log_result(&self, result: &ToolResult) {
        if let Some(warning) = weaker(result)
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            terminal::warn(&warning);
        }
        if let Some(paths) = result.receipt.notes.get("new_repositories") {
            terminal::warn(&format!(
                "the call created git repositories; look at their hooks and configuration before you run git in them: {paths}"
            ));
        }
        if result.receipt.notes.get("scan_incomplete").is_some_and(|since| since == "since the call") {
            terminal::warn(
                "the call created too many directories: haft did not search all of them for git repositories and for files that other programs run",
            );
        }
        if self.level == LogLevel::Info && self.format == LogFormat::Text {
            for line in details(result) {
                terminal::note(&line);
            }
        }
    }
}

impl EventSink for LogWriter {
    fn emit(&self, event: Event) {
        if level_of(&event) > self.level {
            return;
        }
        match self.format {
            LogFormat::Json => self.write_json(&event),
            LogFormat::Text => {
                if let Some(line) = self.text(&event) {
                    terminal::note(&line);
                }
            }
        }
    }
}

/// Returns the severity of an event. Events that report no failure have the level `info`.
fn level_of(event: &Event) -> LogLevel {
    let model = ModelLogLine::of(event).map(|line| line.level());
    model.or_else(|| ToolLogLine::of(event).map(|line| line.level())).unwrap_or(LogLevel::Info)
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// One line: the start of a call, or its result.
struct ToolLogLine<'e> {
    operation: &'e CallOperation,
    tool: &'e ToolReference,
    about: ToolLogPhase<'e>,
}

enum ToolLogPhase<'e> {
    Request { waited_ms: u128 },
    Response { latency_ms: u128, failure: Option<ToolErrorKind>, account: &'e CallAccount },
}

impl<'e> ToolLogLine<'e> {
    /// Returns the line of an event. Progress is not logged, because it may contain a part of the output.
    fn of(event: &'e Event) -> Option<Self> {
        let (operation, tool, about) = match event {
            Event::ToolStarted { operation, tool, waited } => {
                (operation, tool, ToolLogPhase::Request { waited_ms: waited.as_millis() })
            }
            Event::ToolProgress { .. }
            | Event::ModelStarted { .. }
            | Event::ModelFinished { .. }
            | Event::Run { .. } => return None,
            Event::ToolFinished { operation, tool, failure, latency, account, content: _ } => {
                let latency_ms = latency.as_millis();
                (operation, tool, ToolLogPhase::Response { latency_ms, failure: *failure, account })
            }
        };
        Some(Self { operation, tool, about })
    }

    fn level(&self) -> LogLevel {
        match self.about {
            ToolLogPhase::Request { .. } | ToolLogPhase::Response { failure: None, .. } => LogLevel::Info,
            ToolLogPhase::Response { failure: Some(kind), .. } => severity(kind),
        }
    }

    /// Returns `namespace:tool`, or the name that the model wrote if the tool is unknown.
    fn remote(&self) -> String {
        match self.tool {
            ToolReference::Written(name) => shown(name),
            ToolReference::Known(tool) => format!("{}:{}", tool.identity.namespace, tool.identity.tool),
        }
    }

    fn kind(&self) -> &'static str {
        self.tool.known().map_or("unknown", |known| known.identity.kind.name())
    }

    fn text(&self, path: &str) -> String {
        let severity = match self.level() {
            LogLevel::Error => "ERR",
            LogLevel::Warn => "WRN",
            LogLevel::Info | LogLevel::Off => "INF",
        };
        let (kind, remote) = (self.kind(), self.remote());
        match &self.about {
            ToolLogPhase::Request { waited_ms: 0 } => format!("{severity} {path} → {kind} {remote}"),
            ToolLogPhase::Request { waited_ms } => {
                format!("{severity} {path} → {kind} {remote} [after {waited_ms} ms]")
            }
            ToolLogPhase::Response { latency_ms, failure, account } => {
                let CallAccount { bytes_in, bytes_out, .. } = account;
                let cached = if account.cached { ", cached" } else { "" };
                let mut line = format!(
                    "{severity} {path} ← {kind} {remote} [{latency_ms} ms, {bytes_in} bytes in, {bytes_out} bytes out{cached}]"
                );
                if let Some(kind) = failure {
                    // Writing to a string cannot fail.
                    let _ = write!(line, " {}: {}", kind.name(), kind.row().message);
                }
                if let Some(rule) = rule(account) {
                    let _ = write!(line, " (rule: {})", shown(rule));
                }
                line
            }
        }
    }
}

/// Returns the rule that decided about the call; `None` if no rule did, for example because the default applied.
fn rule(account: &CallAccount) -> Option<&str> {
    account.verdict.as_ref()?.rule.as_deref()
}

/// Returns `warn` for errors that an operator should examine, and `error` for failures of haft's own parts.
fn severity(kind: ToolErrorKind) -> LogLevel {
    match kind {
        ToolErrorKind::UnknownTool
        | ToolErrorKind::Denied
        | ToolErrorKind::ApprovalPending
        | ToolErrorKind::InvalidArguments
        | ToolErrorKind::LimitExceeded
        | ToolErrorKind::QueueFull
        | ToolErrorKind::Cancelled
        | ToolErrorKind::Timeout
        | ToolErrorKind::Failed => LogLevel::Warn,
        ToolErrorKind::Unavailable | ToolErrorKind::Internal | ToolErrorKind::UnknownOutcome => {
            LogLevel::Error
        }
    }
}

/// Formats the notes of the receipt that contain no arguments and no output.
fn details(result: &ToolResult) -> Vec<String> {
    const TOPICS: [&str; 13] = [
        "approval",
        "cache",
        "exit_code",
        "mended",
        "new_repositories",
        "progress",
        "queue",
        "resolved_as",
        "run_files_changed",
        "sandbox",
        "scan_incomplete",
        "stored",
        "unvalidated",
    ];
    let repairs = result.receipt.repairs.iter().map(|repair| format!("    arguments repaired: {repair}"));
    let notes = result.receipt.notes.iter().filter(|(topic, _)| TOPICS.contains(topic));
    repairs.chain(notes.map(|(topic, value)| format!("    {topic}: {value}"))).collect()
}

fn weaker(result: &ToolResult) -> Option<String> {
    let weaker = result.receipt.notes.get("sandbox").and_then(|sandbox| sandbox.get("weaker")?.as_array());
    let sentences: Vec<&str> = weaker.into_iter().flatten().filter_map(Value::as_str).collect();
    (!sentences.is_empty()).then(|| {
        format!("the sandbox is weaker on this machine (`haft doctor` shows why): {}", sentences.join("; "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_levels_accept_common_aliases() {
        let check = |text: &str, expected: Option<LogLevel>| {
            assert_eq!(LogLevel::named(text).ok(), expected, "{text}");
        };
        check("", Some(LogLevel::Off));
        check("off", Some(LogLevel::Off));
        check("ERROR", Some(LogLevel::Error));
        check("warning", Some(LogLevel::Warn));
        check("debug", Some(LogLevel::Info));
        check("loud", None);
    }

    #[test]
    fn log_levels_are_ordered_by_severity() {
        assert!(
            LogLevel::Info > LogLevel::Warn
                && LogLevel::Warn > LogLevel::Error
                && LogLevel::Error > LogLevel::Off
        );
        assert!(ToolErrorKind::ALL.iter().all(|kind| severity(*kind) < LogLevel::Info));
    }
}

//! Everything that watches the calls of one command: status line, op tree, log, journal and telemetry.

use std::sync::Arc;

use haft_core::event::{EventSink, Watchers};
use haft_core::place::{Place, SessionId};
use haft_core::result::ToolResult;
use haft_engine::{CallOptions, RunContext};
use haft_sandbox::Home;
use haft_tools::mcp::TraceParents;
use serde_json::Value;

use super::args::{AskArgs, CallArgs, LogFormat, ShowArgs};
use super::log::{Level, Log};
use super::terminal::{self, StatusLine};
use super::tree::TreeKeeper;
use haft_runtime::telemetry::Telemetry;
use haft_store::accounting::Journal;

/// What is seen from outside of the calls of one command.
pub(super) struct Watch {
    session: SessionId,
    sinks: Watchers,
    log: Arc<Log>,
    /// Kept when somebody wants to see it.
    tree: Option<Arc<TreeKeeper>>,
    telemetry: Option<Telemetry>,
}

/// What was typed about it.
#[derive(Debug, Clone, Copy)]
struct Wishes {
    verbose: bool,
    log_format: Option<LogFormat>,
    tree: bool,
}

impl Watch {
    pub(super) fn begin(args: &CallArgs, home: &Home) -> Self {
        // First, so that the status is gone from the terminal before a line is written there.
        let status = if args.stdin { None } else { StatusLine::new() };
        let first = status.map(|status| Arc::new(status) as Arc<dyn EventSink>);
        let wishes = Wishes { verbose: args.verbose, log_format: args.log_format, tree: args.tree };
        Self::with(wishes, Some(home), first.into_iter().collect())
    }

    /// What is seen of a run beside what is watched here sees everything first.
    pub(super) fn of_run(show: ShowArgs, home: &Home, first: Vec<Arc<dyn EventSink>>) -> Self {
        let wishes = Wishes { verbose: show.verbose, log_format: show.log_format, tree: show.tree };
        Self::with(wishes, Some(home), first)
    }

    /// One question to a model. Without a home it is not accounted for.
    pub(super) fn of_question(args: &AskArgs, home: Option<&Home>, first: Vec<Arc<dyn EventSink>>) -> Self {
        let wishes = Wishes { verbose: args.verbose, log_format: args.log_format, tree: false };
        Self::with(wishes, home, first)
    }

    fn with(wishes: Wishes, home: Option<&Home>, mut sinks: Vec<Arc<dyn EventSink>>) -> Self {
        let level = level(wishes);
        let tree = Arc::new(TreeKeeper::default());
        let log = Arc::new(Log::new(level, wishes.log_format.unwrap_or(LogFormat::Text), Arc::clone(&tree)));
        let telemetry = Telemetry::from_environment().unwrap_or_else(|complaint| {
            terminal::warn(&complaint);
            None
        });
        sinks.extend(home.and_then(journal));
        if wishes.tree || level > Level::Off {
            sinks.push(Arc::clone(&tree) as _);
        }
        if level > Level::Off {
            sinks.push(Arc::clone(&log) as _);
        }
        sinks.extend(telemetry.as_ref().map(Telemetry::sink));
        Self {
            session: SessionId(uuid::Uuid::new_v4().as_u128()),
            sinks: Watchers(sinks),
            log,
            tree: wishes.tree.then_some(tree),
            telemetry,
        }
    }

    /// Each watcher, in the order in which it sees events.
    pub(super) fn sinks(&self) -> Vec<Arc<dyn EventSink>> {
        self.sinks.0.clone()
    }

    /// What is watched belongs to a session that was there before.
    pub(super) fn go_on_in(&mut self, session: SessionId) {
        self.session = session;
    }

    pub(super) fn sink(&self) -> Arc<dyn EventSink> {
        Arc::new(self.sinks.clone())
    }

    /// The spans that servers of ours may put their own below.
    pub(super) fn trace_parents(&self) -> Option<Arc<dyn TraceParents>> {
        self.telemetry.as_ref().map(Telemetry::trace_parents)
    }

    /// Whether what was said would reach anybody.
    pub(super) fn tells_a_collector(&self) -> bool {
        self.telemetry.is_some()
    }

    /// All calls of one command are one turn of one session.
    pub(super) fn options(&self, context: &Arc<RunContext>) -> CallOptions {
        CallOptions { context: Arc::clone(context), place: self.place(), ..CallOptions::default() }
    }

    pub(super) fn place(&self) -> Place {
        Place::first(self.session)
    }

    pub(super) fn tell(&self, result: &ToolResult) {
        self.log.tell(result);
    }

    /// The tree as programs read it.
    pub(super) fn tree_json(&self) -> Option<Value> {
        self.tree.as_ref().map(|tree| tree.json())
    }

    pub(super) fn draw_tree(&self) {
        if let Some(tree) = &self.tree {
            terminal::note(&tree.drawn());
        }
    }

    /// After the last answer was given: what waits to be delivered must not hold it up.
    pub(super) fn finish(self) {
        if let Some(Err(complaint)) = self.telemetry.map(Telemetry::finish) {
            terminal::warn(&complaint);
        }
    }
}

/// `-v` wins over the environment.
fn level(wishes: Wishes) -> Level {
    if wishes.verbose {
        return Level::Info;
    }
    let named = std::env::var("HAFT_LOG").unwrap_or_default();
    Level::named(&named).unwrap_or_else(|complaint| {
        terminal::warn(&complaint);
        Level::Off
    })
}

fn journal(home: &Home) -> Option<Arc<dyn EventSink>> {
    match Journal::open(home) {
        Ok(journal) => Some(Arc::new(journal)),
        Err(error) => {
            terminal::warn(&format!("calls are not accounted for: {error}"));
            None
        }
    }
}

//! What a session's journal says: a fold over its lines.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use haft_core::digest::Digest;
use haft_core::event::{Account, Event, ToolSeen};
use haft_core::model_error::ModelErrorKind;
use haft_core::model_provider::{Attempt, ModelAccount, Next};
use haft_core::model_reply::Usage;
use haft_core::model_request::ModelRequest;
use haft_core::op_tree::OpTree;
use haft_core::place::{Operation, OperationId, Place, SessionId};
use haft_core::price::Cost;
use haft_core::provider::Principal;
use haft_core::result::ToolErrorKind;
use haft_core::run::event::Bill;
use haft_core::run::told::{CallEnd, Told};
use haft_core::run::{AgentRun, RunError, RunPlan};
use haft_core::tool::CallId;

use super::line::{Line, Opened};
use super::overview::Overview;
use super::read::{Lines, ReadError};
use crate::accounting::{ModelRecord, Record};

/// A session as it was left.
#[derive(Debug)]
pub struct Past {
    pub opened: Opened,
    pub standing: Standing,
    /// What was asked after the first request.
    pub requests: Vec<String>,
    /// When the last line was written.
    pub last_ms: u64,
    /// What everything cost.
    pub total: Bill,
    /// What the last request cost so far; its budget goes by that.
    pub bill: Bill,
    pub tree: OpTree,
    told: Vec<Told>,
    /// Calls of the last turn that reached their tool, and of which no end is on record.
    begun: Vec<CallId>,
    session: SessionId,
    /// How long the last request was worked on before `since_ms`, when it was last taken up.
    worked_before: Duration,
    since_ms: u64,
    /// How many processes have worked on it before the last.
    processes: u64,
    /// What the next request would have had the model read, when that was last known.
    context_tokens: Option<u64>,
    /// What the tree is made of.
    events: Vec<Event>,
    /// Calls that the last process began, and of which no end is on record.
    at_work: Vec<(Arc<Operation>, ToolSeen)>,
}

/// How far a session has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// No end is on record: it is under way, or what drove it was killed.
    Open,
    /// It came to an end that is none: interrupted, out of time, without a model. It can go on where it was.
    Cut {
        reason: String,
    },
    Finished {
        reason: String,
    },
}

/// A run that is had again, and what nobody knows the end of.
#[derive(Debug)]
pub struct Unfinished {
    pub run: AgentRun,
    pub begun: Vec<CallId>,
    /// The turns of earlier requests.
    pub turns_before: u32,
    /// What the model would read next, when that was last known.
    pub context_tokens: Option<u64>,
}

impl Past {
    pub fn of<R: Read>(mut lines: Lines<R>) -> Result<Self, ReadError> {
        let first = lines.next().ok_or(ReadError::Empty)??;
        let Line::Session(opened) = first else { return Err(ReadError::Version { found: None }) };
        let id = uuid::Uuid::parse_str(&opened.id);
        let session =
            id.map_err(|error| ReadError::Broken { problem: format!("its id is none: {error}") })?;
        let mut past = Self {
            last_ms: opened.at_ms,
            since_ms: opened.at_ms,
            opened: *opened,
            standing: Standing::Open,
            requests: Vec::new(),
            total: Bill::default(),
            bill: Bill::default(),
            tree: OpTree::default(),
            told: Vec::new(),
            begun: Vec::new(),
            session: SessionId(session.as_u128()),
            worked_before: Duration::ZERO,
            processes: 0,
            context_tokens: None,
            events: Vec::new(),
            at_work: Vec::new(),
        };
        for line in lines {
            past.take(line?)?;
        }
        past.tree = tree_of(&std::mem::take(&mut past.events));
        Ok(past)
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The part of it that a list shows.
    pub fn overview(&self) -> Overview {
        Overview {
            session: self.session,
            title: self.opened.title.clone(),
            began_ms: self.opened.at_ms,
            last_ms: self.last_ms,
            standing: self.standing.clone(),
            total: self.total,
        }
    }

    /// How long the last request was worked on.
    pub fn worked(&self) -> Duration {
        self.worked_before + Duration::from_millis(self.last_ms.saturating_sub(self.since_ms))
    }

    /// Nobody is at work on it any more: what was under way then has no end that anybody knows.
    pub fn left(&mut self) {
        for (operation, tool) in std::mem::take(&mut self.at_work) {
            self.tree.apply(&cut_off(operation, tool));
        }
    }

    pub fn plan(&self) -> Result<RunPlan, ReadError> {
        self.opened.run.plan().map_err(|error| ReadError::Broken { problem: error.to_string() })
    }

    /// The run as it was left. What stands in the request is what the model is told anew: its name, the system text and
    /// the tools.
    pub fn run(self, request: ModelRequest) -> Result<Unfinished, ReadError> {
        let broken = |problem: String| ReadError::Broken { problem };
        let mut run = self.opened.run.resume(request).map_err(|error| broken(error.to_string()))?;
        let mut turns_before = 0;
        for told in self.told {
            if matches!(told, Told::Requested(_)) {
                turns_before += run.counts().turns;
            }
            run.told(told).map_err(|error: RunError| broken(error.to_string()))?;
            // They were told when they were new.
            run.take_notes();
        }
        Ok(Unfinished { run, begun: self.begun, turns_before, context_tokens: self.context_tokens })
    }

    fn take(&mut self, line: Line) -> Result<(), ReadError> {
        match line {
            Line::Session(_) => return Err(ReadError::Broken { problem: "it begins twice".into() }),
            Line::Resumed { at_ms } => {
                let left = std::mem::take(&mut self.at_work).into_iter();
                self.events.extend(left.map(|(operation, tool)| cut_off(operation, tool)));
                self.worked_before = self.worked();
                self.processes += 1;
                (self.last_ms, self.since_ms) = (at_ms, at_ms);
                if let Standing::Cut { .. } = self.standing {
                    self.standing = Standing::Open;
                }
            }
            Line::Told { at_ms, told } => {
                self.last_ms = at_ms;
                let told =
                    told.into_told().map_err(|error| ReadError::Broken { problem: error.to_string() })?;
                self.take_told(told);
            }
            Line::Begun { at_ms, call, tool, turn, operation } => {
                self.last_ms = at_ms;
                let place = Place { turn, ..Place::first(self.session) };
                let id = numbered(self.processes, operation);
                let operation = Arc::new(Operation { id, call: CallId(call.clone()), place });
                let (tool, waited) = (ToolSeen::Written(tool), Duration::ZERO);
                self.at_work.push((Arc::clone(&operation), tool.clone()));
                self.events.push(Event::ToolStarted { operation, tool, waited });
                self.begun.push(CallId(call));
            }
            Line::Tool(record) => self.take_tool(&record),
            Line::Model(record) => self.take_model(&record),
            Line::Note { at_ms, .. } => self.last_ms = at_ms,
            Line::Finished { at_ms, reason, .. } => {
                self.last_ms = at_ms;
                if self.standing == Standing::Open {
                    self.standing = Standing::Finished { reason };
                }
            }
        }
        Ok(())
    }

    /// What ended the run against its will is no part of it: whoever goes on, goes on before that. What is told after it
    /// only brought it to its end.
    fn take_told(&mut self, told: Told) {
        match (&self.standing, &told) {
            (_, Told::Requested(text)) => {
                self.requests.push(text.clone());
                self.begun.clear();
                self.bill = Bill::default();
                (self.worked_before, self.since_ms) = (Duration::ZERO, self.last_ms);
                self.standing = Standing::Open;
            }
            (Standing::Cut { .. }, _) => return,
            (_, Told::Failed(error)) => {
                self.standing = Standing::Cut { reason: error.kind.name().into() };
                return;
            }
            (_, Told::Aborted(why)) => {
                self.standing = Standing::Cut { reason: why.name().into() };
                return;
            }
            (_, Told::Replied(_)) => self.begun.clear(),
            (_, Told::Ended(ends)) => {
                self.begun.retain(|call| ends.iter().all(|end: &CallEnd| end.call() != call));
            }
            (_, Told::Stepped(readings)) => self.context_tokens = readings.context_tokens,
            (_, Told::ClientReplied(_) | Told::Judged { .. } | Told::Stopped) => {}
        }
        self.told.push(told);
    }

    fn take_tool(&mut self, record: &Record) {
        self.last_ms = record.timestamp_ms;
        self.total.calls += 1;
        self.bill.calls += 1;
        let ended = numbered(self.processes, record.standing.operation);
        self.at_work.retain(|(operation, _)| operation.id != ended);
        self.events.push(finished(self.session, self.processes, record));
    }

    fn take_model(&mut self, record: &ModelRecord) {
        self.last_ms = record.timestamp_ms;
        let usage = Usage {
            input: record.input_tokens,
            output: record.output_tokens,
            cache_read: record.cache_read_tokens,
            cache_write: record.cache_write_tokens,
            reasoning: record.reasoning_tokens,
        };
        let cost = record.cost_nano_usd.map(|nano_usd| Cost { nano_usd });
        self.total.add_request(Some(usage), cost);
        self.bill.add_request(Some(usage), cost);
        self.events.extend(attempted(self.session, self.processes, record, usage));
    }
}

/// Each process counts its own operations from one.
fn numbered(process: u64, operation: u64) -> OperationId {
    OperationId((process << 48) | operation)
}

/// A line is written when something has ended, and whoever works for a call ends before it: so all calls are placed first, in the
/// order in which they were made.
fn tree_of(events: &[Event]) -> OpTree {
    let started = |event: &Event| match event {
        Event::ToolStarted { operation, tool, .. } | Event::ToolFinished { operation, tool, .. } => {
            Some((Arc::clone(operation), tool.clone()))
        }
        Event::ToolProgress { .. }
        | Event::ModelStarted { .. }
        | Event::ModelFinished { .. }
        | Event::Run { .. } => None,
    };
    let mut begun: Vec<(Arc<Operation>, ToolSeen)> = events.iter().filter_map(started).collect();
    begun.sort_by_key(|(operation, _)| operation.id);
    let mut tree = OpTree::default();
    for (operation, tool) in begun {
        tree.apply(&Event::ToolStarted { operation, tool, waited: Duration::ZERO });
    }
    for event in events {
        tree.apply(event);
    }
    tree
}

fn place(own: SessionId, session: Option<&str>, turn: u32, parent: Option<OperationId>) -> Place {
    let session = session.and_then(|id| uuid::Uuid::parse_str(id).ok());
    Place { session: session.map_or(own, |id| SessionId(id.as_u128())), turn, parent, origin: own }
}

/// The events that a line of a model was made of.
fn attempted(own: SessionId, process: u64, record: &ModelRecord, usage: Usage) -> [Event; 2] {
    let parent = record.parent_operation.map(|operation| numbered(process, operation));
    let place = place(own, record.session.as_deref(), record.turn.unwrap_or(1), parent);
    let id: Arc<str> = record.request_id.as_str().into();
    let (provider, model) = (record.provider.as_str().into(), record.model.as_str().into());
    let attempt = Attempt { provider, model, number: record.attempt };
    let kind = |name: &str| ModelErrorKind::ALL.into_iter().find(|kind| kind.name() == name);
    let account = ModelAccount {
        failure: record.error_kind.as_deref().map(|name| kind(name).unwrap_or(ModelErrorKind::Malformed)),
        latency: Duration::from_millis(record.latency_ms),
        first_event: record.first_event_ms.map(Duration::from_millis),
        usage: (usage != Usage::default()).then_some(usage),
        cost: record.cost_nano_usd.map(|nano_usd| Cost { nano_usd }),
        next: Next::Nothing,
    };
    let principal = Principal::local();
    [
        Event::ModelStarted { id: Arc::clone(&id), place, attempt: attempt.clone() },
        Event::ModelFinished { id, place, attempt, principal, account },
    ]
}

/// The end of a call that was under way when its process ended.
fn cut_off(operation: Arc<Operation>, tool: ToolSeen) -> Event {
    Event::ToolFinished {
        operation,
        tool,
        failure: Some(ToolErrorKind::UnknownOutcome),
        latency: Duration::ZERO,
        account: Account {
            principal: Principal::local(),
            executed: true,
            cached: false,
            bytes_in: 0,
            bytes_out: 0,
            arguments: Digest::of_text(""),
            verdict: None,
        },
        said: None,
    }
}

/// The event that a line was made of, as far as the tree looks at it.
fn finished(own: SessionId, process: u64, record: &Record) -> Event {
    let number = |operation: u64| numbered(process, operation);
    let standing = &record.standing;
    let parent = standing.parent_operation.map(number);
    let place = place(own, standing.session.as_deref(), standing.turn, parent);
    let (id, call) = (number(record.standing.operation), CallId(record.call_id.clone()));
    let operation = Operation { id, call, place };
    let kind = |name: &str| ToolErrorKind::ALL.into_iter().find(|kind| kind.name() == name);
    Event::ToolFinished {
        operation: Arc::new(operation),
        tool: ToolSeen::Written(record.tool.clone()),
        failure: record.error_kind.as_deref().map(|name| kind(name).unwrap_or(ToolErrorKind::Failed)),
        latency: Duration::from_millis(record.latency_ms),
        account: Account {
            principal: Principal::local(),
            executed: record.executed,
            cached: record.cached,
            bytes_in: usize::try_from(record.bytes_in).unwrap_or(usize::MAX),
            bytes_out: usize::try_from(record.bytes_out).unwrap_or(usize::MAX),
            arguments: Digest::from_hex(&record.arguments_digest).unwrap_or_else(|| Digest::of_text("")),
            verdict: None,
        },
        said: None,
    }
}

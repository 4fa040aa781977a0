//! The state of a session, computed as a fold over the lines of its journal.

use std::sync::Arc;
use std::time::Duration;

use haft_core::approval::ApprovalId;
use haft_core::digest::Digest;
use haft_core::event::{CallAccount, Event, ToolReference};
use haft_core::model_error::ModelErrorKind;
use haft_core::model_provider::{AttemptFollowUp, ModelAccount, ModelAttempt};
use haft_core::model_reply::TokenUsage;
use haft_core::model_request::ModelRequest;
use haft_core::op_tree::OpTree;
use haft_core::position::{CallOperation, OperationId, RunPosition, SessionId};
use haft_core::price::Cost;
use haft_core::provider::Principal;
use haft_core::result::ToolErrorKind;
use haft_core::run::event::{RunBill, RunEvent};
use haft_core::run::input::{CallEnd, RunInput};
use haft_core::run::snapshot::StoredCompaction;
use haft_core::run::{AgentRun, CallDecision, RunError, RunNote, RunPlan};
use haft_core::tool::CallId;

use super::line::{SessionJournalLine, SessionStart};
use super::overview::SessionOverview;
use super::read::ReadError;
use crate::accounting::{ModelRecord, ToolRecord};

/// The content of a session, computed from the lines of its journal.
#[derive(Debug)]
pub struct SessionHistory {
    pub opened: SessionStart,
    pub standing: SessionStatus,
    /// The texts of the requests after the first one, whose shortened text is `opened.title`.
    pub requests: Vec<String>,
    /// The time of the last line, in milliseconds since 1970.
    pub last_ms: u64,
    /// The cost of all requests.
    pub total: RunBill,
    /// The cost of the last request so far. The budget of the run applies to this cost and not to `total`.
    pub bill: RunBill,
    pub tree: OpTree,
    inputs: Vec<RunInput>,
    /// Calls of the last turn that reached their tool and have no recorded end.
    begun: Vec<CallId>,
    /// Approvals of the last turn whose calls have no recorded end.
    allowed: Vec<(u32, CallId)>,
    /// The number of replies so far, which is the number of the last turn.
    turns: u32,
    session: SessionId,
    /// The time that processes spent on the last request before `since_ms`, the time at which the session was last
    /// resumed.
    worked_before: Duration,
    since_ms: u64,
    /// The number of processes that worked on the session before the last one.
    processes: u64,
    /// The size of the next model request in tokens, as last recorded; `None` if it was not counted, or if a compaction has
    /// begun since.
    context_tokens: Option<u64>,
    /// The events that the tree is built from.
    events: Vec<Event>,
    /// The calls of the model by turn, for the tree.
    calls: Vec<(u32, CallId, String)>,
    /// Calls that the last process started and that have no recorded end.
    at_work: Vec<(Arc<CallOperation>, ToolReference)>,
}

/// The state of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionStatus {
    /// No end is recorded: the run is active, or its process was killed.
    Open,
    /// The run was interrupted by the user, by its time limit, or because no model was available. It can be resumed
    /// from this point.
    Cut {
        reason: String,
    },
    Finished {
        reason: String,
    },
}

/// A restored run, with the calls whose outcome is unknown.
#[derive(Debug)]
pub struct RestoredRun {
    pub run: AgentRun,
    pub begun: Vec<CallId>,
    /// The turns of earlier requests.
    pub turns_before: u32,
    /// The size of the next model request in tokens, as last recorded; `None` if it was not counted, or if a compaction has
    /// begun since.
    pub context_tokens: Option<u64>,
}

impl SessionHistory {
    pub fn of(
        mut lines: impl Iterator<Item = Result<SessionJournalLine, ReadError>>,
    ) -> Result<Self, ReadError> {
        let first = lines.next().ok_or(ReadError::Empty)??;
        let SessionJournalLine::Session(opened) = first else {
            return Err(ReadError::NoHeader);
        };
        let id = uuid::Uuid::parse_str(&opened.id);
        let session = id.map_err(|error| ReadError::Broken {
            problem: format!("the journal contains an invalid session id: {error}"),
        })?;
        let mut past = Self {
            last_ms: opened.at_ms,
            since_ms: opened.at_ms,
            opened: *opened,
            standing: SessionStatus::Open,
            requests: Vec::new(),
            total: RunBill::default(),
            bill: RunBill::default(),
            tree: OpTree::default(),
            inputs: Vec::new(),
            begun: Vec::new(),
            allowed: Vec::new(),
            turns: 0,
            session: SessionId(session.as_u128()),
            worked_before: Duration::ZERO,
            processes: 0,
            context_tokens: None,
            events: Vec::new(),
            calls: Vec::new(),
            at_work: Vec::new(),
        };
        for line in lines {
            past.take(line?)?;
        }
        past.tree = tree_of(&std::mem::take(&mut past.events));
        for (turn, call, name) in std::mem::take(&mut past.calls) {
            let place = RunPosition { turn, ..RunPosition::first(past.session) };
            past.tree.add_own_call(place, &call, &name);
        }
        Ok(past)
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the approvals of calls that were allowed but have no recorded end, because the process ended first.
    pub fn allowed(&self) -> Vec<ApprovalId> {
        let place = |turn: u32| RunPosition { turn, ..RunPosition::first(self.session) };
        self.allowed.iter().map(|(turn, call)| ApprovalId::of_call(place(*turn), call)).collect()
    }

    /// Returns the fields that a list shows.
    pub fn overview(&self) -> SessionOverview {
        SessionOverview {
            session: self.session,
            title: self.opened.title.clone(),
            began_ms: self.opened.at_ms,
            last_ms: self.last_ms,
            standing: self.standing.clone(),
            total: self.total,
        }
    }

    /// Returns the time that the run worked on the last request. Excludes the time between processes, and the time in
    /// which the run waited for an approval or for its client.
    pub fn worked(&self) -> Duration {
        self.worked_before + Duration::from_millis(self.last_ms.saturating_sub(self.since_ms))
    }

    /// Marks the calls in progress as ended with an unknown outcome. Call this method when no process works on the
    /// session any more.
    pub fn left(&mut self) {
        for (operation, tool) in std::mem::take(&mut self.at_work) {
            self.tree.apply(&cut_off(operation, tool));
        }
    }

    pub fn plan(&self) -> Result<RunPlan, ReadError> {
        self.opened.run.plan().map_err(|error| ReadError::Broken { problem: error.to_string() })
    }

    /// Restores the run. `request` supplies the parts that are not in the journal: the model, the system text and the
    /// tools.
    pub fn run(self, request: ModelRequest) -> Result<RestoredRun, ReadError> {
        let broken = |problem: String| ReadError::Broken { problem };
        let mut run = self.opened.run.resume(request).map_err(|error| broken(error.to_string()))?;
        let mut turns_before = 0;
        for input in self.inputs {
            if matches!(input, RunInput::Requested(_)) {
                turns_before += run.counts().turns;
            }
            run.apply(input).map_err(|error: RunError| broken(error.to_string()))?;
            // Drop the notes, because the earlier process already emitted them.
            run.take_notes();
        }
        Ok(RestoredRun { run, begun: self.begun, turns_before, context_tokens: self.context_tokens })
    }

    fn take(&mut self, line: SessionJournalLine) -> Result<(), ReadError> {
        match line {
            SessionJournalLine::Session(_) => {
                return Err(ReadError::Broken { problem: "the journal has a second header line".into() });
            }
            SessionJournalLine::Resumed { at_ms, claim: _ } => {
                let left = std::mem::take(&mut self.at_work).into_iter();
                self.events.extend(left.map(|(operation, tool)| cut_off(operation, tool)));
                self.worked_before = self.worked();
                self.processes += 1;
                (self.last_ms, self.since_ms) = (at_ms, at_ms);
                if let SessionStatus::Cut { .. } = self.standing {
                    self.standing = SessionStatus::Open;
                }
            }
            SessionJournalLine::Input { at_ms, input } => {
                let input =
                    input.into_input().map_err(|error| ReadError::Broken { problem: error.to_string() })?;
                if waited_for_a_person_or_client(&input) {
                    let waited_ms = at_ms.saturating_sub(self.last_ms);
                    self.since_ms = self.since_ms.saturating_add(waited_ms);
                }
                self.last_ms = at_ms;
                self.take_input(input);
            }
            SessionJournalLine::Begun { at_ms, call, tool, turn, operation } => {
                self.last_ms = at_ms;
                let place = RunPosition { turn, ..RunPosition::first(self.session) };
                let id = numbered(self.processes, operation);
                let operation = Arc::new(CallOperation { id, call: CallId(call.clone()), place });
                let (tool, waited) = (ToolReference::Written(tool), Duration::ZERO);
                self.at_work.push((Arc::clone(&operation), tool.clone()));
                self.events.push(Event::ToolStarted { operation, tool, waited });
                self.begun.push(CallId(call));
            }
            SessionJournalLine::Tool(record) => self.take_tool(&record),
            SessionJournalLine::Model(record) => self.take_model(&record),
            SessionJournalLine::Note { at_ms, turn, note: _, compaction } => {
                self.last_ms = at_ms;
                // A compaction of another version may have a kind that this version does not support; the tree leaves
                // it out.
                if let Some(Ok(compaction)) = compaction.map(StoredCompaction::into_compaction) {
                    let place = RunPosition { turn, ..RunPosition::first(self.session) };
                    let event = Arc::new(RunEvent::Noted(RunNote::Compacted(compaction)));
                    self.events.push(Event::Run { place, event });
                }
            }
            SessionJournalLine::Finished { at_ms, reason, .. } => {
                self.last_ms = at_ms;
                if self.standing == SessionStatus::Open {
                    self.standing = SessionStatus::Finished { reason };
                }
            }
        }
        Ok(())
    }

    /// Applies an input. An abort or a model failure only marks the session as interrupted, so that a resumed run
    /// continues as if the interruption had not happened. Later inputs belong to the shutdown of the run and are
    /// ignored.
    fn take_input(&mut self, input: RunInput) {
        match (&self.standing, &input) {
            (_, RunInput::Requested(text)) => {
                self.requests.push(text.clone());
                self.begun.clear();
                self.bill = RunBill::default();
                (self.worked_before, self.since_ms) = (Duration::ZERO, self.last_ms);
                self.standing = SessionStatus::Open;
            }
            (SessionStatus::Cut { .. }, _) => return,
            (_, RunInput::Failed(error)) => {
                self.standing = SessionStatus::Cut { reason: error.kind.name().into() };
                return;
            }
            (_, RunInput::Aborted(why)) => {
                self.standing = SessionStatus::Cut { reason: why.name().into() };
                return;
            }
            (_, RunInput::Replied(reply)) => {
                self.begun.clear();
                self.allowed.clear();
                self.turns += 1;
                let turn = self.turns;
                self.calls.extend(reply.calls().map(|call| (turn, call.id.clone(), call.name.clone())));
            }
            (_, RunInput::Decided { call, decision: CallDecision::Allow }) => {
                self.allowed.push((self.turns, call.clone()));
            }
            (_, RunInput::Ended(ends)) => {
                self.begun.retain(|call| ends.iter().all(|end: &CallEnd| end.call() != call));
                self.allowed.retain(|(_, call)| ends.iter().all(|end: &CallEnd| end.call() != call));
            }
            (_, RunInput::Stepped(readings)) => self.context_tokens = readings.context_tokens,
            // The size of the compacted conversation is not recorded, so the next process measures it.
            (_, RunInput::Archived(_) | RunInput::Summarized(_)) => self.context_tokens = None,
            (
                _,
                RunInput::ClientReplied(_)
                | RunInput::Decided { .. }
                | RunInput::Appended(_)
                | RunInput::Stopped
                | RunInput::SummaryFailed(_),
            ) => {}
        }
        self.inputs.push(input);
    }

    fn take_tool(&mut self, record: &ToolRecord) {
        self.last_ms = record.timestamp_ms;
        self.total.calls += 1;
        self.bill.calls += 1;
        let ended = numbered(self.processes, record.standing.operation);
        self.at_work.retain(|(operation, _)| operation.id != ended);
        self.events.push(finished(self.session, self.processes, record));
    }

    fn take_model(&mut self, record: &ModelRecord) {
        self.last_ms = record.timestamp_ms;
        let usage = TokenUsage {
            input: record.input_tokens,
            output: record.output_tokens,
            cache_read: record.cache_read_tokens,
            cache_write: record.cache_write_tokens,
            reasoning: record.reasoning_tokens,
        };
        let cost = record.cost_nano_usd.map(|nano_usd| Cost { nano_usd });
        self.total.add_request(Some(usage), cost);
        self.bill.add_request(Some(usage), cost);
        self.events.extend(model_events(self.session, self.processes, record, usage));
    }
}

/// Makes an operation id unique across processes, because each process numbers its operations from one.
fn numbered(process: u64, operation: u64) -> OperationId {
    OperationId((process << 48) | operation)
}

/// Builds the tree. Adds all calls first, in the order of their start, because the journal has them in the order of
/// their end: the calls of a sub-agent end before the call that started it.
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
    let mut begun: Vec<(Arc<CallOperation>, ToolReference)> = events.iter().filter_map(started).collect();
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

fn place(own: SessionId, session: Option<&str>, turn: u32, parent: Option<OperationId>) -> RunPosition {
    let session = session.and_then(|id| uuid::Uuid::parse_str(id).ok());
    RunPosition { session: session.map_or(own, |id| SessionId(id.as_u128())), turn, parent, origin: own }
}

/// Restores the start and end events of a model request from its journal line.
fn model_events(own: SessionId, process: u64, record: &ModelRecord, usage: TokenUsage) -> [Event; 2] {
    let parent = record.parent_operation.map(|operation| numbered(process, operation));
    let place = place(own, record.session.as_deref(), record.turn.unwrap_or(1), parent);
    let id: Arc<str> = record.request_id.as_str().into();
    let (provider, model) = (record.provider.as_str().into(), record.model.as_str().into());
    let attempt = ModelAttempt { provider, model, number: record.attempt };
    let kind = |name: &str| ModelErrorKind::ALL.into_iter().find(|kind| kind.name() == name);
    let account = ModelAccount {
        failure: record.error_kind.as_deref().map(|name| kind(name).unwrap_or(ModelErrorKind::Malformed)),
        latency: Duration::from_millis(record.latency_ms),
        first_event: record.first_event_ms.map(Duration::from_millis),
        usage: (usage != TokenUsage::default()).then_some(usage),
        cost: record.cost_nano_usd.map(|nano_usd| Cost { nano_usd }),
        next: AttemptFollowUp::Nothing,
    };
    let principal = Principal::local();
    [
        Event::ModelStarted { id: Arc::clone(&id), place, attempt: attempt.clone() },
        Event::ModelFinished { id, place, attempt, principal, account },
    ]
}

/// Returns true if the run was parked until this input. The journal has no line for the time when a run parks, so all
/// the time since the previous line is counted as waiting.
fn waited_for_a_person_or_client(input: &RunInput) -> bool {
    match input {
        RunInput::Decided { .. } | RunInput::ClientReplied(_) => true,
        RunInput::Stepped(_)
        | RunInput::Replied(_)
        | RunInput::Failed(_)
        | RunInput::Ended(_)
        | RunInput::Stopped
        | RunInput::Aborted(_)
        | RunInput::Appended(_)
        | RunInput::Requested(_)
        | RunInput::Archived(_)
        | RunInput::Summarized(_)
        | RunInput::SummaryFailed(_) => false,
    }
}

/// Returns the end event of a call that was in progress when its process ended.
fn cut_off(operation: Arc<CallOperation>, tool: ToolReference) -> Event {
    Event::ToolFinished {
        operation,
        tool,
        failure: Some(ToolErrorKind::UnknownOutcome),
        latency: Duration::ZERO,
        account: CallAccount {
            principal: Principal::local(),
            executed: true,
            cached: false,
            untrusted: false,
            bytes_in: 0,
            bytes_out: 0,
            arguments: Digest::of_text(""),
            verdict: None,
            queue: None,
            handle: None,
        },
        content: None,
    }
}

/// Restores the event of a journal line, with the fields that the tree needs.
fn finished(own: SessionId, process: u64, record: &ToolRecord) -> Event {
    let number = |operation: u64| numbered(process, operation);
    let standing = &record.standing;
    let parent = standing.parent_operation.map(number);
    let place = place(own, standing.session.as_deref(), standing.turn, parent);
    let (id, call) = (number(record.standing.operation), CallId(record.call_id.clone()));
    let operation = CallOperation { id, call, place };
    let kind = |name: &str| ToolErrorKind::ALL.into_iter().find(|kind| kind.name() == name);
    Event::ToolFinished {
        operation: Arc::new(operation),
        tool: ToolReference::Written(record.tool.clone()),
        failure: record.error_kind.as_deref().map(|name| kind(name).unwrap_or(ToolErrorKind::Failed)),
        latency: Duration::from_millis(record.latency_ms),
        account: CallAccount {
            principal: Principal::local(),
            executed: record.executed,
            cached: record.cached,
            untrusted: record.untrusted,
            bytes_in: usize::try_from(record.bytes_in).unwrap_or(usize::MAX),
            bytes_out: usize::try_from(record.bytes_out).unwrap_or(usize::MAX),
            arguments: Digest::from_hex(&record.arguments_digest).unwrap_or_else(|| Digest::of_text("")),
            verdict: None,
            queue: None,
            handle: None,
        },
        content: None,
    }
}

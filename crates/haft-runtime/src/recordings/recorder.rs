//! Records a run and its sub-agents, in addition to the model traffic: their journals, and the other lines that a
//! replay needs.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::event::{Event, EventSink, EventSinks};
use haft_core::position::{OperationId, RunPosition};
use haft_core::result::ToolResult;
use haft_core::run::DriverReadings;
use haft_core::run::input::ArchiveOutcome;
use haft_core::tool::ToolCall;
use haft_engine::{CallOptions, RunObserver, ToolListChange};
use haft_models::cassette::Tape;
use haft_store::sessions::line::{SessionJournalLine, SessionStart};
use serde_json::Value;

use super::call_event::CallEventLine;
use super::journal::{JournalSinks, recorded};
use super::line::{
    CallAttemptLine, CallResultLine, JournalLine, RecordedCallId, RecordedEndLine, RecordedSourcesLine,
    RecordedStart, RecordedToolsLine, SessionLine, TYPE_ATTEMPT, TYPE_END, TYPE_EVENT, TYPE_RESULT,
    TYPE_SOURCES, TYPE_TOOLS, micros,
};
use super::order::OrderWriter;

/// Records a run and all its sub-agents.
#[derive(Debug)]
pub struct RunRecorder {
    tape: Arc<Tape>,
    seen: Mutex<RecorderState>,
}

/// The state from which the recorder decides how to record the next event.
#[derive(Debug, Default)]
struct RecorderState {
    order: OrderWriter,
    /// The sessions of recorded runs. Their model requests are recorded as model traffic, so the recorder does not
    /// write them again.
    runs: HashSet<String>,
    at_work: HashMap<OperationId, RecordedCallId>,
    /// The number of the last recorded event.
    seq: u64,
}

impl RecorderState {
    /// Records the position of an event. For call events and model requests for calls, also records the event itself.
    fn see(&mut self, event: &Event, tape: &Tape) {
        self.order.see(event, tape);
        self.seq += 1;
        if let Some(operation) = event.operation() {
            let which = RecordedCallId::of(operation.place, &operation.call);
            if let Event::ToolFinished { .. } = event {
                self.at_work.remove(&operation.id);
            } else {
                self.at_work.insert(operation.id, which);
            }
            if let Some(line) = CallEventLine::of(self.seq, event) {
                tape.write(TYPE_EVENT, &line);
            }
        }
        if let Some(aside) = self.asked_for(event).and_then(|which| CallAttemptLine::of(which, event)) {
            tape.write(TYPE_ATTEMPT, &aside);
        }
    }

    /// Returns the call for which a model request is made, such as sampling for an MCP server; `None` for a model
    /// request of a recorded run.
    fn asked_for(&self, event: &Event) -> Option<RecordedCallId> {
        match event {
            Event::ModelStarted { place, .. } | Event::ModelFinished { place, .. } => {
                let is_run = self.runs.contains(&place.session.to_string());
                place.parent.filter(|_| !is_run).and_then(|parent| self.at_work.get(&parent).cloned())
            }
            Event::ToolStarted { .. }
            | Event::ToolProgress { .. }
            | Event::ToolFinished { .. }
            | Event::Run { .. } => None,
        }
    }
}

impl RunRecorder {
    /// Creates a recorder that writes to this tape, which also records the model traffic.
    pub fn new(tape: Arc<Tape>) -> Self {
        Self { tape, seen: Mutex::default() }
    }

    /// Records the agents and skills that the spec of the root run refers to.
    pub(crate) fn sources(&self, texts: &[u8]) {
        let sources = Some(String::from_utf8_lossy(texts).into_owned());
        self.tape.write(TYPE_SOURCES, &RecordedSourcesLine { sources, order: Value::Null });
    }

    /// Records the start of a run, and returns the journal that records the rest of it.
    pub(crate) fn begin(
        &self,
        place: RunPosition,
        opened: SessionStart,
        start: RecordedStart,
        stored: JournalSinks,
    ) -> JournalSinks {
        let session = place.session.to_string();
        let line = SessionLine { line: SessionJournalLine::Session(Box::new(opened)), start };
        self.tape.append(&JournalLine { line: &line, journal: &session });
        self.seen().runs.insert(session);
        recorded(place.session, Arc::clone(&self.tape), stored)
    }

    /// Records the end of the run. `stopped_by` is the exit code of the program, if a signal or a closed pipe ended the
    /// run.
    pub fn end(&self, took: Duration, stopped_by: Option<u8>) {
        self.seen().order.end(&self.tape);
        self.tape.write(TYPE_END, &RecordedEndLine { took_us: micros(took), stopped_by });
    }

    /// Returns the reason why the recording is incomplete, if it is.
    pub fn problem(&self) -> Option<String> {
        self.tape.problem()
    }

    fn seen(&self) -> MutexGuard<'_, RecorderState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event sink that records events and forwards them, so that watchers see the recorded order.
#[derive(Debug)]
pub struct RecordingSink {
    recorder: Arc<RunRecorder>,
    watchers: EventSinks,
}

impl RecordingSink {
    /// Creates a sink that records each event with `recorder` and forwards it to `watchers`.
    pub fn new(recorder: Arc<RunRecorder>, watchers: EventSinks) -> Self {
        Self { recorder, watchers }
    }
}

impl EventSink for RecordingSink {
    /// Records and forwards under one lock, because tools report progress from their own threads.
    fn emit(&self, event: Event) {
        let mut seen = self.recorder.seen();
        seen.see(&event, &self.recorder.tape);
        self.watchers.emit(event);
    }
}

impl RunObserver for RunRecorder {
    fn tools(&self, place: RunPosition, live: Option<ToolListChange>) -> Option<ToolListChange> {
        if let Some(change) = &live {
            let recorded = RecordedToolsLine::of(place.session.to_string(), change);
            self.tape.write(TYPE_TOOLS, &recorded);
        }
        live
    }

    /// Records nothing, because the journal already contains the time and budget of each step.
    fn readings(&self, _: RunPosition, live: DriverReadings) -> DriverReadings {
        live
    }

    /// Replaces no call, because a recorded run calls the real tools.
    fn instead(&self, _: &ToolCall, _: &CallOptions) -> Option<BoxFuture<'_, ToolResult>> {
        None
    }

    /// Replaces no archive step, because the journal contains its outcome.
    fn archived(&self, _: RunPosition) -> Option<ArchiveOutcome> {
        None
    }

    fn ended(&self, place: RunPosition, result: &ToolResult) {
        self.tape.write(TYPE_RESULT, &CallResultLine::of(place, result));
    }
}

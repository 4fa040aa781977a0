//! Writes down what happens in a run beside its models.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::event::{Event, EventSink};
use haft_core::place::{Place, SessionId};
use haft_core::result::ToolResult;
use haft_core::run::Readings;
use haft_core::run::event::RunEvent;
use haft_core::run::snapshot::StoredTold;
use haft_core::run::told::Told;
use haft_core::tool::ToolCall;
use haft_engine::{CallOptions, Witness};
use haft_models::cassette::Tape;

use super::line::{
    Beginning, End, Given, Happened, KIND_END, KIND_RESULT, KIND_RUN, KIND_STEP, KIND_TOOL, Stepped, What,
    Which, micros,
};

/// Records the run of one session; what agents below it do is a part of the calls that asked them.
#[derive(Debug)]
pub struct RunRecorder {
    tape: Arc<Tape>,
    session: SessionId,
}

impl RunRecorder {
    pub fn new(tape: Arc<Tape>, session: SessionId) -> Self {
        Self { tape, session }
    }

    pub fn begin(&self, beginning: &Beginning) {
        self.tape.write(KIND_RUN, beginning);
    }

    pub fn end(&self, took: Duration) {
        self.tape.write(KIND_END, &End { took_us: micros(took) });
    }

    /// Why the recording is not whole, if it is not.
    pub fn problem(&self) -> Option<String> {
        self.tape.problem()
    }

    fn happened(&self, place: Place, call: &str, what: What) {
        if place.session == self.session {
            let which = Which { turn: place.turn, call: call.to_owned() };
            self.tape.write(KIND_TOOL, &Happened { which, what });
        }
    }
}

impl EventSink for RunRecorder {
    fn emit(&self, event: Event) {
        match &event {
            Event::Run { place, event } => {
                if let RunEvent::Answered(answered) = &**event {
                    self.happened(*place, &answered.call.0, What::Answered);
                }
            }
            Event::ToolStarted { operation, .. }
            | Event::ToolProgress { operation, .. }
            | Event::ToolFinished { operation, .. } => {
                if let Some(what) = What::of(&event) {
                    self.happened(operation.place, &operation.call.0, what);
                }
            }
            Event::ModelStarted { .. } | Event::ModelFinished { .. } => {}
        }
    }
}

impl Witness for RunRecorder {
    fn readings(&self, live: Readings) -> Readings {
        self.tape.write(KIND_STEP, &Stepped { told: StoredTold::of(&Told::Stepped(live)) });
        live
    }

    /// Calls are made as ever.
    fn instead(&self, _: &ToolCall, _: &CallOptions) -> Option<BoxFuture<'_, ToolResult>> {
        None
    }

    fn ended(&self, place: Place, result: &ToolResult) {
        self.tape.write(KIND_RESULT, &Given::of(place.turn, result));
    }
}

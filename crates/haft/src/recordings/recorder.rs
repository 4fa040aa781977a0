//! Writes down what happens in a run, and in those that work for it, beside their models.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::event::{Event, EventSink, Watchers};
use haft_core::model_request::ModelTool;
use haft_core::place::Place;
use haft_core::result::ToolResult;
use haft_core::run::snapshot::StoredTold;
use haft_core::run::told::Told;
use haft_core::run::{Abort, Readings};
use haft_core::stored::StoredTool;
use haft_core::tool::ToolCall;
use haft_engine::{CallOptions, Witness};
use haft_models::cassette::Tape;
use serde_json::Value;

use super::line::{
    Beginning, End, Given, Happened, KIND_ABORT, KIND_END, KIND_RESULT, KIND_RUN, KIND_STEP, KIND_TOOL,
    KIND_TOOLS, KIND_TYPED, Offered, Stepped, Typed, What, Which, micros,
};
use super::order::OrderWriter;

/// Records a run and all that work for it.
#[derive(Debug)]
pub struct RunRecorder {
    tape: Arc<Tape>,
    order: Mutex<OrderWriter>,
}

impl RunRecorder {
    /// `order` is what whoever begins the run needs to put it together again.
    pub fn new(tape: Arc<Tape>, order: Value) -> Self {
        tape.write(KIND_TYPED, &Typed { order });
        Self { tape, order: Mutex::default() }
    }

    /// A run begins.
    pub fn begin(&self, beginning: &Beginning) {
        self.tape.write(KIND_RUN, beginning);
    }

    pub fn end(&self, took: Duration) {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).end(&self.tape);
        self.tape.write(KIND_END, &End { took_us: micros(took) });
    }

    /// Why the recording is not whole, if it is not.
    pub fn problem(&self) -> Option<String> {
        self.tape.problem()
    }
}

fn step(place: Place, told: &Told) -> Stepped {
    Stepped { session: place.session.to_string(), told: StoredTold::of(told) }
}

/// Those who watch a run that is recorded: they see everything in the order that is written down.
#[derive(Debug)]
pub struct Recorded {
    recorder: Arc<RunRecorder>,
    watchers: Watchers,
}

impl Recorded {
    pub fn new(recorder: Arc<RunRecorder>, watchers: Watchers) -> Self {
        Self { recorder, watchers }
    }
}

impl EventSink for Recorded {
    /// Under the lock: tools tell of their progress from threads of their own.
    fn emit(&self, event: Event) {
        let RunRecorder { tape, order } = &*self.recorder;
        let mut order = order.lock().unwrap_or_else(PoisonError::into_inner);
        order.see(&event, tape);
        if let (Some(operation), Some(what)) = (event.operation(), What::of(&event)) {
            tape.write(KIND_TOOL, &Happened { which: Which::of(operation.place, &operation.call), what });
        }
        self.watchers.emit(event);
    }
}

impl Witness for RunRecorder {
    fn tools(&self, place: Place, live: Option<Arc<[ModelTool]>>) -> Option<Arc<[ModelTool]>> {
        if let Some(tools) = &live {
            let tools = tools.iter().map(StoredTool::of).collect();
            self.tape.write(KIND_TOOLS, &Offered { session: place.session.to_string(), tools });
        }
        live
    }

    fn readings(&self, place: Place, live: Readings) -> Readings {
        self.tape.write(KIND_STEP, &step(place, &Told::Stepped(live)));
        live
    }

    /// Calls are made as ever.
    fn instead(&self, _: &ToolCall, _: &CallOptions) -> Option<BoxFuture<'_, ToolResult>> {
        None
    }

    fn ended(&self, place: Place, result: &ToolResult) {
        self.tape.write(KIND_RESULT, &Given::of(place, result));
    }

    fn aborted(&self, place: Place, why: &Abort) {
        self.tape.write(KIND_ABORT, &step(place, &Told::Aborted(why.clone())));
    }
}

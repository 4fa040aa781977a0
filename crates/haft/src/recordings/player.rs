//! Gives back what a recording holds, in the order in which it happened.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::event::{EventSink, NoEvents};
use haft_core::place::{Operation, OperationId, Place};
use haft_core::result::{Receipt, ToolError, ToolErrorKind, ToolResult};
use haft_core::run::Readings;
use haft_core::run::told::Told;
use haft_core::tool::{CallId, ToolCall};
use haft_engine::{CallOptions, Witness};
use haft_models::cassette::{Problem, Recording, RecordingError};
use tokio::sync::Notify;

use super::line::{
    Beginning, End, Given, Happened, KIND_END, KIND_RESULT, KIND_RUN, KIND_STEP, KIND_TOOL, Stepped, What,
    Which,
};

/// A run as it was recorded.
#[derive(Debug)]
pub struct RunPlayer {
    beginning: Beginning,
    took: Duration,
    left: Mutex<Left>,
    /// Somebody has told something, so it may be another's turn.
    moved: Notify,
}

#[derive(Debug, Default)]
struct Left {
    steps: VecDeque<Readings>,
    happened: VecDeque<Happened>,
    given: HashMap<Which, Given>,
    /// How the run is not the recorded one, where that was first seen.
    difference: Option<String>,
}

impl RunPlayer {
    pub fn of(recording: &Recording) -> Result<Self, RecordingError> {
        let problem = |problem| RecordingError { path: recording.path().to_owned(), problem };
        let no_run = || problem(Problem::NoRun);
        let first = recording.of_kind(KIND_RUN).next().ok_or_else(no_run)?;
        let end = recording.of_kind(KIND_END).next().map(|line| recording.parse::<End>(line)).transpose()?;
        let mut left = Left::default();
        for line in recording.of_kind(KIND_STEP) {
            let stepped: Stepped = recording.parse(line)?;
            if let Ok(Told::Stepped(readings)) = stepped.told.into_told() {
                left.steps.push_back(readings);
            }
        }
        for line in recording.of_kind(KIND_TOOL) {
            left.happened.push_back(recording.parse(line)?);
        }
        for line in recording.of_kind(KIND_RESULT) {
            let given: Given = recording.parse(line)?;
            left.given.insert(given.which.clone(), given);
        }
        Ok(Self {
            beginning: recording.parse(first)?,
            took: Duration::from_micros(end.map_or(0, |end| end.took_us)),
            left: Mutex::new(left),
            moved: Notify::new(),
        })
    }

    pub fn beginning(&self) -> &Beginning {
        &self.beginning
    }

    pub fn took(&self) -> Duration {
        self.took
    }

    /// How the run was not the recorded one; nothing when it was.
    pub fn difference(&self) -> Option<String> {
        self.left().difference.clone()
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells what the call did whenever that is next, until it is answered.
    async fn play(&self, call: ToolCall, options: CallOptions) -> ToolResult {
        let which = Which { turn: options.place.turn, call: call.id.0.clone() };
        let given = self.left().given.remove(&which);
        let known = given.ok_or_else(|| format!("no call `{}` of turn {}", which.call, which.turn));
        let given = match known.and_then(|given| given.fits(&call).map(|()| given)) {
            Ok(given) => given,
            Err(difference) => {
                // Nobody waits for what it would have done.
                self.left().happened.retain(|next| next.which != which);
                self.moved.notify_waiters();
                return self.differs(call, &difference);
            }
        };
        // The ids of calls are shortened to what is worth repeating.
        let shortened = CallId(which.call.chars().take(64).collect());
        let operation = Arc::new(Operation { id: OperationId(0), call: shortened, place: options.place });
        let events = options.scope.as_ref().map(|scope| Arc::clone(&scope.meter) as Arc<dyn EventSink>);
        let events = events.unwrap_or_else(|| Arc::new(NoEvents));
        loop {
            let moved = self.moved.notified();
            match self.next_of(&operation) {
                Some(What::Answered) => break,
                Some(what) => what.event(&operation).into_iter().for_each(|event| events.emit(event)),
                None if self.is_over(options.place.turn) => break,
                None => moved.await,
            }
        }
        given.into_result(call.clone()).unwrap_or_else(|error| self.differs(call, &error.to_string()))
    }

    /// Whether nothing more happened in this turn.
    fn is_over(&self, turn: u32) -> bool {
        self.left().happened.front().is_none_or(|next| next.which.turn > turn)
    }

    /// What happened next, if it happened to this call.
    fn next_of(&self, operation: &Operation) -> Option<What> {
        let mut left = self.left();
        let next = left.happened.front()?;
        let id: String = next.which.call.chars().take(64).collect();
        if next.which.turn != operation.place.turn || id != operation.call.0 {
            return None;
        }
        let next = left.happened.pop_front();
        self.moved.notify_waiters();
        next.map(|next| next.what)
    }

    fn differs(&self, call: ToolCall, difference: &str) -> ToolResult {
        let message = format!("the run is not the recorded one: {difference}");
        self.left().difference.get_or_insert(message.clone());
        let error = ToolError::new(ToolErrorKind::Unavailable, message);
        ToolResult { call, outcome: Err(error), receipt: Receipt::default() }
    }
}

impl Witness for RunPlayer {
    fn readings(&self, live: Readings) -> Readings {
        self.left().steps.pop_front().unwrap_or(live)
    }

    fn instead(&self, call: &ToolCall, options: &CallOptions) -> Option<BoxFuture<'_, ToolResult>> {
        Some(Box::pin(self.play(call.clone(), options.clone())))
    }

    fn ended(&self, _: Place, _: &ToolResult) {}
}

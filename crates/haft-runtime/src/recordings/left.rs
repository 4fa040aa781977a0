//! The part of a recording that the player has not consumed yet.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haft_core::model_request::ModelTool;
use haft_core::place::{Place, SessionId};
use haft_core::run::input::RunInput;
use haft_core::run::{Abort, Readings};
use haft_core::stored::StoredTool;
use haft_core::tool::ToolCall;
use haft_models::cassette::{Problem, Recording, RecordingError};
use serde_json::Value;

use super::line::{
    Aside, Beginning, End, Given, Happened, KIND_ABORT, KIND_ASIDE, KIND_END, KIND_RESULT, KIND_RUN,
    KIND_STEP, KIND_TOOL, KIND_TOOLS, KIND_TYPED, Offered, Stepped, Typed, What, Which,
};

/// Returns the start of the first run in a recording, which is the root run.
pub fn beginning(recording: &Recording) -> Result<Beginning, RecordingError> {
    let no_run = || RecordingError { path: recording.path().to_owned(), problem: Problem::NoRun };
    let first = recording.of_kind(KIND_RUN).next().ok_or_else(no_run)?;
    recording.parse(first)
}

/// Returns the stored order of the run (see `RunRecorder::new`); null when the recording has none.
pub fn order(recording: &Recording) -> Result<Value, RecordingError> {
    let typed =
        recording.of_kind(KIND_TYPED).next().map(|line| recording.parse::<Typed>(line)).transpose()?;
    Ok(typed.map(|typed| typed.order).unwrap_or_default())
}

/// All runs of a recording, and the recorded steps and calls that are still to be played.
#[derive(Debug)]
pub(super) struct Left {
    first: Beginning,
    runs: HashMap<Option<Which>, Vec<Beginning>>,
    aborts: HashMap<String, Abort>,
    end: Option<End>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    steps: HashMap<String, VecDeque<Step>>,
    made: HashMap<Which, Made>,
    difference: Option<String>,
}

#[derive(Debug)]
struct Step {
    tools: Option<Arc<[ModelTool]>>,
    readings: Readings,
}

/// The recorded events and result of a call. The result is missing when the run did not wait for it.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) happened: Vec<What>,
    /// The model attempts that were made on behalf of the call.
    pub(super) asides: Vec<Aside>,
    pub(super) given: Option<Given>,
}

impl Left {
    pub(super) fn of(recording: &Recording) -> Result<Self, RecordingError> {
        let end = recording.of_kind(KIND_END).next().map(|line| recording.parse::<End>(line)).transpose()?;
        let mut left = Self {
            first: beginning(recording)?,
            runs: HashMap::new(),
            aborts: HashMap::new(),
            end,
            open: Mutex::default(),
        };
        for line in recording.of_kind(KIND_RUN) {
            let run: Beginning = recording.parse(line)?;
            left.runs.entry(run.works_for.clone()).or_default().push(run);
        }
        for line in recording.of_kind(KIND_ABORT) {
            let stepped: Stepped = recording.parse(line)?;
            if let Ok(RunInput::Aborted(why)) = stepped.told.into_input() {
                left.aborts.insert(stepped.session, why);
            }
        }
        left.open = Mutex::new(Open { steps: steps(recording)?, made: made(recording)?, difference: None });
        Ok(left)
    }

    pub(super) fn first(&self) -> &Beginning {
        &self.first
    }

    /// Returns the runs for a call in the order in which they began.
    pub(super) fn runs_for(&self, works_for: Option<&Which>) -> &[Beginning] {
        self.runs.get(&works_for.cloned()).map_or(&[], Vec::as_slice)
    }

    pub(super) fn took(&self) -> Duration {
        self.end.as_ref().map(|end| Duration::from_micros(end.took_us)).unwrap_or_default()
    }

    /// Returns the exit code of the program, if a signal or a closed pipe ended the run.
    pub(super) fn stopped_by(&self) -> Option<u8> {
        self.end.as_ref()?.stopped_by
    }

    /// Returns the reason a run was aborted from outside. A recording without an end line belongs to a process that was
    /// interrupted.
    pub(super) fn aborted(&self, session: &str) -> Option<Abort> {
        let left = self.end.is_none() && session == self.first.session;
        self.aborts.get(session).cloned().or_else(|| left.then_some(Abort::Interrupted))
    }

    pub(super) fn tools(&self, place: Place) -> Option<Arc<[ModelTool]>> {
        self.open().steps.get_mut(&place.session.to_string())?.front_mut()?.tools.take()
    }

    pub(super) fn readings(&self, place: Place) -> Option<Readings> {
        let step = self.open().steps.get_mut(&place.session.to_string())?.pop_front();
        step.map(|step| step.readings)
    }

    /// Takes the recorded call, or returns an error when the recorded run did not make the same one.
    pub(super) fn take(&self, which: &Which, call: &ToolCall) -> Result<Made, String> {
        let made = self.open().made.remove(which).ok_or_else(|| format!("no {which}"))?;
        match &made.given {
            Some(given) => given.fits(call)?,
            None if self.goes_on(which.session()) => return Err(format!("no end of {which}")),
            None => {}
        }
        Ok(made)
    }

    /// Returns the reply timeout of a model whose reply was not awaited to its end; `None` when the run itself was
    /// aborted.
    pub(super) fn reply_timeout(&self, session: SessionId) -> Option<Duration> {
        let session = session.to_string();
        let run = self.runs.values().flatten().find(|run| run.session == session)?;
        self.goes_on(&session).then(|| Duration::from_millis(run.reply_timeout_ms))
    }

    /// Tests if the run took another step. The last recorded step of an aborted run only marks the time of the abort.
    fn goes_on(&self, session: &str) -> bool {
        let steps = self.open().steps.get(session).map_or(0, VecDeque::len);
        steps > usize::from(self.aborts.contains_key(session))
    }

    pub(super) fn difference(&self) -> Option<String> {
        self.open().difference.clone()
    }

    pub(super) fn differs(&self, difference: &str) -> String {
        let message = format!("the run is not the recorded one: {difference}");
        self.open().difference.get_or_insert_with(|| message.clone());
        message
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the steps of all runs. A line with tools precedes the first step that shows them.
fn steps(recording: &Recording) -> Result<HashMap<String, VecDeque<Step>>, RecordingError> {
    let mut offered: HashMap<String, Arc<[ModelTool]>> = HashMap::new();
    let mut steps: HashMap<String, VecDeque<Step>> = HashMap::new();
    for line in recording.lines() {
        if line.kind == KIND_TOOLS {
            let Offered { session, tools } = recording.parse(line)?;
            offered.insert(session, tools.into_iter().map(StoredTool::into_tool).collect());
        } else if line.kind == KIND_STEP {
            let Stepped { session, told } = recording.parse(line)?;
            if let Ok(RunInput::Stepped(readings)) = told.into_input() {
                let step = Step { tools: offered.remove(&session), readings };
                steps.entry(session).or_default().push_back(step);
            }
        }
    }
    Ok(steps)
}

fn made(recording: &Recording) -> Result<HashMap<Which, Made>, RecordingError> {
    let mut made: HashMap<Which, Made> = HashMap::new();
    for line in recording.of_kind(KIND_TOOL) {
        let Happened { which, what } = recording.parse(line)?;
        made.entry(which).or_default().happened.push(what);
    }
    for line in recording.of_kind(KIND_ASIDE) {
        let aside: Aside = recording.parse(line)?;
        made.entry(aside.which.clone()).or_default().asides.push(aside);
    }
    for line in recording.of_kind(KIND_RESULT) {
        let given: Given = recording.parse(line)?;
        let which = given.which.clone();
        made.entry(which).or_default().given = Some(given);
    }
    Ok(made)
}

//! The part of a recording that the player has not consumed yet.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haft_core::position::{RunPosition, SessionId};
use haft_core::run::input::{ArchiveOutcome, RunInput};
use haft_core::run::{AbortReason, DriverReadings};
use haft_core::tool::ToolCall;
use haft_engine::ToolListChange;
use haft_models::cassette::{Recording, RecordingError, RecordingProblem};
use serde_json::{Value, json};

use super::call_event::{AnyCallEventLine, RecordedCallEvent};
use super::line::{
    CallAttemptLine, CallResultLine, RecordedCallId, RecordedEndLine, RecordedInputLine, RecordedSourcesLine,
    RecordedToolsLine, RunStartLine, TYPE_ATTEMPT, TYPE_END, TYPE_EVENT, TYPE_INPUT, TYPE_RESULT,
    TYPE_SESSION, TYPE_SOURCES, TYPE_TOOLS,
};

/// Returns the start of the first run in a recording, which is the root run.
pub fn beginning(recording: &Recording) -> Result<RunStartLine, RecordingError> {
    let no_run = || RecordingError { path: recording.path().to_owned(), problem: RecordingProblem::NoRun };
    let first = recording.of_type(TYPE_SESSION).next().ok_or_else(no_run)?;
    recording.parse(first)
}

/// Returns the stored spec of the root run and the agents and skills that it refers to, as `spec` and `sources`. A
/// recording of haft version 0.1 has a command line instead.
pub fn order(recording: &Recording) -> Result<Value, RecordingError> {
    let line =
        recording.of_type(TYPE_SOURCES).next().map(|line| recording.parse::<RecordedSourcesLine>(line));
    let RecordedSourcesLine { sources, order } = line.transpose()?.unwrap_or_default();
    Ok(match sources {
        Some(sources) => json!({ "spec": beginning(recording)?.spec, "sources": sources }),
        None => order,
    })
}

/// All runs of a recording, and the recorded steps and calls that are still to be played.
#[derive(Debug)]
pub(super) struct RemainingRecording {
    first: RunStartLine,
    runs: HashMap<Option<RecordedCallId>, Vec<RunStartLine>>,
    aborts: HashMap<String, AbortReason>,
    end: Option<RecordedEndLine>,
    open: Mutex<ReplayState>,
}

#[derive(Debug, Default)]
struct ReplayState {
    steps: HashMap<String, VecDeque<RecordedStep>>,
    archives: HashMap<String, VecDeque<ArchiveOutcome>>,
    outside: HashMap<String, VecDeque<RunInput>>,
    /// The recorded calls. A call that waited for an approval was made twice: before the wait, and after the decision.
    made: HashMap<RecordedCallId, VecDeque<RecordedCall>>,
    difference: Option<String>,
}

#[derive(Debug)]
struct RecordedStep {
    tools: Option<ToolListChange>,
    readings: DriverReadings,
}

/// The recorded events and result of a call. The result is missing if the run did not wait for it.
#[derive(Debug, Default)]
pub(super) struct RecordedCall {
    pub(super) happened: Vec<RecordedCallEvent>,
    /// The model requests that were made for the call.
    pub(super) asides: Vec<CallAttemptLine>,
    pub(super) recorded_result: Option<CallResultLine>,
}

impl RemainingRecording {
    pub(super) fn of(recording: &Recording) -> Result<Self, RecordingError> {
        let first = beginning(recording)?;
        let mut runs: HashMap<Option<RecordedCallId>, Vec<RunStartLine>> = HashMap::new();
        for line in recording.of_type(TYPE_SESSION) {
            let run: RunStartLine = recording.parse(line)?;
            runs.entry(run.start.works_for.clone()).or_default().push(run);
        }
        let end = recording
            .of_type(TYPE_END)
            .next()
            .map(|line| recording.parse::<RecordedEndLine>(line))
            .transpose()?;
        let RecordedInputs { steps, archives, outside, aborts } = inputs(recording)?;
        let made = made(recording)?;
        let open = Mutex::new(ReplayState { steps, archives, outside, made, difference: None });
        Ok(Self { first, runs, aborts, end, open })
    }

    pub(super) fn first(&self) -> &RunStartLine {
        &self.first
    }

    /// Returns the runs that worked on a call, in the order in which they began. `None` stands for the chain of the
    /// root run.
    pub(super) fn runs_for(&self, works_for: Option<&RecordedCallId>) -> &[RunStartLine] {
        self.runs.get(&works_for.cloned()).map_or(&[], Vec::as_slice)
    }

    pub(super) fn took(&self) -> Duration {
        self.end.as_ref().map(|end| Duration::from_micros(end.took_us)).unwrap_or_default()
    }

    /// Returns the exit code of the program, if a signal or a closed pipe ended the run.
    pub(super) fn stopped_by(&self) -> Option<u8> {
        self.end.as_ref()?.stopped_by
    }

    /// Returns the reason why a run was aborted from outside. A recording without an end line means that its process
    /// was interrupted.
    pub(super) fn aborted(&self, session: &str) -> Option<AbortReason> {
        let left = self.end.is_none() && session == self.first.session;
        self.aborts.get(session).cloned().or_else(|| left.then_some(AbortReason::Interrupted))
    }

    pub(super) fn tools(&self, place: RunPosition) -> Option<ToolListChange> {
        self.open().steps.get_mut(&place.session.to_string())?.front_mut()?.tools.take()
    }

    pub(super) fn readings(&self, place: RunPosition) -> Option<DriverReadings> {
        let step = self.open().steps.get_mut(&place.session.to_string())?.pop_front();
        step.map(|step| step.readings)
    }

    /// Takes the outcome of the next archive step of a run.
    pub(super) fn archived(&self, place: RunPosition) -> Option<ArchiveOutcome> {
        self.open().archives.get_mut(&place.session.to_string())?.pop_front()
    }

    /// Returns the next decision of a user, or the next outputs of the caller's functions.
    pub(super) fn outside_input(&self, session: &str) -> Option<RunInput> {
        self.open().outside.get_mut(session)?.pop_front()
    }

    /// Takes the recorded call. Returns an error if the recorded run did not make the same call.
    pub(super) fn take(&self, which: &RecordedCallId, call: &ToolCall) -> Result<RecordedCall, String> {
        let made = self.open().made.get_mut(which).and_then(VecDeque::pop_front);
        let made = made.ok_or_else(|| format!("the recording has no {which}"))?;
        match &made.recorded_result {
            Some(result) => result.fits(call)?,
            None if self.has_more_steps(which.session()) => {
                return Err(format!("the recording has no result of {which}"));
            }
            None => {}
        }
        Ok(made)
    }

    /// Returns the timeout that ended the run's wait for a model reply; `None` if the run itself was aborted during the
    /// wait.
    pub(super) fn reply_timeout(&self, session: SessionId) -> Option<Duration> {
        let session = session.to_string();
        let run = self.runs.values().flatten().find(|run| run.session == session)?;
        self.has_more_steps(&session).then(|| Duration::from_millis(run.start.reply_timeout_ms))
    }

    /// Returns true if the recorded run took another step. For an aborted run, the last recorded step does not count,
    /// because it only marks the time of the abort.
    fn has_more_steps(&self, session: &str) -> bool {
        let steps = self.open().steps.get(session).map_or(0, VecDeque::len);
        steps > usize::from(self.aborts.contains_key(session))
    }

    pub(super) fn difference(&self) -> Option<String> {
        self.open().difference.clone()
    }

    pub(super) fn differs(&self, difference: &str) -> String {
        let message = format!("the run differs from the recording: {difference}");
        self.open().difference.get_or_insert_with(|| message.clone());
        message
    }

    fn open(&self) -> MutexGuard<'_, ReplayState> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The recorded inputs of all runs that the driver cannot compute again, such as decisions of a user.
#[derive(Debug, Default)]
struct RecordedInputs {
    steps: HashMap<String, VecDeque<RecordedStep>>,
    archives: HashMap<String, VecDeque<ArchiveOutcome>>,
    outside: HashMap<String, VecDeque<RunInput>>,
    aborts: HashMap<String, AbortReason>,
}

/// Reads the inputs of all runs. A line with tools comes before the first step in which the model sees these tools.
fn inputs(recording: &Recording) -> Result<RecordedInputs, RecordingError> {
    let mut offered: HashMap<String, ToolListChange> = HashMap::new();
    let mut inputs = RecordedInputs::default();
    for line in recording.lines() {
        if line.kind == TYPE_TOOLS {
            let line: RecordedToolsLine = recording.parse(line)?;
            offered.insert(line.session.clone(), line.into_change());
        } else if line.kind == TYPE_INPUT {
            let RecordedInputLine { session, told } = recording.parse(line)?;
            let unreadable = |error| RecordingError::line(recording.path(), line.number, error);
            match told.into_input().map_err(unreadable)? {
                RunInput::Stepped(readings) => {
                    let step = RecordedStep { tools: offered.remove(&session), readings };
                    inputs.steps.entry(session).or_default().push_back(step);
                }
                RunInput::Aborted(why) => {
                    inputs.aborts.insert(session, why);
                }
                RunInput::Archived(outcome) => {
                    inputs.archives.entry(session).or_default().push_back(outcome);
                }
                input @ (RunInput::ClientReplied(_) | RunInput::Decided { .. }) => {
                    inputs.outside.entry(session).or_default().push_back(input);
                }
                RunInput::Replied(_)
                | RunInput::Summarized(_)
                | RunInput::SummaryFailed(_)
                | RunInput::Failed(_)
                | RunInput::Ended(_)
                | RunInput::Stopped
                | RunInput::Appended(_)
                | RunInput::Requested(_) => {}
            }
        }
    }
    Ok(inputs)
}

/// Reads the calls. The lines of a call end with its result; later lines belong to the same call made again.
fn made(recording: &Recording) -> Result<HashMap<RecordedCallId, VecDeque<RecordedCall>>, RecordingError> {
    let mut made: HashMap<RecordedCallId, VecDeque<RecordedCall>> = HashMap::new();
    for line in recording.lines() {
        match line.kind.as_str() {
            TYPE_EVENT => {
                let event: AnyCallEventLine = recording.parse(line)?;
                let unreadable = |error| RecordingError::line(recording.path(), line.number, error);
                let (which, what) = event.into_event().map_err(unreadable)?;
                open_call(&mut made, which).happened.push(what);
            }
            TYPE_ATTEMPT => {
                let aside: CallAttemptLine = recording.parse(line)?;
                open_call(&mut made, aside.which.clone()).asides.push(aside);
            }
            TYPE_RESULT => {
                let result: CallResultLine = recording.parse(line)?;
                let call = open_call(&mut made, result.which.clone());
                call.recorded_result = Some(result);
            }
            _ => {}
        }
    }
    Ok(made)
}

/// Returns the recorded call that has no result yet.
fn open_call(
    made: &mut HashMap<RecordedCallId, VecDeque<RecordedCall>>,
    which: RecordedCallId,
) -> &mut RecordedCall {
    let calls = made.entry(which).or_default();
    if calls.back().is_none_or(|call| call.recorded_result.is_some()) {
        calls.push_back(RecordedCall::default());
    }
    let last = calls.len() - 1;
    &mut calls[last]
}

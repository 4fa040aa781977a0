//! Shows the progress of a run on standard error: one line per call, the calls in progress, and the cost.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use haft_core::duration_text::measured;
use haft_core::event::{CallProgress, Event, EventSink};
use haft_core::event_log::note_text;
use haft_core::model_event::{ModelEvent, PartDelta, PartStart};
use haft_core::model_provider::{ModelAccount, ModelAttempt};
use haft_core::model_reply::ReplyNote;
use haft_core::position::{CallOperation, RunPosition, SessionId};
use haft_core::result::ToolErrorKind;
use haft_core::run::RunNote;
use haft_core::run::event::{CallAnswer, RunEvent};
use haft_core::run::final_turn::FinalTurnReason;
use haft_core::run::meter::Meter;
use haft_core::text::controls_terminal;
use haft_core::tool::ToolCall;
use haft_sandbox::ResourceAccess;
use serde_json::{Map, Value};

use super::model_wait::ModelWait;
use super::output::{RunOutput, TextDestination};
use super::summary::{RunSummary, line};
use crate::args::{OutputFormat, ShowArgs};
use crate::call::strip_error_label;
use crate::sandbox_refusal::SandboxRefusal;
use crate::{question, terminal};

/// The maximum number of characters of a call's arguments that are shown.
const ARGUMENTS_CHARS_MAX: usize = 60;

/// The maximum number of characters of a call that are shown next to its output.
const CALL_CHARS_MAX: usize = 30;

/// The maximum size of a running call's output that is kept, in bytes.
const OUTPUT_BYTES_MAX: usize = 4096;

/// The maximum number of output lines that are shown of a call that was interrupted.
const OUTPUT_LINES_MAX: usize = 10;

/// The animation frames of the status line.
const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Shows a run on standard error.
#[derive(Debug)]
pub(crate) struct RunScreen {
    words: ScreenVerbosity,
    /// True on a terminal, where the status line can be redrawn.
    moves: bool,
    output: Arc<RunOutput>,
    /// The meter of the run, from which the screen reads the spent budget. The reference is weak, because the meter
    /// holds its watchers, and this screen is one of them.
    meter: OnceLock<Weak<Meter>>,
    /// The network access of commands, which explains some failures.
    network: OnceLock<ResourceAccess>,
    state: Mutex<ScreenState>,
}

/// Selects how much text the screen shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScreenVerbosity {
    /// Only the end of the run is shown: programs read the rest from standard output.
    Few,
    Usual,
    Many,
}

#[derive(Debug, Default)]
struct ScreenState {
    running: Vec<RunningCall>,
    /// For the session of each sub-agent, the names of the agents from the first one below the root agent to this
    /// sub-agent.
    below: HashMap<SessionId, Vec<String>>,
    frame: usize,
    /// The text of the model in this turn.
    answer_text: String,
    /// For each part of the reply, true if it is text.
    texts: Vec<bool>,
    /// The root run's wait for a model reply. `None` if no request is in progress, or if the terminal already shows
    /// text of the reply.
    model: Option<ModelWait>,
    /// The kinds of sandbox refusals for which the user has already seen a hint.
    hinted: HashSet<SandboxRefusal>,
}

/// A call that the model requested. It may still wait for a slot or for an approval.
#[derive(Debug)]
struct RunningCall {
    session: SessionId,
    call: ToolCall,
    /// The time at which the tool of this call started; `None` while the call still waits for a slot or an approval.
    began: Option<Instant>,
    /// True after the tool returned; the answer may still wait for other calls of the turn.
    is_over: bool,
    /// True if another call of the same agent was running at the same time.
    in_parallel: bool,
    /// The end of the output that the call has written so far.
    output: String,
}

impl RunningCall {
    fn new(session: SessionId, call: ToolCall) -> Self {
        let output = String::new();
        Self { session, call, began: None, is_over: false, in_parallel: false, output }
    }

    /// Returns true if the tool of this call is running now, for the agent with this session.
    fn runs_in(&self, session: SessionId) -> bool {
        self.session == session && self.began.is_some() && !self.is_over
    }

    fn is_of(&self, operation: &CallOperation) -> bool {
        // Compare prefixes, because events contain only a prefix of the call id.
        self.session == operation.place.session && self.call.id.0.starts_with(&operation.call.0)
    }

    fn add_output(&mut self, text: &str) {
        self.output.push_str(text);
        let excess = self.output.len().saturating_sub(OUTPUT_BYTES_MAX);
        let begin = (excess..self.output.len()).find(|at| self.output.is_char_boundary(*at));
        self.output.drain(..begin.unwrap_or_default());
    }

    /// Returns the newest line of output that is not empty.
    fn newest_line(&self) -> Option<String> {
        let line = self.output.lines().rfind(|line| !line.trim().is_empty())?;
        Some(line.chars().filter(|c| !controls_terminal(*c)).collect())
    }
}

impl RunScreen {
    pub(super) fn new(args: ShowArgs, output: &Arc<RunOutput>) -> Self {
        let words = match (args.output_format, args.verbose) {
            (_, true) => ScreenVerbosity::Many,
            (OutputFormat::Text, false) => ScreenVerbosity::Usual,
            (OutputFormat::Json | OutputFormat::StreamJson, false) => ScreenVerbosity::Few,
        };
        let moves = terminal::can_redraw() && words != ScreenVerbosity::Few;
        let (meter, network) = (OnceLock::new(), OnceLock::new());
        Self { words, moves, output: Arc::clone(output), meter, network, state: Mutex::default() }
    }

    /// Sets the meter of the budget, so that the status line shows the spent part.
    pub(super) fn show_budget(&self, meter: &Arc<Meter>) {
        let _ = self.meter.set(Arc::downgrade(meter));
    }

    /// Sets the network access of commands, so that the screen can explain failures without network.
    pub(super) fn set_network(&self, access: ResourceAccess) {
        let _ = self.network.set(access);
    }

    /// Advances the animation and redraws the status line.
    pub(super) fn tick(&self) {
        let mut state = self.state();
        state.frame = state.frame.wrapping_add(1);
        self.show_running(&state);
    }

    pub(super) fn end(&self, summary: &RunSummary) {
        terminal::clear_status_line();
        self.show_interrupted();
        if self.words != ScreenVerbosity::Few {
            terminal::coloured(&format!("\x1b[2m{}\x1b[0m", line(summary)));
        }
    }

    /// Shows the calls that were interrupted by the end of the run, with the end of their output.
    fn show_interrupted(&self) {
        let mut state = self.state();
        for running in std::mem::take(&mut state.running) {
            let Some(began) = running.began else { continue };
            let (indent, who) = standing(state.below.get(&running.session));
            let (call, took) = (describe(&running.call), measured(began.elapsed()));
            self.print_line(&format!(
                "{indent}\x1b[31m✗\x1b[0m {who}{call} \x1b[2m{took}, interrupted\x1b[0m"
            ));
            let lines: Vec<&str> = running.output.lines().collect();
            for line in lines.iter().skip(lines.len().saturating_sub(OUTPUT_LINES_MAX)) {
                self.print_line(&format!("{indent}  \x1b[2m{}\x1b[0m", terminal::harmless(line)));
            }
        }
    }

    fn model_started(&self, attempt: &ModelAttempt) {
        let mut state = self.state();
        let fallback = state.model.as_ref().and_then(|wait| wait.fallback_line(attempt));
        self.show_wait(fallback);
        state.model = Some(ModelWait::started(attempt, Instant::now()));
    }

    fn model_finished(&self, attempt: &ModelAttempt, account: &ModelAccount) {
        let mut state = self.state();
        state.model = ModelWait::failed(attempt, account, Instant::now());
        let retry = state.model.as_ref().and_then(ModelWait::retry_line);
        self.show_wait(retry);
    }

    /// Shows a line about a failed model attempt. With `--verbose` it shows nothing, because the log already contains
    /// the line.
    fn show_wait(&self, line: Option<String>) {
        if let (Some(line), ScreenVerbosity::Usual) = (line, self.words) {
            self.print_line(&format!("\x1b[33m!\x1b[0m {line}"));
        }
    }

    fn progressed(&self, operation: &CallOperation, progress: &CallProgress) {
        let mut state = self.state();
        let running = state.running.iter_mut().find(|running| running.is_of(operation));
        let Some(running) = running else { return };
        match progress {
            CallProgress::Output(text) => running.add_output(text),
            CallProgress::Message(text) | CallProgress::Part { message: Some(text), .. } => {
                running.add_output(&format!("{text}\n"));
            }
            CallProgress::Amount(amount) => running.add_output(&format!("{}\n", amount.text())),
            CallProgress::Part { message: None, .. } => {}
        }
    }

    fn run_event(&self, place: RunPosition, event: &RunEvent) {
        let mut state = self.state();
        match event {
            RunEvent::Began(began) if place.parent.is_some() => {
                let below = began.path.iter().skip(1).cloned().collect();
                state.below.insert(place.session, below);
            }
            RunEvent::Model(ModelEvent::Noted(note)) if note.is_alarm() => warn(note),
            // Ignore the text of a sub-agent: it is the output of a call, not a message to the user.
            RunEvent::Asked | RunEvent::Model(_) if place.parent.is_some() => {}
            RunEvent::Asked => {
                state.answer_text.clear();
                state.texts.clear();
            }
            RunEvent::Model(ModelEvent::Noted(note)) if self.words == ScreenVerbosity::Many => {
                warn(note);
            }
            RunEvent::Model(event) => {
                self.follow_reply(&mut state, event);
                keep_text(&mut state, event);
            }
            RunEvent::Called(call) => {
                if place.parent.is_none() {
                    self.show_interim_text(&mut state);
                    state.model = None;
                }
                state.running.push(RunningCall::new(place.session, call.clone()));
            }
            RunEvent::Answered(answered) => self.ended(&mut state, place.session, answered),
            RunEvent::Noted(note) => self.noted(&state, place.session, note),
            RunEvent::Began(_) | RunEvent::Finished { .. } => {}
        }
    }

    /// Shows the text that the model wrote before a tool call. It is not part of the answer, but useful to read.
    fn show_interim_text(&self, state: &mut ScreenState) {
        let answer_text = std::mem::take(&mut state.answer_text);
        let answer_text = terminal::harmless(answer_text.trim());
        if answer_text.is_empty() {
            return;
        }
        match self.output.texts() {
            // The terminal already shows the streamed text.
            TextDestination::Streamed => {}
            TextDestination::Held => self.print_line(&format!("\x1b[2m{answer_text}\x1b[0m")),
        }
    }

    /// Updates what the status line shows about the model request. Clears it when streamed text appears, because the
    /// text needs this row, and when the reply ends.
    fn follow_reply(&self, state: &mut ScreenState, event: &ModelEvent) {
        match event {
            ModelEvent::PartStarted { part: PartStart::Reasoning, .. } => {
                state.model.iter_mut().for_each(ModelWait::think);
            }
            ModelEvent::PartDelta { delta: PartDelta::Text(text), index }
                if !text.is_empty()
                    && state.texts.get(*index) == Some(&true)
                    && self.output.texts() == TextDestination::Streamed =>
            {
                state.model = None;
            }
            ModelEvent::Finished { .. } => state.model = None,
            ModelEvent::Started { .. }
            | ModelEvent::PartStarted { .. }
            | ModelEvent::PartDelta { .. }
            | ModelEvent::PartFinished { .. }
            | ModelEvent::Usage(_)
            | ModelEvent::Noted(_) => {}
        }
    }

    /// Marks a call as started.
    fn started(&self, operation: &CallOperation) {
        let mut state = self.state();
        let waits = |running: &&mut RunningCall| running.began.is_none() && running.is_of(operation);
        if let Some(running) = state.running.iter_mut().find(waits) {
            running.began = Some(Instant::now());
        }
        let session = operation.place.session;
        if state.running.iter().filter(|running| running.runs_in(session)).count() > 1 {
            let now = state.running.iter_mut().filter(|running| running.runs_in(session));
            now.for_each(|running| running.in_parallel = true);
        }
        self.show_running(&state);
    }

    /// Marks a call whose tool has returned.
    fn returned(&self, operation: &CallOperation) {
        let mut state = self.state();
        let found = state.running.iter_mut().find(|running| !running.is_over && running.is_of(operation));
        if let Some(running) = found {
            running.is_over = true;
        }
    }

    fn ended(&self, state: &mut ScreenState, session: SessionId, answered: &CallAnswer) {
        let is_it = |running: &RunningCall| running.session == session && running.call.id == answered.call;
        let found = state.running.iter().position(is_it);
        let Some(running) = found.map(|position| state.running.remove(position)) else { return };
        let sign = if answered.failure.is_none() { "\x1b[32m✓\x1b[0m" } else { "\x1b[31m✗\x1b[0m" };
        let took = measured(answered.latency);
        let parallel = if running.in_parallel { ", in parallel" } else { "" };
        let end = answered.failure.map_or_else(
            || format!("{took}, {} bytes{parallel}", answered.text.len()),
            |kind| format!("{took}, {}: {}", kind.name(), first_line(without_label(&answered.text, kind))),
        );
        let (indent, who) = standing(state.below.get(&session));
        self.print_line(&format!("{indent}{sign} {who}{} \x1b[2m{end}\x1b[0m", describe(&running.call)));
        self.hint_at_option(state, answered);
        self.show_running(state);
    }

    /// Shows the option that would allow the refused operation, once for each option.
    fn hint_at_option(&self, state: &mut ScreenState, answered: &CallAnswer) {
        if answered.failure.is_none() {
            return;
        }
        let network = self.network.get().copied().unwrap_or(ResourceAccess::Allow);
        let refusal = SandboxRefusal::find(&answered.name, &answered.text, network);
        if let Some(refusal) = refusal.filter(|refusal| state.hinted.insert(*refusal)) {
            self.print_line(&format!("hint: {}", refusal.hint()));
        }
    }

    fn noted(&self, state: &ScreenState, session: SessionId, note: &RunNote) {
        let is_shown = match note {
            RunNote::AskedAgain { .. }
            | RunNote::FinalTurn(FinalTurnReason::OnlyTurn | FinalTurnReason::TaskComplete) => {
                self.words == ScreenVerbosity::Many
            }
            RunNote::Status(_)
            | RunNote::Refused { .. }
            | RunNote::Circling { .. }
            | RunNote::FinalTurn(_)
            | RunNote::Compacted(_)
            | RunNote::CompactionFault { .. }
            | RunNote::ToolsFound(_)
            | RunNote::ToolsAppended(_) => true,
        };
        if is_shown {
            let (indent, who) = standing(state.below.get(&session));
            let words = terminal::harmless(&note_text(note));
            self.print_line(&format!("{indent}\x1b[33m!\x1b[0m {who}{words}"));
        }
    }

    fn print_line(&self, text: &str) {
        if self.words != ScreenVerbosity::Few {
            terminal::coloured(text.trim_end());
        }
    }

    fn show_running(&self, state: &ScreenState) {
        // Do not redraw while a question is open: the question and the user's input must stay readable.
        if !self.moves || question::is_open() {
            return;
        }
        terminal::clear_status_line();
        let frame = FRAMES[state.frame % FRAMES.len()];
        let mut at_work = state.running.iter().filter_map(|running| Some((running, running.began?)));
        let Some((running, began)) = at_work.next() else {
            let wait = state.model.as_ref().and_then(|wait| wait.status(Instant::now()));
            if let Some((text, took)) = wait {
                terminal::moving(&format!("{frame} {text}"), &format!(" {took}{}", self.spent()));
            }
            return;
        };
        let more = match at_work.count() {
            0 => String::new(),
            number => format!(" and {number} more"),
        };
        let (_, who) = standing(state.below.get(&running.session));
        let call = describe(&running.call);
        let end = format!(" {}{}", measured(began.elapsed()), self.spent());
        let line = match running.newest_line() {
            // Shorten the command, because its output is more useful.
            Some(newest) => format!("{frame} {who}{}{more} │ {newest}", cut(&call, CALL_CHARS_MAX)),
            None => format!("{frame} {who}{call}{more}"),
        };
        terminal::moving(&line, &end);
    }

    /// Formats the spent part of the budget, if there is a budget.
    fn spent(&self) -> String {
        let meter = self.meter.get().and_then(Weak::upgrade);
        let used = meter.and_then(|meter| meter.budget().used_percent(&meter.left(Duration::ZERO)));
        used.map(|percent| format!(", {percent} % of the budget")).unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, ScreenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for RunScreen {
    fn emit(&self, event: Event) {
        match &event {
            Event::Run { place, event } => self.run_event(*place, event),
            Event::ToolStarted { operation, .. } => self.started(operation),
            Event::ToolProgress { operation, progress } => self.progressed(operation, progress),
            // Ignore a model request of a sub-agent: the status line already shows the call that runs the sub-agent.
            Event::ModelStarted { place, .. } | Event::ModelFinished { place, .. }
                if place.parent.is_some() => {}
            Event::ModelStarted { attempt, .. } => self.model_started(attempt),
            Event::ModelFinished { attempt, account, .. } => self.model_finished(attempt, account),
            Event::ToolFinished { operation, .. } => self.returned(operation),
        }
    }
}

/// Returns the indentation and the name prefix of a line, from the path of sub-agents.
fn standing(below: Option<&Vec<String>>) -> (String, String) {
    let Some(below) = below else { return (String::new(), String::new()) };
    let who = below.last().map(|agent| format!("{}: ", first_line(agent))).unwrap_or_default();
    ("  ".repeat(below.len()), who)
}

fn warn(note: &ReplyNote) {
    terminal::coloured(&format!("\x1b[33m!\x1b[0m {}", terminal::harmless(&note.to_string())));
}

fn keep_text(state: &mut ScreenState, event: &ModelEvent) {
    match event {
        ModelEvent::PartStarted { part, .. } => state.texts.push(matches!(part, PartStart::Text)),
        ModelEvent::PartDelta { index, delta: PartDelta::Text(text) } => {
            if state.texts.get(*index).copied().unwrap_or_default() {
                state.answer_text.push_str(text);
            }
        }
        ModelEvent::Started { .. }
        | ModelEvent::PartDelta {
            delta: PartDelta::Annotation(_) | PartDelta::Summary(_) | PartDelta::SummaryBreak,
            ..
        }
        | ModelEvent::PartFinished { .. }
        | ModelEvent::Usage(_)
        | ModelEvent::Noted(_)
        | ModelEvent::Finished { .. } => {}
    }
}

/// Formats the tool and the beginning of its arguments on one line, without terminal control characters.
fn describe(call: &ToolCall) -> String {
    let text = call.arguments.as_text();
    let summary = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(fields)) => most_informative_argument(&fields).to_owned(),
        Ok(_) | Err(_) => text.to_owned(),
    };
    let name = first_line(&call.name);
    let summary = first_line(&summary);
    if summary.is_empty() { name } else { format!("{name} {summary}") }
}

/// Returns the most informative argument: one with a well-known name, or the first string.
fn most_informative_argument(fields: &Map<String, Value>) -> &str {
    const NAMES: [&str; 6] = ["command", "file_path", "path", "pattern", "url", "query"];
    let named = NAMES.iter().find_map(|name| fields.get(*name).and_then(Value::as_str));
    named.or_else(|| fields.values().find_map(Value::as_str)).unwrap_or_default()
}

fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max).chain(['…']).collect()
}

/// Removes the label of an error that repeats its kind, which the line shows already.
fn without_label(text: &str, kind: ToolErrorKind) -> &str {
    let text = strip_error_label(text, kind);
    if kind != ToolErrorKind::Denied {
        return text;
    }
    text.strip_prefix("Write denied: ").or_else(|| text.strip_prefix("Read denied: ")).unwrap_or(text)
}

fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let mut shown: String =
        line.chars().filter(|c| !controls_terminal(*c)).take(ARGUMENTS_CHARS_MAX).collect();
    if line.chars().count() > ARGUMENTS_CHARS_MAX || text.trim().lines().count() > 1 {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use haft_core::arguments::RawArguments;
    use haft_core::tool::CallId;

    #[test]
    fn call_description_is_one_short_line_without_escapes() {
        let check = |name: &str, arguments: &str, expected: &str| {
            let (id, name) = (CallId("1".into()), name.to_owned());
            let call = ToolCall { id, name, arguments: RawArguments::from_text(arguments) };
            assert_eq!(describe(&call), expected);
        };
        check("bash", r#"{"command":"ls -la"}"#, "bash ls -la");
        check("bash", r#"{"command":"a\nb"}"#, "bash a…");
        check("bash", "{\"command\":\"\\u001b[2Jx\"}", "bash [2Jx");
        check("write", r#"{"content":"x","file_path":"a.txt"}"#, "write a.txt");
        check("current_date", "{}", "current_date");
        check("bash", "not json", "bash not json");
        check("b\u{1b}ash", r#"{"n":1}"#, "bash");
        let long = "x".repeat(100);
        check("bash", &format!(r#"{{"command":"{long}"}}"#), &format!("bash {}…", &long[..60]));
    }
}

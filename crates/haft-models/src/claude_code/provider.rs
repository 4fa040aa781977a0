//! Runs Claude Code until it answers, and resumes its session after a failure.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use haft_core::framing::{FrameTooLarge, LineSplitter, StreamLimits};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{AttemptFollowUp, ModelAttempt, ModelContext, ModelProvider, ReplyStream};
use haft_core::model_request::ModelRequest;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::ClaudeCodeSettings;
use super::allowed::AllowedActions;
use super::command::{order, texts};
use super::control::{self, CommandCall, ControlRequest};
use super::process::{ClaudeExit, RunningCommand, StartCommand};
use super::prompt::unsupported;
use super::reader::{ClaudeFailure, ClaudeOutcome, ClaudeOutputReader, ClaudeSpend};
use super::resume::{ResumeDecision, decide};
use super::session::{ClaudeInput, ClaudeSession};
use super::waiting::WaitingCommand;
use crate::attempt::RunningAttempt;
use crate::conversation_cache::ConversationCache;
use crate::redact::redact;

/// Claude Code as a model provider.
pub struct ClaudeCode {
    settings: ClaudeCodeSettings,
    start: Box<dyn StartCommand>,
    sessions: ConversationCache<ClaudeSession>,
}

impl ClaudeCode {
    pub fn new(settings: ClaudeCodeSettings, start: Box<dyn StartCommand>) -> Self {
        Self { settings, start, sessions: ConversationCache::default() }
    }
}

impl ModelProvider for ClaudeCode {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn ask(&self, request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        let session = self.sessions.take(&request.conversation);
        let asking = ClaudeRequest {
            provider: self,
            cx: cx.clone(),
            turn: session.turn(&request),
            notes: unsupported(&request).into_iter().map(ModelEvent::Noted).collect(),
            ready: VecDeque::new(),
            reader: ClaudeOutputReader::new(texts(&request)),
            request,
            calls: Vec::new(),
            calls_until: None,
            continued: false,
            resumed: 0,
            phase: ClaudePhase::Starting(Box::new(session)),
            deadline: Instant::now() + self.settings.timeout,
        };
        stream::unfold(asking, async |mut asking| Some((asking.next().await?, asking))).boxed()
    }
}

/// A request in progress. Dropping it kills the `claude` process.
struct ClaudeRequest<'a> {
    provider: &'a ClaudeCode,
    cx: ModelContext,
    request: ModelRequest,
    turn: ClaudeInput,
    reader: ClaudeOutputReader,
    /// Notes to emit right after the `Started` event.
    notes: Vec<ModelEvent>,
    ready: VecDeque<ModelEvent>,
    /// The calls at the end of the reply.
    calls: Vec<CommandCall>,
    /// The time at which haft stops waiting for further calls of the message.
    calls_until: Option<Instant>,
    /// True if the process continued after haft had sent it tool results. If such a process dies, its resumed session
    /// may not have these results.
    continued: bool,
    /// The number of times that the session was resumed.
    resumed: u32,
    phase: ClaudePhase,
    deadline: Instant,
}

enum ClaudePhase {
    Starting(Box<ClaudeSession>),
    Reading(Box<ClaudeRun>),
    Over,
}

/// The maximum length of an output line of Claude Code, in bytes. One line contains the whole output of a tool.
const LINE_BYTES_MAX: usize = 64 << 20;

/// The maximum time that haft waits, after the end of a message, for the other calls of this message. A call can be
/// delayed by a hook of the user, or by a busy machine. If it comes later, it is a turn of its own.
const FURTHER_CALLS_WAIT_MAX: Duration = Duration::from_secs(5);

/// A `claude` process whose output is being read.
struct ClaudeRun {
    command: Box<dyn RunningCommand>,
    lines: LineSplitter,
    /// Complete output lines that were not handled yet.
    unread: VecDeque<String>,
    /// True after the end of the process output.
    is_over: bool,
    allowed: AllowedActions,
    running: RunningAttempt,
}

impl ClaudeRun {
    fn new(command: Box<dyn RunningCommand>, running: RunningAttempt) -> Box<Self> {
        let lines = LineSplitter::new(StreamLimits::per_frame(LINE_BYTES_MAX));
        let (unread, allowed) = (VecDeque::new(), AllowedActions::default());
        Box::new(Self { command, lines, unread, is_over: false, allowed, running })
    }
}

impl ClaudeRequest<'_> {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let step = match &self.phase {
                ClaudePhase::Over => return None,
                ClaudePhase::Starting(_) => timeout_at(self.deadline, self.begin()).await,
                ClaudePhase::Reading(_) => timeout_at(self.deadline, self.read()).await,
            };
            let step = step.unwrap_or_else(|_| Err(self.out_of_time()));
            if let Err(error) = step {
                self.phase = ClaudePhase::Over;
                return Some(Err(error));
            }
        }
    }

    async fn begin(&mut self) -> Result<(), ModelError> {
        let settings = &self.provider.settings;
        let attempt = ModelAttempt {
            provider: Arc::clone(&settings.name),
            model: self.request.model.as_str().into(),
            number: self.resumed + 1,
        };
        let running = RunningAttempt::start(self.cx.clone(), attempt, None);
        if let Some(waiting) = self.take_session().continued(&self.request) {
            let WaitingCommand { command, lines, unread, reader, allowed, .. } = waiting;
            (self.reader, self.continued) = (reader, true);
            let reading = ClaudeRun { command, lines, unread, is_over: false, allowed, running };
            self.phase = ClaudePhase::Reading(Box::new(reading));
            self.pass_events_on();
            return Ok(());
        }
        let order = order(settings, &self.request, &self.turn);
        match self.provider.start.start(order).await {
            Ok(command) => {
                self.phase = ClaudePhase::Reading(ClaudeRun::new(command, running));
                Ok(())
            }
            Err(why) => self.failed(running, ClaudeFailure::NotStarted(why)).await,
        }
    }

    fn take_session(&mut self) -> ClaudeSession {
        match std::mem::replace(&mut self.phase, ClaudePhase::Over) {
            ClaudePhase::Starting(session) => *session,
            ClaudePhase::Reading(_) | ClaudePhase::Over => ClaudeSession::default(),
        }
    }

    /// Handles the next output line of the process. If no complete line is left, reads more output, or handles the end
    /// of the output.
    async fn read(&mut self) -> Result<(), ModelError> {
        let ClaudePhase::Reading(reading) = &mut self.phase else { return Ok(()) };
        if let Some(line) = reading.unread.pop_front() {
            self.take_line(&line);
            return Ok(());
        }
        if reading.is_over {
            return self.end().await;
        }
        let read = reading.command.read();
        let bytes = match self.calls_until {
            None => read.await,
            Some(until) => {
                let Ok(bytes) = timeout_at(until, read).await else {
                    self.hand_over_calls();
                    return Ok(());
                };
                bytes
            }
        };
        let lines = match bytes.as_deref() {
            // A read error also ends the output. The result line and the exit status decide whether Claude Code
            // succeeded.
            Ok([]) | Err(_) => {
                reading.is_over = true;
                reading.lines.finish().map_err(too_long)?.into_iter().collect()
            }
            Ok(bytes) => reading.lines.push(bytes).map_err(too_long)?,
        };
        reading.unread.extend(lines);
        Ok(())
    }

    /// Handles an output line. Skips lines that are not JSON, because hooks of the user may print such lines.
    fn take_line(&mut self, line: &str) {
        let ClaudePhase::Reading(reading) = &mut self.phase else { return };
        let Ok(line) = serde_json::from_str::<Value>(line) else { return };
        match control::request(&line, &self.request.tools, &self.provider.settings.own_tools) {
            Some(ControlRequest::Answered(answer)) => reading.command.write(answer),
            Some(ControlRequest::Call(call)) if self.calls.iter().any(|other| other.id == call.id) => {
                reading.command.write(call.refused());
            }
            Some(ControlRequest::Call(prompt)) if reading.allowed.cover(&prompt) => {
                reading.command.write(prompt.permitted());
            }
            Some(ControlRequest::Call(call)) => self.calls.push(call),
            Some(ControlRequest::Cancelled { request }) => self.calls.retain(|call| call.request != request),
            None => self.reader.line(&line),
        }
        if self.reader.has_outcome() {
            reading.command.close_input();
        }
        self.pass_events_on();
        self.gather_calls();
    }

    /// Ends the reply if all calls of the message have arrived, so that the run can make them together. A call can
    /// arrive before the end of its message, and also after it.
    fn gather_calls(&mut self) {
        if self.calls.is_empty() || self.reader.is_in_message() {
            self.calls_until = None;
        } else if self.reader.expects_more_than(&self.calls) {
            self.calls_until.get_or_insert_with(|| Instant::now() + FURTHER_CALLS_WAIT_MAX);
        } else {
            self.hand_over_calls();
        }
    }

    fn pass_events_on(&mut self) {
        let ClaudePhase::Reading(reading) = &mut self.phase else { return };
        for event in self.reader.take_events() {
            reading.running.see(&event);
            let first = matches!(event, ModelEvent::Started { .. });
            self.ready.push_back(event);
            if first {
                self.ready.extend(self.notes.drain(..));
            }
        }
    }

    /// Ends the reply with the calls. The process waits for their results, which come with the next request.
    fn hand_over_calls(&mut self) {
        let ClaudePhase::Reading(reading) = std::mem::replace(&mut self.phase, ClaudePhase::Over) else {
            return;
        };
        let ClaudeRun { command, lines, unread, allowed, mut running, .. } = *reading;
        let usage = self.reader.finish_with_calls(&self.calls);
        // Pass no cost, because Claude Code reports its cost when it ends.
        running.spent(Some(usage), None);
        running.succeeded();
        self.ready.extend(self.reader.take_events());
        let next_reader = ClaudeOutputReader::new(texts(&self.request));
        let reader = std::mem::replace(&mut self.reader, next_reader);
        let calls = std::mem::take(&mut self.calls);
        self.calls_until = None;
        if let Some(session) = reader.session.clone() {
            let waiting = WaitingCommand { command, lines, unread, reader, calls, allowed };
            self.provider.sessions.put(ClaudeSession::after_calls(session, &self.request, waiting));
        }
    }

    /// Handles the end of the output: reports the answer, or decides whether to resume the session.
    async fn end(&mut self) -> Result<(), ModelError> {
        let ClaudePhase::Reading(reading) = std::mem::replace(&mut self.phase, ClaudePhase::Over) else {
            return Ok(());
        };
        let ClaudeRun { command, mut running, .. } = *reading;
        let ended = command.end().await;
        let silent = match ended {
            Ok(ended) => died(&ended),
            Err(why) => ClaudeFailure::NotStarted(why),
        };
        let nothing = || ClaudeOutcome { answer: Err(silent), spent: ClaudeSpend::default() };
        let ClaudeOutcome { answer, spent } = self.reader.take_outcome().unwrap_or_else(nothing);
        running.spent(spent.usage, spent.cost);
        match answer {
            Ok(answer) => {
                running.succeeded();
                self.reader.finish(answer);
                self.ready.extend(self.reader.take_events());
                if let Some(session) = self.reader.session.clone() {
                    self.provider.sessions.put(ClaudeSession::after_reply(session, &self.request));
                }
                Ok(())
            }
            Err(failed) => self.failed(running, failed).await,
        }
    }

    /// Resumes the same session after a delay, or gives up.
    async fn failed(&mut self, mut running: RunningAttempt, failed: ClaudeFailure) -> Result<(), ModelError> {
        // Do not retry after the caller got a part of the answer, because the caller cannot take that part back.
        let session = self.reader.session.clone().filter(|_| !self.reader.has_answered());
        match (decide(&self.provider.settings, &failed, session.as_deref(), self.resumed), session) {
            (ResumeDecision::Again { after }, Some(session)) if Instant::now() + after < self.deadline => {
                let lost_results =
                    std::mem::take(&mut self.continued) && matches!(failed, ClaudeFailure::Died(_));
                running.failed(failed.into_error().kind, AttemptFollowUp::Retry { after });
                sleep(after).await;
                self.resumed += 1;
                // The process died after haft had sent it tool results, so its session may not have them. Repeat the
                // prompt of this turn, which contains the results as text, instead of asking the session to continue.
                if !lost_results {
                    self.turn = self.turn.clone().resuming(session);
                }
                self.calls.clear();
                self.calls_until = None;
                self.phase = ClaudePhase::Starting(Box::default());
                Ok(())
            }
            (ResumeDecision::Again { .. } | ResumeDecision::GiveUp, _) => {
                let error = failed.into_error();
                running.failed(error.kind, AttemptFollowUp::Nothing);
                Err(error)
            }
        }
    }

    fn out_of_time(&mut self) -> ModelError {
        if let ClaudePhase::Reading(reading) = &mut self.phase {
            reading.running.failed(ModelErrorKind::Timeout, AttemptFollowUp::Nothing);
        }
        let seconds = self.provider.settings.timeout.as_secs();
        let message =
            format!("Claude Code took longer than {seconds} s; raise `requestTimeout` to allow more time");
        ModelError::new(ModelErrorKind::Timeout, message)
    }
}

fn died(ended: &ClaudeExit) -> ClaudeFailure {
    let ClaudeExit { how, stderr_tail } = ended;
    let words = redact(stderr_tail.trim());
    let stderr_note = if words.is_empty() { String::new() } else { format!(": {words}") };
    ClaudeFailure::Died(format!("Claude Code {how} before it answered{stderr_note}"))
}

fn too_long(_: FrameTooLarge) -> ModelError {
    let problem = format!("Claude Code printed a line of more than {LINE_BYTES_MAX} bytes");
    ModelError::new(ModelErrorKind::ReplyTooLarge, problem)
}

impl fmt::Debug for ClaudeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaudeCode").field("settings", &self.settings).finish_non_exhaustive()
    }
}

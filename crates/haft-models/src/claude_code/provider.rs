//! Runs the command until it answers, and resumes its session after a failure.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{Attempt, ModelContext, ModelProvider, Next, ReplyStream};
use haft_core::model_request::ModelRequest;
use tokio::time::{Instant, sleep, timeout_at};

use super::ClaudeCodeSettings;
use super::command::{order, texts};
use super::lines::Lines;
use super::process::{Ended, RunningCommand, StartCommand};
use super::prompt::unsaid;
use super::reader::{Failed, Outcome, Reader, Spent};
use super::resume::{Decision, decide};
use super::session::{Session, Turn};
use crate::account::Running;
use crate::kept::Kept;
use crate::redact::redact;

/// The `claude` command as a provider.
pub struct ClaudeCode {
    settings: ClaudeCodeSettings,
    start: Box<dyn StartCommand>,
    sessions: Kept<Session>,
}

impl ClaudeCode {
    pub fn new(settings: ClaudeCodeSettings, start: Box<dyn StartCommand>) -> Self {
        Self { settings, start, sessions: Kept::default() }
    }
}

impl ModelProvider for ClaudeCode {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn ask(&self, request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        let session = self.sessions.take(&request.conversation);
        let asking = Asking {
            provider: self,
            cx: cx.clone(),
            turn: session.turn(&request),
            notes: unsaid(&request).into_iter().map(ModelEvent::Noted).collect(),
            ready: VecDeque::new(),
            reader: Reader::new(texts(&self.settings, &request)),
            request,
            resumed: 0,
            phase: Phase::Starting,
            deadline: Instant::now() + self.settings.timeout,
        };
        stream::unfold(asking, async |mut asking| Some((asking.next().await?, asking))).boxed()
    }
}

/// A request in progress. Dropping it kills the command.
struct Asking<'a> {
    provider: &'a ClaudeCode,
    cx: ModelContext,
    request: ModelRequest,
    turn: Turn,
    reader: Reader,
    /// Notes to emit right after the `Started` event.
    notes: Vec<ModelEvent>,
    ready: VecDeque<ModelEvent>,
    /// The number of times the session was resumed.
    resumed: u32,
    phase: Phase,
    deadline: Instant,
}

enum Phase {
    Starting,
    Reading(Box<Reading>),
    Over,
}

/// A run of the command whose output is being read.
struct Reading {
    command: Box<dyn RunningCommand>,
    lines: Lines,
    running: Running,
}

impl Asking<'_> {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let step = match &self.phase {
                Phase::Over => return None,
                Phase::Starting => timeout_at(self.deadline, self.begin()).await,
                Phase::Reading(_) => timeout_at(self.deadline, self.read()).await,
            };
            let step = step.unwrap_or_else(|_| Err(self.out_of_time()));
            if let Err(error) = step {
                self.phase = Phase::Over;
                return Some(Err(error));
            }
        }
    }

    async fn begin(&mut self) -> Result<(), ModelError> {
        let settings = &self.provider.settings;
        let attempt = Attempt {
            provider: Arc::clone(&settings.name),
            model: self.request.model.as_str().into(),
            number: self.resumed + 1,
        };
        let running = Running::start(self.cx.clone(), attempt, None);
        let order = order(settings, &self.request, &self.turn);
        match self.provider.start.start(order).await {
            Ok(command) => {
                let reading = Reading { command, lines: Lines::default(), running };
                self.phase = Phase::Reading(Box::new(reading));
                Ok(())
            }
            Err(why) => self.failed(running, Failed::NotStarted(why)).await,
        }
    }

    async fn read(&mut self) -> Result<(), ModelError> {
        let Phase::Reading(reading) = &mut self.phase else { return Ok(()) };
        let Reading { command, lines, running } = &mut **reading;
        let bytes = command.read().await;
        let (lines, over) = match bytes.as_deref() {
            // A read error ends the output too; the result line and the exit status decide about success.
            Ok([]) | Err(_) => (lines.finish().into_iter().collect(), true),
            Ok(bytes) => (lines.push(bytes).map_err(too_long)?, false),
        };
        for line in &lines {
            self.reader.line(line);
        }
        for event in self.reader.take_events() {
            running.see(&event);
            let first = matches!(event, ModelEvent::Started { .. });
            self.ready.push_back(event);
            if first {
                self.ready.extend(self.notes.drain(..));
            }
        }
        if over { self.end().await } else { Ok(()) }
    }

    /// Handles the end of the output: reports the answer, or decides about a retry.
    async fn end(&mut self) -> Result<(), ModelError> {
        let Phase::Reading(reading) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return Ok(());
        };
        let Reading { command, mut running, .. } = *reading;
        let ended = command.end().await;
        let silent = match ended {
            Ok(ended) => died(&ended),
            Err(why) => Failed::NotStarted(why),
        };
        let nothing = || Outcome { answer: Err(silent), spent: Spent::default() };
        let Outcome { answer, spent } = self.reader.take_outcome().unwrap_or_else(nothing);
        running.spent(spent.usage, spent.cost);
        match answer {
            Ok(answer) => {
                running.succeeded();
                self.reader.finish(answer);
                self.ready.extend(self.reader.take_events());
                if let Some(session) = self.reader.session.clone() {
                    self.provider.sessions.put(Session::heard(session, &self.request));
                }
                Ok(())
            }
            Err(failed) => self.failed(running, failed).await,
        }
    }

    /// Resumes the same session after a delay, or gives up.
    async fn failed(&mut self, mut running: Running, failed: Failed) -> Result<(), ModelError> {
        // No retry after a part of the answer was passed on: the caller cannot take it back.
        let session = self.reader.session.clone().filter(|_| !self.reader.has_answered());
        match (decide(&self.provider.settings, &failed, session.as_deref(), self.resumed), session) {
            (Decision::Again { after }, Some(session)) if Instant::now() + after < self.deadline => {
                running.failed(failed.into_error().kind, Next::Retry { after });
                sleep(after).await;
                self.resumed += 1;
                self.turn = self.turn.clone().going_on(session);
                self.phase = Phase::Starting;
                Ok(())
            }
            (Decision::Again { .. } | Decision::GiveUp, _) => {
                let error = failed.into_error();
                running.failed(error.kind, Next::Nothing);
                Err(error)
            }
        }
    }

    fn out_of_time(&mut self) -> ModelError {
        if let Phase::Reading(reading) = &mut self.phase {
            reading.running.failed(ModelErrorKind::Timeout, Next::Nothing);
        }
        let seconds = self.provider.settings.timeout.as_secs();
        let message = format!("the command took longer than {seconds} s; `requestTimeout` allows more");
        ModelError::new(ModelErrorKind::Timeout, message)
    }
}

fn died(ended: &Ended) -> Failed {
    let Ended { how, last_words } = ended;
    let words = redact(last_words.trim());
    let said = if words.is_empty() { String::new() } else { format!(": {words}") };
    Failed::Died(format!("the command {how} without an answer{said}"))
}

fn too_long(problem: String) -> ModelError {
    ModelError::new(ModelErrorKind::ReplyTooLarge, problem)
}

impl fmt::Debug for ClaudeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaudeCode").field("settings", &self.settings).finish_non_exhaustive()
    }
}

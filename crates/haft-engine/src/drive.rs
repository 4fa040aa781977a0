//! Drives a run: carries out the step that the run returns, and reports the outcome to the run. The run makes all
//! decisions.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use haft_core::budget::ContextWindow;
use haft_core::compaction::size::{VisibleContent, text_tokens};
use haft_core::conversation::{Message, MessagePart};
use haft_core::duration_text;
use haft_core::event::{Event, EventSink};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_provider::{ModelContext, ModelProvider};
use haft_core::model_reply::{ModelReply, ReplyFold};
use haft_core::model_request::{ModelRequest, ModelTool};
use haft_core::output::OutputContent;
use haft_core::output_store::{Spool, StoreError};
use haft_core::position::RunPosition;
use haft_core::result::ToolResult;
use haft_core::run::event::{CallAnswer, RunEvent};
use haft_core::run::exposure::ToolListGrowth;
use haft_core::run::finish::RunFinish;
use haft_core::run::input::{ArchiveOutcome, CallEnd, RunInput};
use haft_core::run::meter::SpendAmount;
use haft_core::run::scope::RunScope;
use haft_core::run::{AbortReason, AgentRun, ArchiveRequest, DriverReadings, RunError, RunNote, RunStep};
use haft_core::tool::ToolCall;
use tokio::time::{Instant, sleep_until, timeout};

use crate::observer::{RunObserver, ToolListChange};
use crate::options::{CallOptions, SearchScope};
use crate::orchestrator::Orchestrator;
use crate::order::EffectOrder;
use crate::toolset_version::ToolsetVersion;
use haft_core::run::journal::{Durability, JournalError};

/// The models, tools, limits and options with which a run is driven. Dropping the future of [`RunDriver::drive`]
/// cancels the current step. The run is not lost: it can be aborted, stored or driven again.
#[derive(Clone)]
pub struct RunDriver<'a> {
    /// The provider that answers the run's model requests.
    pub models: &'a dyn ModelProvider,
    /// The provider that answers requests for summaries: the run's own provider, or one with a cheaper model.
    pub summary_models: &'a dyn ModelProvider,
    /// Executes the run's tool calls.
    pub orchestrator: &'a Orchestrator,
    /// The scope of the run. Its meter receives the events of model requests, calls and the run, and compares the cost
    /// with the run's budget.
    pub scope: Arc<RunScope>,
    /// The options for every call. The driver sets the turn in `place`; the caller sets the session.
    pub options: CallOptions,
    /// The time limit for one model reply.
    pub reply_timeout: Duration,
    /// Records the run, or replays a recording.
    pub observer: Option<Arc<dyn RunObserver>>,
}

impl fmt::Debug for RunDriver<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunDriver")
            .field("models", &self.models.name())
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// The reason why the driver stopped driving the run.
#[derive(Debug)]
pub enum DriveOutcome {
    /// The run has ended, with an answer or for another reason.
    Done(RunFinish),
    /// The client must execute these calls and report the results to the run. Then the driver can continue.
    AwaitsClient(Vec<ToolCall>),
    /// A user must decide about these calls, and the caller must report the decisions to the run. Then the driver can
    /// continue.
    AwaitsApproval(Vec<ToolCall>),
}

/// The error that ends the loop over the steps of a run.
enum DriveError {
    Mistake(RunError),
    Journal(JournalError),
    /// The caller asked the run to end before its next turn.
    EndRequested,
}

impl From<RunError> for DriveError {
    fn from(error: RunError) -> Self {
        Self::Mistake(error)
    }
}

impl From<JournalError> for DriveError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

impl RunDriver<'_> {
    /// Drives the run until it ends, or until it waits for the client or a user. An error means a bug in the driver or
    /// the run, never an invalid model reply.
    pub async fn drive(&self, run: &mut AgentRun) -> Result<DriveOutcome, RunError> {
        let in_time = tokio::select! {
            biased;
            driven = self.steps(run) => Some(driven),
            () = self.wait_for_deadline() => None,
        };
        let driven = match in_time {
            Some(Ok(driven)) => driven,
            Some(Err(DriveError::Mistake(error))) => return Err(error),
            Some(Err(DriveError::Journal(error))) => {
                return self.abort(run, AbortReason::JournalFailed(error.to_string())).await;
            }
            Some(Err(DriveError::EndRequested)) => return self.abort(run, AbortReason::Steered).await,
            None => return self.abort(run, AbortReason::TimedOut).await,
        };
        self.stopped(run, driven).await
    }

    /// Ends the run now and records the abort. The caller has already cancelled the current step.
    pub async fn abort(&self, run: &mut AgentRun, why: AbortReason) -> Result<DriveOutcome, RunError> {
        // A failed journal must not prevent the abort. On resume, the missing record shows that the run did not finish.
        let _ = self.append(&RunInput::Aborted(why.clone()));
        run.abort(why);
        // The end time of the run comes from these measured values, so a replay needs them too.
        let readings = self.readings(run);
        let _ = self.append(&RunInput::Stepped(readings));
        match run.next_step(&readings) {
            RunStep::Done(finish) => self.stopped(run, DriveOutcome::Done(finish)).await,
            RunStep::CallModel(_)
            | RunStep::Archive(_)
            | RunStep::Summarize(_)
            | RunStep::CallTools(_)
            | RunStep::AwaitClient(_)
            | RunStep::AwaitApproval(_) => {
                Err(RunError::Unexpected { given: "an abort", waits_for: "another step" })
            }
        }
    }

    /// Records and applies an input from outside the driver, such as a user's decision.
    pub fn apply_input(&self, run: &mut AgentRun, input: RunInput) -> Result<(), RunError> {
        // Ignore the error: a journal that fails now also fails at the next step, which ends the run.
        let _ = self.append(&input);
        run.apply(input)
    }

    /// Returns at the run's deadline. The deadline moves while a sub-agent waits for a person.
    async fn wait_for_deadline(&self) {
        loop {
            poll_fn(|cx| self.scope.parked.poll_running(cx)).await;
            let now = Instant::now();
            let deadline = Instant::from_std(self.scope.deadline(now.into_std()));
            if deadline <= now {
                return;
            }
            sleep_until(deadline).await;
        }
    }

    async fn stopped(&self, run: &AgentRun, driven: DriveOutcome) -> Result<DriveOutcome, RunError> {
        let durability = match &driven {
            DriveOutcome::Done(finish) => {
                let place = self.place(run.counts().turns);
                self.emit(
                    place,
                    RunEvent::Finished { finish: finish.clone(), bill: self.scope.meter.bill() },
                );
                Durability::Ended
            }
            DriveOutcome::AwaitsClient(_) | DriveOutcome::AwaitsApproval(_) => Durability::Synced,
        };
        // Ignore the error: no later action depends on this sync.
        let _ = self.sync(durability).await;
        Ok(driven)
    }

    async fn steps(&self, run: &mut AgentRun) -> Result<DriveOutcome, DriveError> {
        let mut seen = self.orchestrator.toolset_version(&self.options.context);
        let mut found = Vec::new();
        loop {
            if self.scope.end_request.is_made() && run.is_between_turns() {
                return Err(DriveError::EndRequested);
            }
            self.refresh_tools(run, &mut seen, &std::mem::take(&mut found))?;
            self.wait_for_reservations(run).await;
            let readings = self.readings(run);
            let step = run.next_step(&readings);
            self.append(&RunInput::Stepped(readings))?;
            for note in run.take_notes() {
                self.emit(self.place(run.counts().turns), RunEvent::Noted(note));
            }
            match step {
                RunStep::CallModel(request) => {
                    let input = match self.call_model_in_time(run, *request).await {
                        Ok(reply) => RunInput::Replied(reply),
                        Err(error) => RunInput::Failed(error),
                    };
                    self.append(&input)?;
                    run.apply(input)?;
                }
                RunStep::Archive(request) => {
                    let input = RunInput::Archived(self.archive(request));
                    self.take_compaction(run, input)?;
                }
                RunStep::Summarize(request) => {
                    let input = match self.summarize_in_time(run, *request).await {
                        Ok(reply) => RunInput::Summarized(reply),
                        Err(error) => RunInput::SummaryFailed(error),
                    };
                    self.take_compaction(run, input)?;
                }
                RunStep::CallTools(calls) => {
                    for input in self.call(run, calls).await {
                        let input = input?;
                        found.extend(found_tools(&input));
                        run.apply(input)?;
                    }
                }
                RunStep::AwaitClient(calls) => return Ok(DriveOutcome::AwaitsClient(calls)),
                RunStep::AwaitApproval(calls) => return Ok(DriveOutcome::AwaitsApproval(calls)),
                RunStep::Done(finish) => return Ok(DriveOutcome::Done(finish)),
            }
        }
    }

    /// Detects tools that did not exist when the run started, and tools that a search found. The tools that the model
    /// already sees never change: providers cache a prompt from its beginning, and the tools are its first part.
    fn refresh_tools(
        &self,
        run: &mut AgentRun,
        seen: &mut ToolsetVersion,
        found: &[String],
    ) -> Result<(), DriveError> {
        let live = self.tool_list_change(run, seen, found);
        let change = match &self.observer {
            Some(observer) => observer.tools(self.options.place, live),
            None => live,
        };
        let note = match change {
            None => return Ok(()),
            Some(ToolListChange::Replaced(tools)) => {
                run.set_tools(&tools);
                None
            }
            Some(ToolListChange::Appended(tools)) => {
                let names: Vec<String> = tools.iter().map(|tool| tool.name.clone()).collect();
                let input = RunInput::Appended(names.clone());
                self.append(&input)?;
                run.apply(input)?;
                run.append_tools(tools.iter().cloned());
                Some(RunNote::ToolsAppended(names))
            }
            Some(ToolListChange::Found(names)) => Some(RunNote::ToolsFound(names)),
        };
        if let Some(budget) = &self.options.budget {
            budget.set_tools(run.tools());
        }
        if let Some(note) = note {
            self.emit(self.place(run.counts().turns), RunEvent::Noted(note));
        }
        Ok(())
    }

    fn tool_list_change(
        &self,
        run: &AgentRun,
        seen: &mut ToolsetVersion,
        found: &[String],
    ) -> Option<ToolListChange> {
        let growth = run.plan().search().map(|search| search.growth);
        if growth == Some(ToolListGrowth::Append) && !found.is_empty() {
            let tools = self.unseen(run, |name| found.iter().any(|found| found == name));
            if !tools.is_empty() {
                return Some(ToolListChange::Appended(tools));
            }
        }
        let now = self.orchestrator.toolset_version(&self.options.context);
        if now == *seen {
            return None;
        }
        let before = std::mem::replace(seen, now);
        let tools = self.unseen(run, |name| !before.has(name));
        match growth {
            _ if tools.is_empty() => None,
            None => Some(ToolListChange::Appended(tools)),
            Some(ToolListGrowth::Constant | ToolListGrowth::Append) => {
                Some(ToolListChange::Found(tools.iter().map(|tool| tool.name.clone()).collect()))
            }
        }
    }

    /// Returns the run's tools that its model does not see and whose name `is_wanted` accepts.
    fn unseen(&self, run: &AgentRun, is_wanted: impl Fn(&str) -> bool) -> Arc<[ModelTool]> {
        let tools = self.orchestrator.model_tools(&self.options.selection, &self.options.context);
        let is_shown = |name: &str| run.tools().iter().any(|shown| shown.name == name);
        tools.iter().filter(|tool| is_wanted(&tool.name) && !is_shown(&tool.name)).cloned().collect()
    }

    /// Waits while the reservations of other agents exhaust the budget. A reservation is a worst case, far above the
    /// usual cost, so it alone must not end this run. The wait always ends, because a run with a token reservation
    /// waits only for its model.
    async fn wait_for_reservations(&self, run: &AgentRun) {
        let counted = self.context_tokens().filter(|_| run.counts().has_asked());
        let request_tokens = counted.unwrap_or_default();
        poll_fn(|cx| self.scope.meter.poll_settled(request_tokens, cx)).await;
    }

    async fn call_model_in_time(
        &self,
        run: &AgentRun,
        request: ModelRequest,
    ) -> Result<ModelReply, ModelError> {
        let _held = self.scope.meter.hold(self.worst_case(run, &request));
        let reply = timeout(self.reply_timeout, self.ask(run, request)).await;
        reply.unwrap_or_else(|_| Err(reply_timeout_error(self.reply_timeout)))
    }

    /// Records and applies an input of a compaction, then measures the conversation, which may be smaller.
    fn take_compaction(&self, run: &mut AgentRun, input: RunInput) -> Result<(), DriveError> {
        self.append(&input)?;
        let before = Arc::as_ptr(run.shared_conversation());
        run.apply(input)?;
        if before != Arc::as_ptr(run.shared_conversation()) {
            self.measure(run);
        }
        Ok(())
    }

    /// Counts the tokens of the whole conversation again. The provider's own count in its next reply replaces this
    /// number.
    fn measure(&self, run: &AgentRun) {
        if let Some(budget) = &self.options.budget {
            measure_conversation(budget, run);
        }
    }

    /// Appends a text to the archive, or starts a new archive if the old one is missing or full.
    fn archive(&self, request: ArchiveRequest) -> ArchiveOutcome {
        if let Some(observer) = &self.observer
            && let Some(recorded) = observer.archived(self.options.place)
        {
            return recorded;
        }
        let Some(store) = &self.options.context.outputs else {
            return ArchiveOutcome::Failed(
                "haft stores no tool outputs, because `toolOutput.enabled` is false".into(),
            );
        };
        let ArchiveRequest { archive, text } = request;
        let written = |spool: Result<Box<dyn Spool>, StoreError>| {
            let mut spool = spool?;
            spool.write(text.as_bytes())?;
            spool.finish()
        };
        let continued = archive.filter(|entry| entry.complete).map(|entry| written(store.reopen(&entry)));
        let stored = match continued {
            Some(Ok(entry)) if entry.complete => Ok(entry),
            Some(Ok(_) | Err(_)) | None => written(store.begin()),
        };
        stored.map_or_else(|error| ArchiveOutcome::Failed(error.to_string()), ArchiveOutcome::Stored)
    }

    async fn summarize_in_time(
        &self,
        run: &AgentRun,
        request: ModelRequest,
    ) -> Result<ModelReply, ModelError> {
        let _held = self.scope.meter.hold(self.worst_case(run, &request));
        let reply = timeout(self.reply_timeout, self.summarize(run, request)).await;
        reply.unwrap_or_else(|_| Err(reply_timeout_error(self.reply_timeout)))
    }

    /// Requests a summary. Observers see the attempt and its cost but not the text, which is not part of the run's
    /// answer.
    async fn summarize(&self, run: &AgentRun, request: ModelRequest) -> Result<ModelReply, ModelError> {
        let place = self.place(run.counts().turns.saturating_add(1));
        let id = format!("{}/{}/summary", place.session, place.turn);
        let cx = self.model_context(id, place);
        let mut events = self.summary_models.ask(request, &cx);
        let mut fold = ReplyFold::default();
        while let Some(event) = events.next().await {
            fold.apply(&event?);
        }
        Ok(fold.finish())
    }

    fn model_context(&self, id: String, place: RunPosition) -> ModelContext {
        let principal = self.options.context.principal.clone();
        ModelContext::new(id, principal, Arc::clone(&self.scope.meter) as Arc<dyn EventSink>).at(place)
    }

    /// Returns the maximum cost of a request, so that concurrent agents cannot spend the same budget twice.
    fn worst_case(&self, run: &AgentRun, request: &ModelRequest) -> SpendAmount {
        // If the request has no output limit, use the space for the reply in the context window as an estimate.
        let room = run.plan().limits.context.map(|context| context.output_tokens);
        let output = request.output_tokens_max.map(u64::from).or(room).unwrap_or_default();
        let tokens = self.context_tokens().unwrap_or_default().saturating_add(output);
        SpendAmount { tokens, calls: 0 }
    }

    async fn ask(&self, run: &AgentRun, request: ModelRequest) -> Result<ModelReply, ModelError> {
        // The run counts a turn only after a usable reply, so the pending turn is the next one.
        let place = self.place(run.counts().turns.saturating_add(1));
        self.emit(place, RunEvent::Asked);
        let cx = self.model_context(format!("{}/{}", place.session, place.turn), place);
        let mut events = self.models.ask(request, &cx);
        let mut fold = ReplyFold::default();
        while let Some(event) = events.next().await {
            let event = event?;
            if fold.apply(&event) {
                self.emit(place, RunEvent::Model(event));
            }
        }
        let reply = fold.finish();
        self.update_context_tokens(&reply);
        Ok(reply)
    }

    /// Executes the calls of one step. All calls get their position in the order before the first one starts. Each
    /// result is journaled and reported as soon as its call ends.
    async fn call(&self, run: &AgentRun, calls: Vec<ToolCall>) -> Vec<Result<RunInput, JournalError>> {
        let order = EffectOrder::of(run.parallel_calls());
        let place = self.place(run.counts().turns);
        let scope = Some(Arc::clone(&self.scope));
        let options = CallOptions { place, scope, search: search_scope(run), ..self.options.clone() };
        let carried_out = calls.into_iter().map(|call| {
            self.emit(place, RunEvent::Called(call.clone()));
            let ends = self.carry_out(&order, call, options.clone());
            let held = self.scope.meter.hold(SpendAmount { tokens: 0, calls: 1 });
            async {
                let result = ends.await;
                drop(held);
                self.observer.iter().for_each(|observer| observer.ended(place, &result));
                let answered = RunEvent::Answered(answered(&result));
                let durability = self.orchestrator.durability_for(&result.call.name);
                let input = RunInput::Ended(vec![CallEnd::of(result)]);
                self.append(&input)?;
                self.sync(durability).await?;
                self.emit(place, answered);
                Ok(input)
            }
        });
        join_all(carried_out).await
    }

    fn carry_out<'a>(
        &'a self,
        order: &EffectOrder,
        call: ToolCall,
        options: CallOptions,
    ) -> BoxFuture<'a, ToolResult> {
        let recorded = self.observer.as_ref().and_then(|observer| observer.instead(&call, &options));
        recorded.unwrap_or_else(|| Box::pin(self.orchestrator.execute_in_turn(order, call, options)))
    }

    fn append(&self, input: &RunInput) -> Result<(), JournalError> {
        self.options.journal.as_ref().map_or(Ok(()), |journal| journal.append(input))
    }

    async fn sync(&self, durability: Durability) -> Result<(), JournalError> {
        match &self.options.journal {
            Some(journal) => journal.sync(durability).await,
            None => Ok(()),
        }
    }

    /// Updates the context size. The usage that the provider reports is exact; without it, the driver counts the text
    /// of the reply.
    fn update_context_tokens(&self, reply: &ModelReply) {
        let Some(budget) = &self.options.budget else { return };
        match reply.usage {
            Some(usage) => budget.report(usage.input.saturating_add(usage.output)),
            None => budget.add(reply.text()),
        }
    }

    fn readings(&self, run: &AgentRun) -> DriverReadings {
        let time = self.scope.elapsed(Instant::now().into_std());
        let (meter, context_tokens) = (&self.scope.meter, self.context_tokens());
        let live = DriverReadings {
            now_ms: now_ms(),
            left: meter.left(time),
            context_tokens,
            request_usd: context_tokens.and_then(|tokens| meter.expected_usd(tokens)),
            fixed_tokens: self
                .options
                .budget
                .as_ref()
                .map(|budget| budget.schema_tokens().saturating_add(text_tokens(run.system()))),
        };
        self.observer.as_ref().map_or(live, |observer| observer.readings(self.options.place, live))
    }

    fn context_tokens(&self) -> Option<u64> {
        self.options.budget.as_ref().map(|budget| budget.taken_tokens())
    }

    /// Returns the position of a turn in this run. A run that continues a session also continues its turn numbers.
    fn place(&self, turn: u32) -> RunPosition {
        let before = self.options.place.turn.saturating_sub(1);
        RunPosition { turn: before.saturating_add(turn.max(1)), ..self.options.place }
    }

    fn emit(&self, place: RunPosition, event: RunEvent) {
        self.scope.meter.emit(Event::Run { place, event: Arc::new(event) });
    }
}

/// Measures the run's system text and conversation, and stores the sizes in the context budget.
pub fn measure_conversation(budget: &ContextWindow, run: &AgentRun) {
    let contents: Vec<VisibleContent> =
        run.conversation().messages().iter().map(|message| VisibleContent::of(message)).collect();
    let media_tokens = contents.iter().map(|content| content.media_tokens).sum();
    let texts = contents.into_iter().map(|content| content.text);
    budget.replace_conversation(std::iter::once(run.system().to_owned()).chain(texts), media_tokens);
}

/// Returns the names of the tools that search results define.
fn found_tools(input: &RunInput) -> Vec<String> {
    let RunInput::Ended(ends) = input else { return Vec::new() };
    let replies = ends.iter().filter_map(|end| match end {
        CallEnd::Replied(reply) => Some(&reply.content),
        CallEnd::AwaitsApproval(_) => None,
    });
    replies.flat_map(|content| defined_names(content)).collect()
}

/// Returns the names of the tools that a message defines.
fn defined_in(message: &Message) -> impl Iterator<Item = String> {
    message.parts.iter().filter_map(MessagePart::as_reply).flat_map(|reply| defined_names(&reply.content))
}

fn defined_names(content: &[OutputContent]) -> impl Iterator<Item = String> {
    let found = content.iter().filter_map(|content| match content {
        OutputContent::FoundTools(found) => Some(found.defined.iter().cloned()),
        _ => None,
    });
    found.flatten()
}

fn search_scope(run: &AgentRun) -> Option<Arc<SearchScope>> {
    run.plan().search()?;
    let shown = run.tools().iter().map(|tool| tool.name.clone()).collect();
    let allowed = run.plan().allowed_tools.as_ref().map(|names| names.iter().cloned().collect());
    let defined = run.conversation().messages().iter().flat_map(|message| defined_in(message)).collect();
    Some(Arc::new(SearchScope { shown, allowed, defined, ..SearchScope::default() }))
}

fn answered(result: &ToolResult) -> CallAnswer {
    CallAnswer {
        call: result.call.id.clone(),
        name: result.call.name.clone(),
        failure: result.error_kind(),
        text: result.text(),
        latency: result.receipt.latency,
    }
}

/// Returns the error that the run receives when a reply takes too long.
pub fn reply_timeout_error(limit: Duration) -> ModelError {
    let message =
        format!("the model sent no complete reply within {} (`llmTimeout`)", duration_text::in_words(limit));
    ModelError::new(ModelErrorKind::Timeout, message)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

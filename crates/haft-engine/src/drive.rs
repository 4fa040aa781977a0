//! Drives a run: does what the run says is next, and tells it what came of it. Every decision is the run's.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use haft_core::event::{Event, EventSink};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_provider::{ModelContext, ModelProvider};
use haft_core::model_reply::{ModelReply, ReplyFold};
use haft_core::model_request::{ModelRequest, ModelTool};
use haft_core::place::Place;
use haft_core::result::ToolResult;
use haft_core::run::event::{Answered, RunEvent};
use haft_core::run::finish::Finish;
use haft_core::run::meter::Amount;
use haft_core::run::scope::RunScope;
use haft_core::run::told::{CallEnd, Told};
use haft_core::run::{Abort, AgentRun, Readings, RunError, Step};
use haft_core::tool::ToolCall;
use tokio::time::{Instant, timeout, timeout_at};

use crate::options::CallOptions;
use crate::orchestrator::Orchestrator;
use crate::order::EffectOrder;
use crate::outlook::Outlook;
use crate::witness::Witness;
use haft_core::run::chronicle::{Haste, Unrecorded};

/// What a run is driven with. To drop the future of [`Driver::drive`] is to cancel whatever is under way; the run stays
/// and can be aborted, stored or driven again.
#[derive(Clone)]
pub struct Driver<'a> {
    pub models: &'a dyn ModelProvider,
    pub orchestrator: &'a Orchestrator,
    /// Its meter sees the events of models, calls and of the run; what it counted is held against the run's budget.
    pub scope: Arc<RunScope>,
    /// For every call. The place names the session; the turn is the run's.
    pub options: CallOptions,
    /// How long a model may take for one reply.
    pub reply_timeout: Duration,
    /// Whoever records the run, or plays a recording.
    pub witness: Option<Arc<dyn Witness>>,
}

impl fmt::Debug for Driver<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("models", &self.models.name())
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// Why driving stopped.
#[derive(Debug)]
pub enum Driven {
    Done(Finish),
    /// Whoever asked carries these out and tells the run; then it can be driven on.
    AwaitsClient(Vec<ToolCall>),
    /// A person answers about these and the run is told; then it can be driven on.
    AwaitsApproval(Vec<ToolCall>),
}

/// Why driving cannot go on.
enum Halt {
    Mistake(RunError),
    Unrecorded(Unrecorded),
}

impl From<RunError> for Halt {
    fn from(error: RunError) -> Self {
        Self::Mistake(error)
    }
}

impl From<Unrecorded> for Halt {
    fn from(unrecorded: Unrecorded) -> Self {
        Self::Unrecorded(unrecorded)
    }
}

impl Driver<'_> {
    /// An error is a mistake in here or in the run, never in what a model said.
    pub async fn drive(&self, run: &mut AgentRun) -> Result<Driven, RunError> {
        let driven = match timeout_at(Instant::from_std(self.scope.until), self.steps(run)).await {
            Ok(Ok(driven)) => driven,
            Ok(Err(Halt::Mistake(error))) => return Err(error),
            Ok(Err(Halt::Unrecorded(unrecorded))) => {
                return self.abort(run, Abort::Unrecorded(unrecorded.to_string())).await;
            }
            Err(_) => return self.abort(run, Abort::TimedOut).await,
        };
        self.stopped(run, driven).await
    }

    /// Ends the run now, on record. What was under way has been cancelled by then.
    pub async fn abort(&self, run: &mut AgentRun, why: Abort) -> Result<Driven, RunError> {
        // What can no longer be put down is known by what is missing.
        let _ = self.put_down(&Told::Aborted(why.clone()));
        self.witness.iter().for_each(|witness| witness.aborted(self.options.place, &why));
        run.abort(why);
        match run.next_step(&self.readings()) {
            Step::Done(finish) => self.stopped(run, Driven::Done(finish)).await,
            Step::CallModel(_) | Step::CallTools(_) | Step::AwaitClient(_) | Step::AwaitApproval(_) => {
                Err(RunError::Unexpected { given: "its end", waits_for: "more" })
            }
        }
    }

    /// Tells the run something that did not come of driving it, on record.
    pub fn tell_run(&self, run: &mut AgentRun, told: Told) -> Result<(), RunError> {
        // Should it fail, so will what comes next, and that ends the run.
        let _ = self.put_down(&told);
        run.told(told)
    }

    async fn stopped(&self, run: &AgentRun, driven: Driven) -> Result<Driven, RunError> {
        if let Driven::Done(finish) = &driven {
            let place = self.place(run.counts().turns);
            self.tell(place, RunEvent::Finished { finish: finish.clone(), bill: self.scope.meter.bill() });
        }
        // Nothing follows that could be lost.
        let _ = self.secure(Haste::Now).await;
        Ok(driven)
    }

    async fn steps(&self, run: &mut AgentRun) -> Result<Driven, Halt> {
        let mut seen = self.orchestrator.outlook(&self.options.context);
        loop {
            self.renew_tools(run, &mut seen);
            self.until_settled().await;
            let readings = self.readings();
            let step = run.next_step(&readings);
            self.put_down(&Told::Stepped(readings))?;
            for note in run.take_notes() {
                self.tell(self.place(run.counts().turns), RunEvent::Noted(note));
            }
            match step {
                Step::CallModel(request) => {
                    let told = match self.ask_in_time(run, *request).await {
                        Ok(reply) => Told::Replied(reply),
                        Err(error) => Told::Failed(error),
                    };
                    self.put_down(&told)?;
                    run.told(told)?;
                }
                Step::CallTools(calls) => {
                    for told in self.call(run, calls).await {
                        run.told(told?)?;
                    }
                }
                Step::AwaitClient(calls) => return Ok(Driven::AwaitsClient(calls)),
                Step::AwaitApproval(calls) => return Ok(Driven::AwaitsApproval(calls)),
                Step::Done(finish) => return Ok(Driven::Done(finish)),
            }
        }
    }

    /// A server may have found new tools, and what was stored can be asked about from then on.
    fn renew_tools(&self, run: &mut AgentRun, seen: &mut Outlook) {
        let now = self.orchestrator.outlook(&self.options.context);
        let changed = (now != *seen)
            .then(|| self.orchestrator.model_tools(&self.options.selection, &self.options.context));
        let changed = match &self.witness {
            Some(witness) => witness.tools(self.options.place, changed),
            None => changed,
        };
        if let Some(tools) = changed {
            run.set_tools(&tools);
            if let Some(budget) = &self.options.budget {
                budget.set_schemas(run.tools().iter().map(definition));
            }
            *seen = now;
        }
    }

    /// What others have set aside is more than most requests take: nobody is cut short because of it who can wait until it is
    /// known. Whoever has set something aside waits for a model and for nothing else, so this ends.
    async fn until_settled(&self) {
        poll_fn(|cx| self.scope.meter.poll_settled(cx)).await;
    }

    async fn ask_in_time(&self, run: &AgentRun, request: ModelRequest) -> Result<ModelReply, ModelError> {
        let _held = self.scope.meter.hold(self.worst_case(&request));
        let reply = timeout(self.reply_timeout, self.ask(run, request)).await;
        reply.unwrap_or_else(|_| Err(not_in_time(self.reply_timeout)))
    }

    /// What a request may take, so that those who work at the same time do not spend it too.
    fn worst_case(&self, request: &ModelRequest) -> Amount {
        let output = request.output_tokens_max.unwrap_or_default();
        let tokens = self.context_tokens().unwrap_or_default().saturating_add(output.into());
        Amount { tokens, calls: 0 }
    }

    async fn ask(&self, run: &AgentRun, request: ModelRequest) -> Result<ModelReply, ModelError> {
        // A turn counts once its reply is of use.
        let place = self.place(run.counts().turns.saturating_add(1));
        self.tell(place, RunEvent::Asked);
        let id = format!("{}/{}", place.session, place.turn);
        let principal = self.options.context.principal.clone();
        let cx =
            ModelContext::new(id, principal, Arc::clone(&self.scope.meter) as Arc<dyn EventSink>).at(place);
        let mut events = self.models.ask(request, &cx);
        let mut fold = ReplyFold::default();
        while let Some(event) = events.next().await {
            let event = event?;
            fold.apply(&event);
            self.tell(place, RunEvent::Said(event));
        }
        let reply = fold.finish();
        self.weigh(&reply);
        Ok(reply)
    }

    /// Each call has its place in the order before the first begins, and is put on record and told of as soon as it ends.
    async fn call(&self, run: &AgentRun, calls: Vec<ToolCall>) -> Vec<Result<Told, Unrecorded>> {
        let order = EffectOrder::default();
        let place = self.place(run.counts().turns);
        let options = CallOptions { place, scope: Some(Arc::clone(&self.scope)), ..self.options.clone() };
        let carried_out = calls.into_iter().map(|call| {
            self.tell(place, RunEvent::Called(call.clone()));
            let ends = self.carry_out(&order, call, options.clone());
            let held = self.scope.meter.hold(Amount { tokens: 0, calls: 1 });
            async {
                let result = ends.await;
                drop(held);
                self.witness.iter().for_each(|witness| witness.ended(place, &result));
                let answered = RunEvent::Answered(answered(&result));
                let haste = self.orchestrator.haste_for(&result.call.name);
                let told = Told::Ended(vec![CallEnd::of(result)]);
                self.put_down(&told)?;
                self.secure(haste).await?;
                self.tell(place, answered);
                Ok(told)
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
        let recorded = self.witness.as_ref().and_then(|witness| witness.instead(&call, &options));
        recorded.unwrap_or_else(|| Box::pin(self.orchestrator.execute_in_turn_with(order, call, options)))
    }

    fn put_down(&self, told: &Told) -> Result<(), Unrecorded> {
        self.options.chronicle.as_ref().map_or(Ok(()), |chronicle| chronicle.told(told))
    }

    async fn secure(&self, haste: Haste) -> Result<(), Unrecorded> {
        match &self.options.chronicle {
            Some(chronicle) => chronicle.secure(haste).await,
            None => Ok(()),
        }
    }

    /// The provider knows best how much the conversation takes; where it says nothing, what was added is counted.
    fn weigh(&self, reply: &ModelReply) {
        let Some(budget) = &self.options.budget else { return };
        match reply.usage {
            Some(usage) => budget.report(usage.input.saturating_add(usage.output)),
            None => budget.add(reply.text()),
        }
    }

    fn readings(&self) -> Readings {
        let time = Instant::now().duration_since(Instant::from_std(self.scope.began));
        let live = Readings {
            now_ms: now_ms(),
            left: self.scope.meter.left(time),
            context_tokens: self.context_tokens(),
        };
        self.witness.as_ref().map_or(live, |witness| witness.readings(self.options.place, live))
    }

    fn context_tokens(&self) -> Option<u64> {
        self.options.budget.as_ref().map(|budget| budget.taken_tokens())
    }

    /// Turns of a run that goes on in a session are counted on from those before it.
    fn place(&self, turn: u32) -> Place {
        let before = self.options.place.turn.saturating_sub(1);
        Place { turn: before.saturating_add(turn.max(1)), ..self.options.place }
    }

    fn tell(&self, place: Place, event: RunEvent) {
        self.scope.meter.emit(Event::Run { place, event: Arc::new(event) });
    }
}

fn answered(result: &ToolResult) -> Answered {
    Answered {
        call: result.call.id.clone(),
        name: result.call.name.clone(),
        failure: result.error_kind(),
        text: result.text(),
        latency: result.receipt.latency,
    }
}

/// What the run is told of a reply that took too long.
pub fn not_in_time(limit: Duration) -> ModelError {
    let message = format!("no whole reply within {} ms (`llmTimeout`)", limit.as_millis());
    ModelError::new(ModelErrorKind::Timeout, message)
}

/// A tool as it stands in a model's context, near enough to be counted.
pub fn definition(tool: &ModelTool) -> String {
    format!("{} {} {}", tool.name, tool.description, tool.input_schema)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

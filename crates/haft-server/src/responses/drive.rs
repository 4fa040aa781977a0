//! A response in progress: drives its run, and converts the run's events into items and stream events.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::conversation::Message;
use haft_core::event_log::{EventEnvelope, LogEvent};
use haft_core::stored::StoredMessage;
use haft_core::tool::ToolCall;
use haft_runtime::{ApprovalDecision, EventSeq, ParkReason, PendingApproval, RunEvents, RunHandle, RunState};
use haft_store::api_keys::KeyScope;
use haft_store::pending_approvals::{PendingApprovalRecord, PendingApprovalRequest};
use haft_store::responses::{NewResponse, UnfinishedResponse, WaitingApproval};
use serde_json::Value;
use tokio::time::timeout;

use super::approvals::ApprovalAnswers;
use super::event_block::EventBlock;
use super::fold::{ResponseFold, StreamEvent};
use super::object::{EVENTS_LOST_CODE, ResponseEnd, is_open, usage_object};
use super::request::TurnSealing;
use super::requested_servers;
use super::sealed_run::{ResumableRun, SuspendedResponse};
use super::workspace::{ResponseWorkspace, WatchedWorkspace};
use super::{run_fields, sealed_turn};
use crate::auth::{Caller, now_ms};
use crate::conversations;
use crate::error::{ApiError, ApiErrorKind};
use crate::pending_approvals;
use crate::server::{ActiveWork, ServerState};
use crate::storage_limits::RETRY_AFTER_S;
use crate::store_errors::StoreKind;

/// The maximum size of a response that is written on the current thread. For so few bytes, the kernel only copies them
/// into its cache, and a switch to another thread would take longer than the write.
const INLINE_WRITE_BYTES_MAX: usize = 64 << 10;

/// The time before the server first tries again to store the end of a background response. Each further pause is twice
/// as long, up to [`STORE_PAUSE_MAX`].
const STORE_PAUSE_MIN: Duration = Duration::from_secs(1);

const STORE_PAUSE_MAX: Duration = Duration::from_secs(30);

/// A response whose run is in progress. Dropping it cancels the run.
pub(crate) struct ActiveResponse {
    state: Arc<ServerState>,
    handle: RunHandle,
    events: RunEvents,
    fold: ResponseFold,
    /// Resolves when the run waits for the client. `None` after that until the run continues, and after the run was
    /// stopped.
    parking: Option<BoxFuture<'static, ParkReason>>,
    /// The answers to the approval requests of the previous response; `None` for a new run.
    answers: Option<ApprovalAnswers>,
    client_calls: Vec<ToolCall>,
    /// True if the response has missed events of its run, and is not stored.
    has_gap: bool,
    /// The calls that the client must approve.
    approvals: Vec<WaitingApproval>,
    /// The ended response with its run; `None` unless the response waits for approvals and is not stored.
    suspended: Option<SuspendedResponse>,
    /// The tool calls that are running, including calls of sub-agents.
    running_calls: HashSet<u64>,
    /// The `type` of the HTTP error; `None` if the response has not failed.
    error_type: Option<&'static str>,
    kept: KeptResponse,
    /// All events so far, if readers may connect later.
    replayable: Vec<EventBlock>,
    progress: ResponseProgress,
    /// The workspace; `None` for a run that cannot use files.
    workspace: Option<WatchedWorkspace>,
    /// The name of the workspace that the conversation already has, even if this run does not use it; `None` if it has
    /// none.
    known_workspace: Option<String>,
    /// Counts this response among the responses that a stopping server waits for.
    _active: ActiveWork,
}

/// The run behind a response.
pub(crate) struct ResponseRun {
    pub(crate) handle: RunHandle,
    pub(crate) answers: Option<ApprovalAnswers>,
    /// The number of the first event that belongs to the response.
    pub(crate) first_event: EventSeq,
    /// The workspace; `None` for a run that cannot use files.
    pub(crate) workspace: Option<ResponseWorkspace>,
    /// The name of the workspace that the conversation already has. The run need not use it.
    pub(crate) known_workspace: Option<String>,
}

/// The data that is needed to store a response.
#[derive(Debug)]
pub(crate) struct KeptResponse {
    pub(crate) caller: Caller,
    /// The input items in their JSON form.
    pub(crate) input: Vec<Value>,
    /// The conversation before the response.
    pub(crate) opening: Vec<StoredMessage>,
    pub(crate) storage: ResponseStorage,
    /// The id of the conversation that the items are added to.
    pub(crate) conversation: Option<String>,
    /// The number of the first event that belongs to the response.
    pub(crate) first_event: EventSeq,
    pub(crate) request_digest: Option<String>,
    /// Warnings for the client that are known only when the run has started.
    pub(crate) warnings: Vec<String>,
    /// The labels of the MCP servers whose tool lists were in the conversation before the response.
    pub(crate) listed: BTreeSet<String>,
}

/// The end of a response, from which the same connection can continue even if the response is not stored.
#[derive(Debug, Clone)]
pub(crate) struct LastResponse {
    pub(crate) id: String,
    pub(crate) messages: Vec<Message>,
    pub(crate) open_calls: Vec<String>,
    pub(crate) workspace: Option<String>,
    /// The labels of the MCP servers whose tool lists are in the conversation.
    pub(crate) listed: BTreeSet<String>,
    /// The response with its run, if it waits for approvals.
    pub(crate) suspended: Option<SuspendedResponse>,
}

/// Selects whether a response is stored after it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseStorage {
    Stored,
    /// The response is stored together with its events when it has ended, because a repeated request with the same
    /// idempotency key gets the stream again.
    StoredWithEvents,
    /// The response is stored together with all its events, starting at its beginning.
    StoredForReplay,
    /// The response is not stored, because the client keeps the conversation itself.
    Discarded,
}

impl ResponseStorage {
    /// Returns true if readers may read the events again after they were sent.
    fn keeps_events(self) -> bool {
        match self {
            Self::StoredWithEvents | Self::StoredForReplay => true,
            Self::Stored | Self::Discarded => false,
        }
    }
}

#[derive(Debug)]
enum ResponseProgress {
    New,
    /// The run waits in the run queue.
    Queued,
    Working,
    Ended(Box<EndedResponse>),
    /// The server is stopping, and the next process continues the response.
    Suspended,
}

/// The final object of a response.
#[derive(Debug, Clone)]
pub(crate) struct EndedResponse {
    pub(crate) response: Value,
    pub(crate) end: ResponseEnd,
    pub(crate) tool_began: bool,
    /// The data that the server could not store, for the header `haft-warnings`.
    pub(crate) warnings: Vec<&'static str>,
}

/// The outcome of storing the end of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndStorage {
    /// The response is stored, or its client asked not to store it.
    AsRequested,
    /// The response is not stored, and only its reply contains it.
    Lost,
    /// The server is stopping, and the next process continues the response.
    Unfinished,
}

/// The error message of a response that has missed events of its run.
const EVENTS_LOST: &str = "the client read the stream too slowly, so the server lost events of a response that it does \
    not store; read faster, or send `store: true`";

/// The warning about a response that is not stored although its client asked for it.
const NOT_STORED: &str = "the server could not store this response, so `store` is false";

/// The warning about a response whose items were not added to its conversation.
const NOT_IN_CONVERSATION: &str =
    "the server could not add this response to its conversation, so `conversation` is null";

impl ActiveResponse {
    pub(crate) fn new(active: ActiveWork, run: ResponseRun, fold: ResponseFold, kept: KeptResponse) -> Self {
        let ResponseRun { handle, answers, first_event, workspace, known_workspace } = run;
        let watched = workspace.map(|workspace| workspace.watch(handle.clone()));
        Self {
            events: handle.events(first_event),
            parking: Some(parking(handle.clone())),
            state: Arc::clone(active.state()),
            _active: active,
            handle,
            fold,
            answers,
            client_calls: Vec::new(),
            has_gap: false,
            approvals: Vec::new(),
            suspended: None,
            running_calls: HashSet::new(),
            error_type: None,
            kept,
            replayable: Vec::new(),
            progress: ResponseProgress::New,
            workspace: watched,
            known_workspace,
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.fold.head().id
    }

    pub(crate) fn handle(&self) -> &RunHandle {
        &self.handle
    }

    pub(crate) fn state(&self) -> &Arc<ServerState> {
        &self.state
    }

    pub(crate) fn warnings(&self) -> &[String] {
        &self.kept.warnings
    }

    pub(crate) fn request_digest(&self) -> Option<String> {
        self.kept.request_digest.clone()
    }

    /// Returns the conversation after the response; `None` before the response has ended. Also returns `None` if the
    /// response is stored and waits for approvals, because the answers then resume the stored run.
    pub(crate) fn continuation(&self) -> Option<LastResponse> {
        let continues = self.approvals.is_empty() || self.suspended.is_some();
        let conversation = self.handle.conversation().filter(|_| continues)?;
        Some(LastResponse {
            id: self.fold.head().id.clone(),
            messages: conversation.messages().iter().map(|message| Message::clone(message)).collect(),
            open_calls: self.open_calls(),
            workspace: self.workspace_name(),
            listed: self.listed(),
            suspended: self.suspended.clone(),
        })
    }

    /// Returns the labels of the MCP servers whose tool lists are in the conversation after the response.
    fn listed(&self) -> BTreeSet<String> {
        let mut listed = self.kept.listed.clone();
        listed.extend(requested_servers::listed_in(self.fold.head().listed.iter()));
        listed
    }

    /// Returns the end of the response; `None` before it has ended, or if another process continues it.
    pub(crate) fn ended(&self) -> Option<&EndedResponse> {
        match &self.progress {
            ResponseProgress::Ended(ended) => Some(ended),
            ResponseProgress::New
            | ResponseProgress::Queued
            | ResponseProgress::Working
            | ResponseProgress::Suspended => None,
        }
    }

    fn workspace_name(&self) -> Option<String> {
        let own = self.workspace.as_ref().map(|workspace| workspace.name().to_owned());
        own.or_else(|| self.known_workspace.clone())
    }

    fn open_calls(&self) -> Vec<String> {
        self.client_calls.iter().map(|call| call.id.0.clone()).collect()
    }

    /// Stores the response before it ends, so that the client can request the response as soon as it knows the id.
    /// After an error, the client could never read the response, so the caller must end it.
    pub(crate) async fn store_beginning(&mut self) -> Result<(), ApiError> {
        let stored = self.write_beginning().await;
        stored.map_err(|error| {
            self.state.store_errors.note(StoreKind::Responses, &error);
            // The full error may contain a path of the server, which the client must not see.
            let message = format!("the server cannot store the response: {}; try again later", error.kind());
            ApiError::new(ApiErrorKind::Unavailable, message).with_code("store_failed").after(RETRY_AFTER_S)
        })
    }

    async fn write_beginning(&mut self) -> io::Result<()> {
        if self.kept.storage == ResponseStorage::StoredForReplay {
            // Record the unfinished response first, so that a crash cannot leave a stored response that no process
            // continues.
            self.mark_unfinished().await?;
        }
        let head = self.fold.head();
        let mut items = head.first_items();
        if head.sealing == TurnSealing::On {
            items.push(head.sealed_item(items.len(), None));
        }
        let usage = head.compaction_usage.map(usage_object);
        let response = head.open_object(head.first_status(), items, usage);
        self.store(&response).await
    }

    async fn mark_unfinished(&mut self) -> io::Result<()> {
        let owner = self.handle.principal();
        let unfinished = UnfinishedResponse {
            id: self.id().to_owned(),
            run: self.handle.id().to_string(),
            tenant: owner.tenant().to_owned(),
            subject: owner.subject().to_owned(),
            credential_id: owner.credential_id().to_owned(),
            scopes: self.kept.caller.scopes.iter().map(|scope| scope.name().to_owned()).collect(),
        };
        let store = self.state.responses.clone();
        written(tokio::task::spawn_blocking(move || store.begin(&unfinished))).await
    }

    /// Returns the next events of the stream; `None` after the last ones. Cancelling this future loses no events.
    pub(crate) async fn next(&mut self) -> Option<Vec<StreamEvent>> {
        let events = self.next_events().await?;
        if self.kept.storage.keeps_events() && !self.has_ended() {
            self.replayable.extend(events.iter().map(EventBlock::of));
        }
        Some(events)
    }

    /// Returns the events that [`next`](Self::next) returned last, as text. Shares the text of replayable events.
    pub(crate) fn blocks(&self, events: &[StreamEvent]) -> Vec<EventBlock> {
        match self.kept.storage {
            ResponseStorage::StoredWithEvents | ResponseStorage::StoredForReplay => {
                self.replayable[self.replayable.len().saturating_sub(events.len())..].to_vec()
            }
            ResponseStorage::Stored | ResponseStorage::Discarded => {
                events.iter().map(EventBlock::of).collect()
            }
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.progress, ResponseProgress::Ended(_) | ResponseProgress::Suspended)
    }

    async fn next_events(&mut self) -> Option<Vec<StreamEvent>> {
        match self.progress {
            ResponseProgress::New => {
                let is_queued = self.fold.head().is_queued;
                self.progress = if is_queued { ResponseProgress::Queued } else { ResponseProgress::Working };
                return Some(self.fold.start());
            }
            ResponseProgress::Queued => return self.leave_queue().await,
            ResponseProgress::Ended(_) | ResponseProgress::Suspended => return None,
            ResponseProgress::Working => {}
        }
        loop {
            match self.next_step().await {
                ResponseStep::Event(event) => {
                    self.count_calls(&event);
                    let events = self.fold.apply(&event);
                    if !events.is_empty() {
                        self.make_replayable().await;
                        return Some(events);
                    }
                }
                ResponseStep::Parked(reason) => self.answer_run(reason),
                // Stop the run, which the next process resumes. No tool call is running, so the stop interrupts none.
                ResponseStep::Suspend => self.stop_run(),
                ResponseStep::Gap => self.handle_gap(),
                ResponseStep::Ended => return self.finish().await,
            }
        }
    }

    /// Ends an unstored response whose events are lost: it could only end with missing items, and its client would not
    /// notice. The run of a stored response goes on if its events cannot be read, because it has its own journal.
    fn handle_gap(&mut self) {
        match self.kept.storage {
            ResponseStorage::Discarded => {
                self.parking = None;
                self.has_gap = true;
                self.handle.cancel();
            }
            ResponseStorage::Stored
            | ResponseStorage::StoredWithEvents
            | ResponseStorage::StoredForReplay => {}
        }
    }

    /// Waits until the run is admitted by the run queue, or is stopped.
    async fn leave_queue(&mut self) -> Option<Vec<StreamEvent>> {
        let is_resumed_later = self.kept.storage == ResponseStorage::StoredForReplay;
        tokio::select! {
            biased;
            () = self.handle.admitted() => {}
            () = self.state.stopped(), if is_resumed_later => self.stop_run(),
        }
        if self.handle.is_admitted() {
            self.progress = ResponseProgress::Working;
            return Some(self.fold.begin());
        }
        self.finish().await
    }

    async fn next_step(&mut self) -> ResponseStep {
        let suspends = self.kept.storage == ResponseStorage::StoredForReplay
            && self.running_calls.is_empty()
            && self.parking.is_some();
        let Self { parking, events, state, .. } = self;
        let parked = async {
            match parking {
                Some(parking) => parking.await,
                None => std::future::pending().await,
            }
        };
        let step = tokio::select! {
            biased;
            event = events.next() => match event {
                Some(Ok(event)) => ResponseStep::Event(event),
                // The channel has dropped events, because this response read them too slowly, or the server cannot read
                // the stored events.
                Some(Err(_)) => ResponseStep::Gap,
                None => ResponseStep::Ended,
            },
            reason = parked => ResponseStep::Parked(reason),
            () = state.stopped(), if suspends => ResponseStep::Suspend,
        };
        if let ResponseStep::Parked(_) = step {
            self.parking = None;
        }
        step
    }

    /// Waits until the events are stored. A client must not see an event that the next process could not repeat after a
    /// crash.
    async fn make_replayable(&mut self) {
        if self.kept.storage == ResponseStorage::StoredForReplay {
            self.handle.events_stored().await;
        }
    }

    fn count_calls(&mut self, envelope: &EventEnvelope) {
        match &envelope.event.kind {
            LogEvent::ToolStarted { operation, .. } => drop(self.running_calls.insert(*operation)),
            LogEvent::ToolFinished { operation, .. } => drop(self.running_calls.remove(operation)),
            // Calls of an earlier process are no longer running.
            LogEvent::RunStarted { .. } if envelope.parent.is_none() => self.running_calls.clear(),
            _ => {}
        }
    }

    /// Passes the client's decisions to the run, or ends the response so that the client can decide.
    fn answer_run(&mut self, reason: ParkReason) {
        match reason {
            ParkReason::ClientOutputs(calls) => {
                self.client_calls = calls;
                // Cancel this run instead of suspending it, because the follow-up request starts a new run.
                self.handle.cancel();
            }
            ParkReason::Approval(pending) => {
                let decided = pending.iter().filter_map(|one| Some((one.id, self.decision(one)?)));
                let decided: Vec<_> = decided.collect();
                // Pass on no decision until the client has decided about all calls. A call that is approved now would
                // start at once, and the suspension for the undecided calls would interrupt it.
                if decided.is_empty() || self.answers.as_ref().is_some_and(ApprovalAnswers::is_partial) {
                    return self.handle.suspend();
                }
                for (id, decision) in decided {
                    // Ignore the error: the call was cancelled in the meantime and needs no decision.
                    let _ = self.handle.decide(id, decision);
                }
                self.parking = Some(parking(self.handle.clone()));
            }
            // This case does not happen: runs of the server decline all elicitation requests and never wait for
            // secrets.
            ParkReason::Elicitation(_) | ParkReason::Credentials(_) => {}
        }
    }

    /// Returns the decision about a call; `None` if the client must be asked. Denies a call that already waited in an
    /// earlier response and was not shown to the client because its key may not approve it.
    fn decision(&self, pending: &PendingApproval) -> Option<ApprovalDecision> {
        let answers = self.answers.as_ref()?;
        let was_hidden = pending.why.is_empty() && !answers.is_open(pending);
        answers.decision(pending).or_else(|| was_hidden.then_some(ApprovalDecision::Deny))
    }

    /// Returns true if the client must decide one of these calls before the run can continue.
    fn waits_for_client(&self, pending: &[PendingApproval]) -> bool {
        let is_partial = self.answers.as_ref().is_some_and(ApprovalAnswers::is_partial);
        pending.iter().any(|one| is_partial || self.decision(one).is_none())
    }

    fn stop_run(&mut self) {
        self.parking = None;
        self.handle.suspend();
    }

    /// Drives the run to its end and returns the final object.
    pub(crate) async fn finished(mut self) -> EndedResponse {
        if !self.kept.storage.keeps_events() {
            self.fold.without_events();
        }
        while self.next().await.is_some() {}
        match std::mem::replace(&mut self.progress, ResponseProgress::Suspended) {
            ResponseProgress::Ended(ended) => *ended,
            ResponseProgress::New
            | ResponseProgress::Queued
            | ResponseProgress::Working
            | ResponseProgress::Suspended => EndedResponse {
                response: Value::Null,
                end: ResponseEnd::failed(
                    "server_error",
                    "server_error",
                    "the server is stopping and cannot complete the response",
                ),
                tool_began: self.fold.tool_began(),
                warnings: Vec::new(),
            },
        }
    }

    /// Ends the response. Returns `None` if another process continues it.
    async fn finish(&mut self) -> Option<Vec<StreamEvent>> {
        let stopped = self.handle.stopped().await;
        let pending = self.handle.pending_approvals();
        let mut events = Vec::new();
        let mut end = match stopped {
            _ if self.has_gap => ResponseEnd::failed("server_error", EVENTS_LOST_CODE, EVENTS_LOST),
            // The server is stopping, and the client has already decided about every call that waits. The next process
            // passes these decisions to the run, so do not ask the client again.
            Ok(RunState::Suspended) if !self.waits_for_client(&pending) => {
                self.progress = ResponseProgress::Suspended;
                return None;
            }
            Ok(RunState::Suspended) => {
                events = self.request_approvals(pending);
                ResponseEnd::completed()
            }
            Ok(RunState::Finished(_)) if !self.client_calls.is_empty() => {
                let calls = std::mem::take(&mut self.client_calls);
                events = self.fold.client_calls(&calls);
                self.client_calls = calls;
                ResponseEnd::completed()
            }
            Ok(RunState::Finished(outcome)) => {
                let exceeded = self.workspace.as_ref().and_then(WatchedWorkspace::failure);
                exceeded.unwrap_or_else(|| ResponseEnd::of(&outcome.finish, self.fold.head().truncation()))
            }
            Ok(RunState::Parked(reason)) => ResponseEnd::failed(
                "server_error",
                "server_error",
                format!("the run waits for an answer that this API cannot deliver: {reason:?}"),
            ),
            Err(defect) => ResponseEnd::failed("server_error", "server_error", defect.to_string()),
        };
        if end.error.is_none() {
            match self.seal().await {
                Ok(sealed) => events.extend(sealed),
                Err(error) => end = ResponseEnd::failed("server_error", "server_error", error.message),
            }
        }
        let end = ResponseEnd { completed_s: (end.status == "completed").then(|| now_ms() / 1000), ..end };
        self.store_ended(end, events).await
    }

    /// Builds the final object and stores it. If a part could not be stored, corrects the fields `store` and
    /// `conversation` of the object, because clients rely on them.
    async fn store_ended(
        &mut self,
        end: ResponseEnd,
        mut events: Vec<StreamEvent>,
    ) -> Option<Vec<StreamEvent>> {
        self.error_type = end.error.as_ref().map(|error| error.kind);
        let (mut response, last) = self.fold.end(&end);
        events.extend(last);
        let is_disconnected = end.status == "cancelled" && self.kept.storage == ResponseStorage::Stored;
        if is_disconnected && self.kept.conversation.take().is_some() {
            // The client will probably send its input again, so do not add this input to the conversation.
            correct(&mut response, &mut events, "conversation", Value::Null);
        }
        let mut warnings = Vec::new();
        self.keep_replayable(&events);
        match self.store_end(&response).await {
            EndStorage::AsRequested => self.announce_approvals(&response).await,
            EndStorage::Lost => {
                correct(&mut response, &mut events, "store", false.into());
                warnings.push(NOT_STORED);
            }
            EndStorage::Unfinished => {
                self.progress = ResponseProgress::Suspended;
                return None;
            }
        }
        if !self.extend_conversation(&response).await {
            correct(&mut response, &mut events, "conversation", Value::Null);
            warnings.push(NOT_IN_CONVERSATION);
            self.store_correction(&response, &events).await;
        }
        let tool_began = self.fold.tool_began();
        let ended = EndedResponse { response, end, tool_began, warnings };
        self.progress = ResponseProgress::Ended(Box::new(ended));
        Some(events)
    }

    fn keep_replayable(&mut self, events: &[StreamEvent]) {
        if self.kept.storage.keeps_events() {
            self.replayable.extend(events.iter().map(EventBlock::of));
        }
    }

    /// Stores the end of the response. Tries again until a background response is stored, because its client has no
    /// other way to get it. Until then, the client reads that the response is in progress.
    async fn store_end(&mut self, response: &Value) -> EndStorage {
        let mut pause = STORE_PAUSE_MIN;
        loop {
            let Err(error) = self.store(response).await else { return EndStorage::AsRequested };
            self.state.store_errors.note(StoreKind::Responses, &error);
            match self.kept.storage {
                ResponseStorage::Stored | ResponseStorage::StoredWithEvents | ResponseStorage::Discarded => {
                    return EndStorage::Lost;
                }
                ResponseStorage::StoredForReplay => {}
            }
            if timeout(pause, self.state.stopped()).await.is_ok() {
                return EndStorage::Unfinished;
            }
            pause = (pause * 2).min(STORE_PAUSE_MAX);
        }
    }

    /// Replaces the stored response, if there is one, with the corrected response.
    async fn store_correction(&mut self, response: &Value, events: &[StreamEvent]) {
        if response["store"] == false {
            return;
        }
        self.replayable.truncate(self.replayable.len().saturating_sub(events.len()));
        self.keep_replayable(events);
        if let Err(error) = self.store(response).await {
            self.state.store_errors.note(StoreKind::Responses, &error);
        }
    }

    /// Adds the items of the approval requests that the response ends with.
    fn request_approvals(&mut self, pending: Vec<PendingApproval>) -> Vec<StreamEvent> {
        let needs_scope = self.kept.caller.require(KeyScope::Approvals).is_ok();
        let open: Vec<_> = pending.into_iter().filter(|one| self.decision(one).is_none()).collect();
        let mut events = match self.kept.storage {
            ResponseStorage::Discarded => self.fold.await_run(),
            ResponseStorage::Stored
            | ResponseStorage::StoredWithEvents
            | ResponseStorage::StoredForReplay => Vec::new(),
        };
        let (requests, approvals) = self.fold.approval_requests(&open, needs_scope);
        events.extend(requests);
        self.approvals = approvals;
        let partial = self.answers.iter().filter(|answers| answers.is_partial());
        self.approvals.extend(partial.flat_map(ApprovalAnswers::stored));
        events
    }

    /// Records the approval requests that the response ends with, and tells the operator's program about them.
    async fn announce_approvals(&mut self, response: &Value) {
        let open = self.approvals.iter().filter(|waiting| waiting.approved.is_none());
        let requests: Vec<_> = open.map(|waiting| pending_request(waiting, response)).collect();
        if requests.is_empty() || self.kept.storage == ResponseStorage::Discarded {
            return;
        }
        let owner = self.handle.principal();
        let record = PendingApprovalRecord {
            response: self.fold.head().id.clone(),
            run: self.handle.id().to_string(),
            tenant: owner.tenant().to_owned(),
            subject: owner.subject().to_owned(),
            credential_id: owner.credential_id().to_owned(),
            since_ms: self.fold.head().created_s * 1000,
            requests,
            is_announced: false,
        };
        let (state, added) = (Arc::clone(&self.state), record.clone());
        // A record that could not be stored is lost at a restart. The expiry of its requests is then checked only when
        // the client answers.
        let added = tokio::task::spawn_blocking(move || state.pending_approvals.add(added));
        if let Err(error) = written(added).await {
            self.state.store_errors.note(StoreKind::Approvals, &error);
        }
        if self.handle.is_cancelled() {
            // The run was cancelled after its suspension, before this record existed, so end it now.
            if let Some(record) = self.state.pending_approvals.take(&record.response) {
                // Box the future, because each of the futures around it would otherwise have its size.
                Box::pin(pending_approvals::end(&self.state, &record, "cancelled")).await;
            }
            return;
        }
        // Notify the operator's program last, so that the program finds the requests that the event names.
        self.state.webhook.announce(&self.state, &self.state.runtime.config().serve, &record);
    }

    /// Encrypts the data that the client needs to continue a response that is not stored.
    async fn seal(&mut self) -> Result<Vec<StreamEvent>, ApiError> {
        if self.approvals.is_empty() || self.kept.storage != ResponseStorage::Discarded {
            return Ok(self.seal_turn().await);
        }
        self.seal_run().await
    }

    /// Encrypts the suspended run, or the id of a stored one, into an output item. The client needs this item to answer
    /// the approval requests.
    async fn seal_run(&mut self) -> Result<Vec<StreamEvent>, ApiError> {
        let run = match self.handle.suspended_run() {
            Some(run) => ResumableRun::Whole(Box::new(run.clone())),
            // The previous response was stored, so the session of the run is stored too.
            None => ResumableRun::Stored(self.handle.id().to_string()),
        };
        let suspended = SuspendedResponse {
            id: self.fold.head().id.clone(),
            created_ms: self.fold.head().created_s * 1000,
            approvals: self.approvals.clone(),
            items: self.fold.approval_items(),
            fields: run_fields::of_head(self.fold.head()),
            workspace: self.workspace_name(),
            conversation: None,
            run,
        };
        let encrypted = suspended.seal(&self.state, &self.kept.caller).await?;
        self.suspended = Some(suspended);
        Ok(self.fold.seal(&encrypted))
    }

    /// Encrypts the turn into its item, if the client asked for one. If the keys cannot be read, the item stays empty,
    /// and the client can continue with the other items.
    async fn seal_turn(&mut self) -> Vec<StreamEvent> {
        if self.fold.head().sealing == TurnSealing::Off {
            return Vec::new();
        }
        // A turn that waits for approval is not complete.
        let complete = self.handle.conversation().filter(|_| self.approvals.is_empty());
        let Some(conversation) = complete else { return Vec::new() };
        let turn = (conversation, self.kept.opening.as_slice());
        let (id, rest) = (&self.fold.head().id, (self.open_calls(), self.workspace_name()));
        match sealed_turn::seal(&self.state, &self.kept.caller, id, turn, rest).await {
            Ok(encrypted) => self.fold.seal(&encrypted),
            Err(_) => Vec::new(),
        }
    }

    /// Adds the input and the output to the conversation. A conversation that was deleted in the meantime stays
    /// deleted. Returns false if the conversation does not contain the items.
    async fn extend_conversation(&mut self, response: &Value) -> bool {
        let Some(id) = self.kept.conversation.clone() else { return true };
        let output = response["output"].as_array().cloned().unwrap_or_default();
        let items = self.kept.input.iter().cloned().chain(output).collect();
        let (state, caller) = (Arc::clone(&self.state), self.kept.caller.clone());
        let Err(error) = conversations::append(&state, &caller, &id, items).await else { return true };
        // Note only a failed write. The other errors mean that the conversation was deleted or is full, which is no
        // failure of the store.
        if error.kind == ApiErrorKind::ServerError {
            state.store_errors.note(StoreKind::Conversations, &error.message);
        }
        false
    }

    /// Stores the response before the client sees its end, so that a follow-up request finds it.
    async fn store(&mut self, response: &Value) -> io::Result<()> {
        if self.kept.storage == ResponseStorage::Discarded {
            return Ok(());
        }
        let messages: Option<Vec<StoredMessage>> = self.handle.conversation().map(|conversation| {
            conversation.messages().iter().map(|message| StoredMessage::of(message)).collect()
        });
        let is_ended = !is_open(response);
        let unused = self.answers.as_ref().filter(|_| !is_ended).map(ApprovalAnswers::unused);
        let encoded = self.state.responses.encode(
            self.handle.principal(),
            NewResponse {
                id: &self.fold.head().id,
                run: &self.handle.id().to_string(),
                created_ms: self.fold.head().created_s * 1000,
                response,
                input: &self.kept.input,
                messages: messages.as_ref().unwrap_or(&self.kept.opening),
                open_calls: &self.open_calls(),
                has_events: !self.replayable.is_empty(),
                approvals: unused.as_ref().unwrap_or(&self.approvals),
                first_event: self.kept.first_event.0,
                request_digest: self.kept.request_digest.as_deref(),
                workspace: self.workspace_name().as_deref(),
                error_type: self.error_type,
            },
        )?;
        let is_marked = self.kept.storage == ResponseStorage::StoredForReplay;
        if encoded.size() <= INLINE_WRITE_BYTES_MAX && !is_marked && self.replayable.is_empty() {
            return encoded.write();
        }
        let (store, id) = (self.state.responses.clone(), self.fold.head().id.clone());
        let events = self.replayable.clone();
        // Use another thread, because slow disk access would block other requests on this thread.
        let stored = tokio::task::spawn_blocking(move || {
            encoded.write_with_events(&events.iter().map(EventBlock::data_text))?;
            if is_ended && is_marked { store.end(&id) } else { Ok(()) }
        });
        written(stored).await
    }
}

/// Waits for a write in another thread.
async fn written(writing: tokio::task::JoinHandle<io::Result<()>>) -> io::Result<()> {
    writing.await.map_err(io::Error::other)?
}

/// Changes a field of an ended response, also in the event that contains the response.
fn correct(response: &mut Value, events: &mut [StreamEvent], field: &str, value: Value) {
    for event in events.iter_mut().filter(|event| event.data["response"].is_object()) {
        event.data["response"][field] = value.clone();
    }
    response[field] = value;
}

impl Drop for ActiveResponse {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.handle.cancel();
        }
    }
}

/// Returns the record of an approval request, from its item in the response.
fn pending_request(waiting: &WaitingApproval, response: &Value) -> PendingApprovalRequest {
    let mut items = response["output"].as_array().into_iter().flatten();
    let item = items.find(|item| item["id"] == *waiting.item).unwrap_or(&Value::Null);
    let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    PendingApprovalRequest {
        id: waiting.item.clone(),
        server_label: text("server_label"),
        name: text("name"),
        needs_scope: waiting.needs_scope,
    }
}

/// The next step of a response.
enum ResponseStep {
    Event(Arc<EventEnvelope>),
    /// The run waits for the client.
    Parked(ParkReason),
    /// The server is stopping, and the next process continues the response.
    Suspend,
    /// The reader was too slow, and some events are lost.
    Gap,
    /// There are no more events.
    Ended,
}

/// Waits until the run waits for the client.
fn parking(handle: RunHandle) -> BoxFuture<'static, ParkReason> {
    Box::pin(async move {
        match handle.wait().await {
            Ok(RunState::Parked(reason)) => reason,
            Ok(RunState::Finished(_) | RunState::Suspended) | Err(_) => std::future::pending().await,
        }
    })
}

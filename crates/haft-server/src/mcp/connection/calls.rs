//! Runs the requests of a client that take time: each runs in its own task, can be cancelled, and gets one reply.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haft_core::approval::ApprovalId;
use haft_core::arguments::RawArguments;
use haft_core::client_relay::ClientRelay;
use haft_core::digest::Digest;
use haft_core::output::OutputContent;
use haft_core::result::ToolResult;
use haft_core::tool::{CallId, ToolCall};
use haft_engine::{CallOptions, RunContext};
use haft_tools::mcp::check_param_headers;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::ClientConnection;
use super::opened::OpenedClient;
use super::rounds::{RequestRound, RoundParams, detached_call, question_channel};
use super::user_step::{StepOutcome, UserStep};
use crate::mcp::call_notices::{CallNotices, NoticeReceiver, ReceivingRequest};
use crate::mcp::client_log::McpLogLevel;
use crate::mcp::era::RequestEra;
use crate::mcp::handshake_form::OutputRoot;
use crate::mcp::held::DetachedCall;
use crate::mcp::hidden_address::without_origin;
use crate::mcp::message::{
    self, ClientRequest, GatewayError, HEADER_MISMATCH, INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND,
};
use crate::mcp::meta_tools::described;
use crate::mcp::older_content::ContentPlace;
use crate::mcp::operator_questions::ClientReply;
use crate::mcp::outbox::{HeldBytes, MessageScope};
use crate::mcp::progress::{HEARTBEAT_PAUSE, ProgressCounter};
use crate::mcp::questions::{SingleCallQuestions, TaskQuestions};
use crate::mcp::result::{DeclaredOutput, ResultForm, call_result, failed, text_result};
use crate::mcp::rewrite::UriMap;
use crate::mcp::shared_tools::SharedTools;
use crate::mcp::tasks::{TaskLifetime, TaskOffer, TaskRequest, TaskSupport, unrelated, within};

/// The maximum number of open requests of a client. More would only use memory.
const REQUESTS_OPEN_MAX: usize = 1_024;

/// The notifications that a client wants until its request ends.
#[derive(Debug, Default)]
pub(super) struct RequestedNotices {
    /// The client's token for progress notifications.
    pub(super) progress_token: Option<Box<RawValue>>,
    /// The least severe level of log messages.
    pub(super) log_level: Option<McpLogLevel>,
}

/// The open requests of a client, by id.
#[derive(Debug, Default)]
pub(super) struct CallTable {
    open: Mutex<HashMap<String, OpenRequest>>,
    /// Notifies the requests whose reader leaves.
    reader_leaves: Notify,
}

#[derive(Debug)]
struct OpenRequest {
    task: AbortHandle,
    /// False after the client closed the stream that would carry the reply.
    has_reader: bool,
    /// The bytes of the result, after it has arrived.
    held: HeldBytes,
}

/// The reason why a request was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartRefusal {
    IdInUse,
    TooMany,
}

impl CallTable {
    /// Cancels a request. It gets no reply.
    pub(super) fn cancel(&self, id: &RawValue) {
        if let Some(request) = self.open().remove(id.get()) {
            request.task.abort();
        }
    }

    pub(super) fn cancel_all(&self) {
        self.open().drain().for_each(|(_, request)| request.task.abort());
    }

    /// Spawns the task of a request. The table stays locked until it contains the task, so that a task that ends at
    /// once finds its entry.
    fn start(
        &self,
        id: &RawValue,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), StartRefusal> {
        let mut open = self.open();
        if open.contains_key(id.get()) {
            return Err(StartRefusal::IdInUse);
        }
        if open.len() >= REQUESTS_OPEN_MAX {
            return Err(StartRefusal::TooMany);
        }
        let task = tokio::spawn(task).abort_handle();
        open.insert(id.get().to_owned(), OpenRequest { task, has_reader: true, held: HeldBytes::default() });
        Ok(())
    }

    /// Ends a request. Returns the bytes that its result occupies; `None` if the request was cancelled, so that it gets no
    /// reply.
    fn end(&self, id: &RawValue) -> Option<HeldBytes> {
        self.open().remove(id.get()).map(|request| request.held)
    }

    /// Holds the bytes of a result until its request ends.
    fn hold(&self, id: &RawValue, held: HeldBytes) {
        if let Some(request) = self.open().get_mut(id.get()) {
            request.held = held;
        }
    }

    /// Notes that the client no longer reads the reply to a request.
    pub(super) fn reader_leaves(&self, id: &RawValue) {
        if let Some(request) = self.open().get_mut(id.get()) {
            request.has_reader = false;
        }
        self.reader_leaves.notify_waiters();
    }

    /// Waits until the client no longer reads the reply to a request.
    pub(super) async fn reader_left(&self, id: &RawValue) {
        loop {
            let leaves = self.reader_leaves.notified();
            if self.open().get(id.get()).is_none_or(|request| !request.has_reader) {
                return;
            }
            leaves.await;
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, OpenRequest>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parameters of `tools/call`.
#[derive(Debug, Deserialize)]
struct CallParams {
    name: String,
    arguments: Option<Box<RawValue>>,
    /// The request for a task, in revision 2025-11-25. Other revisions do not define this field.
    task: Option<Box<RawValue>>,
}

impl ClientConnection {
    /// Runs a request in a separate task, and replies with its outcome.
    pub(super) async fn start<F>(
        self: &Arc<Self>,
        request: ClientRequest,
        work: impl FnOnce(ClientRequest) -> F + Send + 'static,
    ) where
        F: Future<Output = (ClientRequest, Result<String, GatewayError>)> + Send + 'static,
    {
        let connection = Arc::clone(self);
        let id = request.id.clone();
        let started = self.calls.start(&id, async move {
            let (request, outcome) = work(request).await;
            if let Some(held) = connection.calls.end(&request.id) {
                connection.reply_held(&request.id, outcome, held).await;
            }
        });
        if let Err(refusal) = started {
            self.refuse(&id, refusal).await;
        }
    }

    /// Counts the bytes of a result that has just arrived, until the reply to its request is written.
    pub(super) fn hold_result(&self, id: &RawValue, bytes: usize) -> Result<(), GatewayError> {
        self.calls.hold(id, self.out.hold_result(bytes)?);
        Ok(())
    }

    async fn refuse(&self, id: &RawValue, refusal: StartRefusal) {
        match refusal {
            // Reply without the id: the reply to the first request with this id must stay the only one.
            StartRefusal::IdInUse => {
                let message =
                    format!("the id {} belongs to a request that has not ended; use another id", id.get());
                self.fail(None, &GatewayError::new(INVALID_REQUEST, message)).await;
            }
            StartRefusal::TooMany => {
                let message = format!("a client may have at most {REQUESTS_OPEN_MAX} open requests");
                self.fail(Some(id), &GatewayError::new(INTERNAL_ERROR, message)).await;
            }
        }
    }

    /// Runs a request that ends only when it is cancelled, and that gets no reply.
    pub(super) async fn start_silent(
        self: &Arc<Self>,
        id: &RawValue,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        if let Err(refusal) = self.calls.start(id, work) {
            self.refuse(id, refusal).await;
        }
    }

    pub(super) async fn begin_call(
        self: &Arc<Self>,
        request: ClientRequest,
        (era, tasks): (RequestEra, TaskSupport),
        notices: RequestedNotices,
    ) {
        let params = message::params::<CallParams>(request.params.as_deref());
        let round = RoundParams::read(request.params.as_deref(), era);
        let opened = params.and_then(|params| Ok(((params, round?), self.open_for(era)?)));
        let (params, opened) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.fail(Some(&request.id), &error).await,
        };
        let connection = Arc::clone(self);
        self.start(request, move |request| async move {
            // Box the future: the task moves the future that contains it.
            let call = Box::pin(connection.call(&opened, (&request.id, params), (era, tasks), notices));
            let outcome = call.await;
            (request, outcome)
        })
        .await;
    }

    async fn call(
        self: &Arc<Self>,
        opened: &Arc<OpenedClient>,
        (id, (params, round)): (&RawValue, (CallParams, RoundParams)),
        (era, support): (RequestEra, TaskSupport),
        notices: RequestedNotices,
    ) -> Result<String, GatewayError> {
        let tools = &opened.shared;
        let requested = self.requested_task(era, &params)?;
        let CallParams { name, arguments, .. } = params;
        let arguments = arguments.as_ref().map_or("{}", |arguments| arguments.get());
        let digest = self.request_digest(["tools/call", &name, arguments]);
        let written_name = name.clone();
        let written =
            ToolCall { id: CallId(new_call_id()), name, arguments: RawArguments::from_text(arguments) };
        let call = match tools.view.listed.inner_call(written) {
            Ok(call) => call,
            Err(why) => return Ok(failed(&why, era)),
        };
        if tools.orchestrator.catalog().resolve(&call.name).is_err() {
            // The server of the tool may still be starting.
            tools.until_ready().await;
        }
        // The headers of a call that another tool makes repeat the arguments of that other tool.
        if call.name == written_name {
            self.check_param_headers(tools, &call)?;
        }
        if tools.view.listed.is_description(&call) {
            let offered = tools.orchestrator.active_tools(&tools.view.selection);
            return Ok(described(&call, &offered, era)
                .map_or_else(|why| failed(&why, era), |text| text_result(&text, era)));
        }
        let approval = ApprovalId::of_call(tools.place, &call.id);
        let round = RequestRound {
            id: id.to_owned(),
            era,
            digest,
            params: round,
            approval: Some(approval),
            notices,
            watched: self.notices.watch(&call.id.0),
        };
        let support = match (era, &requested) {
            (RequestEra::Handshake, Some(_)) => TaskSupport::Declared,
            (RequestEra::Handshake, None) => TaskSupport::Undeclared,
            (RequestEra::Stateless(_), _) => support,
        };
        let runs = place_of_result(tools, &call, (&round, support))?;
        if runs == ResultPlace::Task {
            return Ok(self.begin_task(opened, call, round, requested.unwrap_or_default().lifetime()));
        }
        let asker = Arc::new(self.questions.with_call(approval));
        let context = self.call_context(opened, (id, era), &asker);
        let reply = Some(id.to_owned());
        let work = Arc::clone(self).execute((Arc::clone(opened), context), (call, reply), (era, asker));
        Box::pin(self.in_rounds(opened, round, work)).await
    }

    /// Checks the headers that repeat the arguments of a call. A tool that the client cannot see is not checked, because
    /// the error would show a part of its schema.
    fn check_param_headers(&self, tools: &SharedTools, call: &ToolCall) -> Result<(), GatewayError> {
        let Some(sent) = &self.param_headers else { return Ok(()) };
        let Ok(tool) = tools.orchestrator.catalog().resolve(&call.name) else { return Ok(()) };
        let arguments = serde_json::from_str(call.arguments.as_text()).unwrap_or_default();
        match check_param_headers(&tool.definition().input_schema, &arguments, sent) {
            Err(why) if tools.listing().items.contains(tool.exposed().as_str()) => {
                Err(GatewayError::new(HEADER_MISMATCH, why))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Waits for a request. Until it ends, the client gets the notifications that it wants.
    pub(super) async fn with_notices<T>(
        &self,
        notices: &Arc<CallNotices>,
        (request, wanted): (&RawValue, RequestedNotices),
        work: impl Future<Output = T>,
    ) -> T {
        let receiving = notices.add(self.receiver(MessageScope::Request(request.to_owned()), wanted));
        tokio::select! {
            biased;
            outcome = work => outcome,
            never = beat(&receiving) => match never {},
        }
    }

    /// Returns the receiver of the notices that a request wants.
    fn receiver(&self, scope: MessageScope, wanted: RequestedNotices) -> NoticeReceiver {
        let RequestedNotices { progress_token, log_level } = wanted;
        let progress = progress_token.map(ProgressCounter::new);
        NoticeReceiver { out: self.out.clone(), scope, progress, log_level }
    }

    /// Returns the context of a call. The client's user approves calls through `asker`. If the operator approves the call,
    /// the question is withdrawn when the client stops reading the reply. In revisions without sessions, the end of the
    /// response already cancels the call.
    pub(super) fn call_context(
        self: &Arc<Self>,
        opened: &OpenedClient,
        (id, era): (&RawValue, RequestEra),
        asker: &Arc<SingleCallQuestions>,
    ) -> Arc<RunContext> {
        let reply = || match era {
            RequestEra::Handshake => {
                Some(ClientReply { connection: Arc::clone(self), request: id.to_owned() })
            }
            RequestEra::Stateless(_) => None,
        };
        let by_client = || Self::asks_own_user(&opened.shared).then(|| Arc::clone(asker) as _);
        match self.operator_approver(&opened.shared, &reply).or_else(by_client) {
            Some(approver) => {
                Arc::new(RunContext { approver: Some(approver), ..RunContext::clone(&opened.context) })
            }
            None => Arc::clone(&opened.context),
        }
    }

    /// Runs a call as a task, and returns the reply to its request. The client gets the notices that the request wants
    /// until the task ends. They belong to no stream, because the stream of the request ends with the reply.
    fn begin_task(
        self: &Arc<Self>,
        opened: &Arc<OpenedClient>,
        call: ToolCall,
        round: RequestRound,
        lifetime: TaskLifetime,
    ) -> String {
        let RequestRound { era, digest, notices, watched, .. } = round;
        let (task, questions) = question_channel();
        let asked = Arc::new(TaskQuestions { client: Arc::clone(&self.questions), task });
        let by_client = || Self::asks_own_user(&opened.shared).then(|| Arc::clone(&asked) as _);
        let context = RunContext {
            approver: self.operator_approver(&opened.shared, &|| None).or_else(by_client),
            relay: Some(Arc::clone(&asked) as _),
            outputs: opened.task_outputs.clone(),
            ..RunContext::clone(&opened.context)
        };
        let context = Arc::new(context);
        let work = Arc::clone(self).execute((Arc::clone(opened), context), (call, None), (era, asked));
        let receiving = watched.notices.add(self.receiver(MessageScope::Connection, notices));
        let call = detached_call(digest, (watched, questions), within(lifetime.work_max(), work));
        let call = DetachedCall { _receiving: Some(receiving), ..call };
        match era {
            RequestEra::Handshake => opened.shared.tasks.begin_requested(call, lifetime),
            RequestEra::Stateless(_) => opened.shared.tasks.begin(call, lifetime),
        }
    }

    /// Reads the request for a task. Revisions without such requests ignore the field, like every unknown field.
    fn requested_task(
        &self,
        era: RequestEra,
        params: &CallParams,
    ) -> Result<Option<TaskRequest>, GatewayError> {
        match (era, params.task.as_deref()) {
            (RequestEra::Handshake, Some(task)) if self.has_core_tasks() => {
                message::params(Some(task)).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns a digest by which a repeated request finds the request that it continues. It includes the principal, so
    /// that another principal cannot use the state.
    pub(super) fn request_digest(&self, parts: [&str; 3]) -> Digest {
        let principal = &self.user.principal;
        let who = [principal.tenant(), principal.subject()];
        Digest::of_parts(who.into_iter().chain(parts).map(str::as_bytes))
    }

    /// Executes a call, and returns its result as JSON. `reply` is the request whose reply contains the result; `None` for
    /// a task, which keeps its result.
    async fn execute(
        self: Arc<Self>,
        (opened, context): (Arc<OpenedClient>, Arc<RunContext>),
        (mut call, reply): (ToolCall, Option<Box<RawValue>>),
        (era, asker): (RequestEra, Arc<dyn ClientRelay>),
    ) -> Result<String, GatewayError> {
        let mut rounds = 0;
        loop {
            let result = self.execute_once(&opened, &context, call).await;
            let step = UserStep::of(&opened.shared, &result).filter(|step| rounds < step.rounds_max());
            let Some(step) = step else {
                if let Some(reply) = &reply {
                    self.hold_result(reply, raw_bytes(&result))?;
                }
                let _turn = self.out.conversion_turn(raw_bytes(&result)).await;
                return self.result_json(&opened, &result, era);
            };
            rounds += 1;
            // Such a step is rare, so its future is not a part of the future of each call.
            match Box::pin(self.request_step(&opened, &step, (era, &*asker))).await {
                StepOutcome::Repeat => call = result.call,
                StepOutcome::Reply(error) => return Err(error),
                StepOutcome::Failed(reason) => {
                    let refusal = result.outcome.err().map(|error| error.message).unwrap_or_default();
                    let text = opened.shared.upstreams.without_addresses(&format!("{refusal}\n{reason}"));
                    return Ok(failed(&text, era));
                }
                StepOutcome::NotOffered => return self.result_json(&opened, &result, era),
            }
        }
    }

    async fn execute_once(
        &self,
        opened: &OpenedClient,
        context: &Arc<RunContext>,
        call: ToolCall,
    ) -> ToolResult {
        let options = CallOptions {
            context: Arc::clone(context),
            place: opened.shared.place,
            selection: opened.shared.view.selection.clone(),
            search: opened.shared.search_scope(),
            journal: Some(Arc::clone(&opened.shared.journal)),
            ..CallOptions::default()
        };
        opened.shared.orchestrator.execute_with(call, options).await
    }

    fn result_json(
        &self,
        opened: &OpenedClient,
        result: &ToolResult,
        era: RequestEra,
    ) -> Result<String, GatewayError> {
        let tools = &opened.shared;
        for content in result.outcome.iter().flat_map(|output| &output.content) {
            if let OutputContent::Stored(stored) = content {
                opened.add_stored(&stored.stored);
            }
        }
        let tool = tools.orchestrator.catalog().resolve(&result.call.name).ok();
        let tool_is_unknown = tool.is_none();
        let search = tools.search_scope();
        let declared = match &tool {
            // Do not require structured content: the client has not seen the output schema of a tool that is not in its
            // list.
            Some(tool) if search.is_some_and(|scope| !scope.shown.contains(tool.exposed().as_str())) => {
                DeclaredOutput::Content
            }
            Some(tool) if tool.definition().output_schema.is_some() => DeclaredOutput::Structured,
            Some(_) | None => DeclaredOutput::Content,
        };
        let root = tool
            .as_ref()
            .map_or(OutputRoot::Undeclared, |tool| OutputRoot::of(tool.definition().output_schema.as_ref()));
        let hint = |error| (tools.gateway.hints)(error, &result.call.name, &self.user.principal);
        let hint = result.outcome.as_ref().err().and_then(hint);
        let addresses = &tools.upstreams.addresses;
        let api_origin = tool.as_ref().and_then(|tool| tool.definition().facts.host.clone());
        let server = tool.and_then(|tool| addresses.position(tool.identity().namespace.as_str()));
        let uri = |own: &str| server.map_or_else(|| own.to_owned(), |server| addresses.uri(server, own));
        let uris: Option<&UriMap<'_>> =
            (server.is_some() && !addresses.is_bare()).then_some(&uri as &UriMap<'_>);
        let hide = |text: &str| match &api_origin {
            Some(origin) => without_origin(text, origin),
            None => tools.upstreams.without_addresses(text),
        };
        let is_hidden = server.is_some() || tool_is_unknown || api_origin.is_some();
        let hide: Option<&dyn Fn(&str) -> String> = is_hidden.then_some(&hide as _);
        let sent = call_result(result, &ResultForm { declared, root, hint, era, hide, uris });
        sent.map(|sent| self.known_content(unrelated(sent), ContentPlace::ToolResult))
    }
}

/// Returns the size of the JSON that an upstream server sent as the result, in bytes; 0 without such JSON.
fn raw_bytes(result: &ToolResult) -> usize {
    let raw = match &result.outcome {
        Ok(output) => output.raw.as_ref(),
        Err(error) => error.raw.as_ref(),
    };
    raw.map_or(0, |raw| raw.0.get().len())
}

/// The way in which the client gets a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResultPlace {
    Reply,
    Task,
}

/// Decides how the client gets the result. If the client supports tasks, an agent becomes a task, and so does a tool
/// for which its server supports tasks.
fn place_of_result(
    tools: &SharedTools,
    call: &ToolCall,
    (round, support): (&RequestRound, TaskSupport),
) -> Result<ResultPlace, GatewayError> {
    let entry = tools.orchestrator.catalog().resolve(&call.name).ok();
    let offer = entry.map_or(TaskOffer::Forbidden, |entry| TaskOffer::of(&entry));
    let is_stateless = matches!(round.era, RequestEra::Stateless(_));
    match (offer, support) {
        (TaskOffer::Required, TaskSupport::Undeclared) if is_stateless => {
            support.require().map(|()| ResultPlace::Reply)
        }
        (TaskOffer::Optional | TaskOffer::Required, TaskSupport::Declared)
            if round.params.is_first() && tools.tasks.make_room() =>
        {
            Ok(ResultPlace::Task)
        }
        // Refuse the call: a client that asked for a task does not expect the result in the reply.
        (TaskOffer::Forbidden, TaskSupport::Declared) if !is_stateless => {
            let message = format!("the tool `{}` cannot run as a task", call.name);
            Err(GatewayError::new(METHOD_NOT_FOUND, message))
        }
        (TaskOffer::Optional | TaskOffer::Required, TaskSupport::Declared) if !is_stateless => {
            Err(GatewayError::new(INTERNAL_ERROR, "the client already has the maximum number of tasks"))
        }
        _ => Ok(ResultPlace::Reply),
    }
}

/// Returns a call id that is unique across connections.
pub(super) fn new_call_id() -> String {
    format!("mcp-{}", uuid::Uuid::new_v4().simple())
}

/// Sends heartbeats until the future is dropped.
async fn beat(receiving: &ReceivingRequest) -> std::convert::Infallible {
    if !receiving.wants_progress() {
        return std::future::pending().await;
    }
    let mut ticks = interval(HEARTBEAT_PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Skip the first tick, which comes at once.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        receiving.beat();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;
    use crate::mcp::client_outputs::OutputOwner;
    use crate::mcp::gateway::GatewayUser;
    use crate::mcp::gateway::tests::empty_gateway;
    use crate::mcp::logins::LoginPlace;
    use crate::mcp::outbox::{OutMessage, Outbox};
    use crate::mcp::shared_tools::ToolPool;

    /// Returns a connection to a gateway without tools, and its messages to the client.
    fn connection() -> (ClientConnection, tokio::sync::mpsc::Receiver<OutMessage>) {
        let (out, messages) = Outbox::new();
        let pool = Arc::new(ToolPool::new(Arc::new(empty_gateway()), LoginPlace::Nowhere));
        let owner = (GatewayUser::local(), OutputOwner::new_connection());
        (ClientConnection::new(pool, owner, out), messages)
    }

    #[tokio::test(start_paused = true)]
    async fn client_gets_heartbeats_until_its_request_ends_if_it_sent_a_progress_token() {
        let (connection, mut messages) = connection();
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        let id = raw("7");
        let wanted = RequestedNotices { progress_token: Some(raw("\"p\"")), log_level: None };
        let work = sleep(HEARTBEAT_PAUSE * 3 + Duration::from_secs(1));
        let notices = Arc::default();
        connection.with_notices(&notices, (&id, wanted), work).await;
        assert_eq!(messages.len(), 3);
        let text = messages.try_recv().unwrap().text;
        assert!(
            text.contains("notifications/progress") && text.contains("\"progressToken\":\"p\""),
            "{text}"
        );
        while messages.try_recv().is_ok() {}
        sleep(HEARTBEAT_PAUSE * 2).await;
        assert!(messages.is_empty(), "the request has ended");
        let none = RequestedNotices::default();
        connection.with_notices(&notices, (&id, none), sleep(HEARTBEAT_PAUSE * 3)).await;
        assert!(messages.is_empty(), "a client without a token gets no progress");
    }

    #[tokio::test]
    async fn client_has_a_limited_number_of_open_requests() {
        let calls = CallTable::default();
        let id = |number: usize| RawValue::from_string(number.to_string()).unwrap();
        let start = |number: usize| calls.start(&id(number), std::future::pending());
        for number in 0..REQUESTS_OPEN_MAX {
            assert_eq!(start(number), Ok(()));
        }
        assert_eq!(start(0), Err(StartRefusal::IdInUse));
        assert_eq!(start(REQUESTS_OPEN_MAX), Err(StartRefusal::TooMany));
        calls.cancel(&id(7));
        assert_eq!(start(REQUESTS_OPEN_MAX), Ok(()), "a cancelled request makes room");
        calls.cancel_all();
    }
}

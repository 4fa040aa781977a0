//! The Responses API: `POST /v1/responses`, and the routes of stored responses.
//!
//! Start reading at [`create`]. `request` and the modules for its fields parse without IO, `spec` builds the run,
//! `fold` turns its events into items and stream events, and `drive` joins them.

mod approvals;
mod compact;
mod continuations;
mod cut_requests;
mod drive;
mod event_block;
mod field;
mod fold;
mod foreground;
mod hosted_items;
mod ignored_fields;
mod items;
mod keyed;
mod live;
mod mcp_error;
mod model_settings;
mod object;
mod open_text;
mod replayed_events;
mod request;
mod requested_servers;
mod restart;
mod run_fields;
mod sealed_run;
mod sealed_text;
mod sealed_turn;
mod spec;
mod sse;
mod steer;
mod stored;
mod tool_choice;
mod tool_origin;
mod tools;
mod warm_up;
mod warnings_header;
mod websocket;
mod workspace;

pub use spec::needs_builtin_tools;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use haft_core::conversation::Message;
use haft_core::digest::Digest;
use haft_core::event_log::LogUsage;
use haft_core::stored::StoredMessage;
use haft_core::tokens::Tokens;
use haft_core::trace_context::TraceContext;
use haft_runtime::{EventSeq, OutputStorage, RunHandle, RunHooks, SessionStorage, UnknownTools};
use http::{HeaderMap, HeaderValue, header};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::auth::{Caller, now_ms};
use crate::body::JsonObject;
use crate::conversations;
use crate::error::{ApiError, ApiErrorKind};
use crate::server::{ActiveWork, ServerState};
use crate::{rate_limit, storage_limits};
use compact::SealedConversation;
use cut_requests::{RequestIdentity, retry_count};
use drive::{ActiveResponse, EndedResponse, KeptResponse, LastResponse, ResponseRun, ResponseStorage};
use fold::ResponseFold;
use foreground::{StreamedResponse, WholeResponse};
use items::{ConversationBuilder, reference_id};
use keyed::KeyedResponse;
use live::LiveResponse;
use object::{EventOptions, OwnEvents, ReasoningEventNames, ResponseHead, is_open};
use request::{CreateRequest, TurnSealing};
use sealed_turn::{OpenedEntry, OpenedItem, SealedTurn, TurnScope, without_repeats};
use spec::ModelTarget;
use sse::EventSource;
use tool_origin::ToolOrigins;

pub(crate) use compact::compact;
pub(crate) use continuations::Continuations;
pub(crate) use cut_requests::CutRequests;
pub(crate) use field::{RequestField, invalid};
pub(crate) use items::InputItem;
pub(crate) use live::LiveResponses;
pub(crate) use request::{RunNarrowing, check_metadata};
pub(crate) use restart::{continue_unfinished, read_unfinished};
pub(crate) use spec::HARMLESS;
pub(crate) use stored::{ListPage, blocking, cancel, delete, find, get, input_items, list, page_limit, stop};
pub(crate) use workspace::of_listing as listing_workspace;

/// `POST /v1/responses`: creates a response.
pub(crate) async fn create(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    headers: HeaderMap,
    JsonObject(body): JsonObject,
) -> Result<Response, ApiError> {
    let key = keyed::idempotency_key(&headers)?;
    let retries = retry_count(&headers);
    // Compute the digest only if a later request can be a repetition of this one.
    let is_repeatable = key.is_some() || retries.is_some();
    let digest = is_repeatable.then(|| request_digest(body.clone()));
    let mut request = request::parse(body)?;
    let identity =
        digest.clone().map(|digest| RequestIdentity { principal: caller.principal.clone(), digest });
    request.digest = digest.filter(|_| key.is_some());
    request.event_options = event_options(&headers)?;
    request.trace = trace_context(&headers);
    model_settings::warn_of_unsupported(&state, &mut request);
    let warnings = request.warnings.join("; ");
    let mut response = match key {
        None if request.background => detached(&state, &caller, request, new_id()).await?,
        None => {
            if let Some(identity) = identity.as_ref().filter(|_| retries > Some(0)) {
                state.cut_requests.check_retry(identity).await?;
            }
            attached(&state, &caller, request, identity).await?
        }
        Some(key) => keyed::once(&state, &caller, request, key).await?,
    };
    warnings_header::add(&mut response, &warnings);
    Ok(response)
}

/// The header that turns off the events of haft itself.
const OWN_EVENTS_HEADER: &str = "haft-events";

/// The header that selects the names of reasoning events.
const REASONING_EVENTS_HEADER: &str = "haft-reasoning-events";

/// Reads the headers that change the events of a stream, for clients that fail on unknown event types.
fn event_options(headers: &HeaderMap) -> Result<EventOptions, ApiError> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let own = match text(OWN_EVENTS_HEADER) {
        None | Some("on") => OwnEvents::On,
        Some("off") => OwnEvents::Off,
        Some(_) => {
            return Err(invalid(OWN_EVENTS_HEADER, "the header `haft-events` must be `on` or `off`"));
        }
    };
    let Some(names) = text(REASONING_EVENTS_HEADER) else {
        return Ok(EventOptions { own, ..EventOptions::default() });
    };
    let message = "the header `haft-reasoning-events` must be `openai` or `open-responses`";
    let reasoning = ReasoningEventNames::from_name(names);
    let reasoning = reasoning.ok_or_else(|| invalid(REASONING_EVENTS_HEADER, message))?;
    Ok(EventOptions { own, reasoning })
}

/// Returns the client's trace context; `None` if the headers contain none, or an invalid one.
fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    TraceContext::parse(text("traceparent")?, text("tracestate"))
}

/// Returns the digest of a request, without the secrets of the MCP servers in its `tools`.
fn request_digest(mut body: Map<String, Value>) -> String {
    if let Some(tools) = body.get_mut("tools") {
        requested_servers::without_secrets(tools);
    }
    Digest::of_value(&Value::Object(body)).to_string()
}

/// Starts a response in the background for another route of the server.
pub(crate) async fn create_in_background(
    state: &Arc<ServerState>,
    caller: &Caller,
    headers: &HeaderMap,
    body: Map<String, Value>,
) -> Result<Response, ApiError> {
    let request = CreateRequest { trace: trace_context(headers), ..request::parse(body)? };
    detached(state, caller, request, new_id()).await
}

/// `POST /v1/responses/input_tokens`: estimates the number of tokens of a request from its length.
pub(crate) async fn input_tokens(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    JsonObject(body): JsonObject,
) -> Result<Response, ApiError> {
    let request = request::parse(body)?;
    state.unknown_fields.note(&request.unknown_fields);
    let messages = opening(&state, &caller, &request, None).await?.messages;
    let stored: Vec<StoredMessage> = messages.iter().map(StoredMessage::of).collect();
    let messages = serde_json::to_string(&stored).map_or(0, |text| text.len());
    let around = [&request.echo["instructions"], &request.echo["tools"]].map(|value| value.to_string().len());
    let tokens = Tokens::by_length((messages + around.iter().sum::<usize>()) as u64);
    let object = json!({"object": "response.input_tokens", "input_tokens": tokens.count()});
    let mut reply = Json(object).into_response();
    warnings_header::add(&mut reply, &request.warnings.join("; "));
    Ok(reply)
}

/// Runs a response that is cancelled if its connection closes. `identity` is present if the client may retry the request.
async fn attached(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: CreateRequest,
    identity: Option<RequestIdentity>,
) -> Result<Response, ApiError> {
    let stream = request.stream;
    let active = start(state, caller, request, new_id(), None).await?;
    let warnings = active.warnings().join("; ");
    let mut reply = if stream {
        sse::stream_response(EventSource::Foreground(StreamedResponse::new(active)))
    } else {
        whole(WholeResponse::new(active, identity).await)
    };
    warnings_header::add(&mut reply, &warnings);
    Ok(reply)
}

/// Runs a response that continues if its connection closes.
async fn detached(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: CreateRequest,
    id: Uuid,
) -> Result<Response, ApiError> {
    let form = (request.stream, request.background);
    let live = detach(state, caller, request, id).await?;
    Ok(first_reply(&live, form).await)
}

async fn detach(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: CreateRequest,
    id: Uuid,
) -> Result<Arc<LiveResponse>, ApiError> {
    // Box this future, because the futures of all routes that start responses would otherwise contain it.
    let mut active = Box::pin(start(state, caller, request, id, None)).await?;
    let live = Arc::clone(&state.live);
    // Use a task of its own. Otherwise a disconnect could drop this future after the beginning of the response is
    // stored, and no task would drive the response.
    in_own_task(async move {
        active.store_beginning().await?;
        Ok(live.detach(active))
    })
    .await
}

/// Does work in a task of its own, because a disconnect of the client drops the future of its request. The task takes
/// over the slot of the request.
async fn in_own_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    let failed = |error| {
        let message = format!("the server failed while it started the response: {error}");
        Err(ApiError::new(ApiErrorKind::ServerError, message))
    };
    tokio::spawn(rate_limit::with_slot_of_request(work)).await.unwrap_or_else(failed)
}

async fn first_reply(live: &Arc<LiveResponse>, (stream, background): (bool, bool)) -> Response {
    let mut reply = match (stream, background) {
        (true, _) => sse::stream_response(EventSource::Follower(live.follow(0))),
        (false, true) => Json(first_object(live).await).into_response(),
        (false, false) => keyed::whole(live.ended().await),
    };
    warnings_header::add(&mut reply, &live.warnings().join("; "));
    reply
}

async fn first_object(live: &Arc<LiveResponse>) -> Value {
    live::first_object(&live.follow(0).next().await.unwrap_or_default())
}

/// A run that this request started, or that an earlier request with the same idempotency key started.
pub(crate) struct BackgroundRun {
    pub(crate) run: String,
    pub(crate) response: String,
    /// The agent or the model that the request named.
    pub(crate) model: String,
}

/// Starts a run for the native API, as a background response with further limits. `digest` is the digest of the body
/// that the client sent.
pub(crate) async fn start_run(
    state: &Arc<ServerState>,
    caller: &Caller,
    headers: &HeaderMap,
    (body, digest): (Map<String, Value>, String),
    narrowing: RunNarrowing,
) -> Result<BackgroundRun, ApiError> {
    let trace = trace_context(headers);
    let request = CreateRequest { digest: Some(digest), narrowing, trace, ..request::parse(body)? };
    let model = request.model.clone().unwrap_or_else(|| default_model(state));
    let (response, run) = match keyed::idempotency_key(headers)? {
        None => {
            let id = new_id();
            (response_id(id), detach(state, caller, request, id).await?.run())
        }
        Some(key) => match keyed::start_once(state, caller, request, key).await? {
            (id, KeyedResponse::InProgress(live)) => (id, live.run()),
            (id, KeyedResponse::Stored(found)) => (id, found.record.run),
        },
    };
    Ok(BackgroundRun { run, response, model })
}

fn new_id() -> Uuid {
    Uuid::new_v4()
}

fn response_id(id: Uuid) -> String {
    format!("resp_{}", id.simple())
}

async fn start(
    state: &Arc<ServerState>,
    caller: &Caller,
    mut request: CreateRequest,
    id: Uuid,
    last: Option<&LastResponse>,
) -> Result<ActiveResponse, ApiError> {
    state.unknown_fields.note(&request.unknown_fields);
    // Create the guard before a compaction of the conversation, so that a stopping server waits for the compaction too.
    let active = ActiveWork::admit(state)?;
    resolve_input(state, caller, &mut request).await?;
    let known = known_lists(state, caller, &request, last).await?;
    let given = approvals::answers(&request)?;
    let mut warnings = Vec::new();
    let (run, opening, compacted) = if given.is_empty() {
        storage_limits::check(state, &caller.principal)?;
        new_run(state, caller, &mut request, &response_id(id), last).await?
    } else {
        // Box the future, because each of the futures around it would otherwise have its size.
        let continued = Box::pin(approvals::resume(state, caller, &request, &given, last)).await?;
        let approvals::ContinuedRun { handle, answers, first_event, workspace, conversation, fields } =
            continued;
        warnings = run_fields::restore(&mut request, fields);
        if let (None, Some(id)) = (&request.conversation, conversation) {
            // The request names no conversation. Add its items to the conversation of the previous response, because
            // the same run continues.
            request.echo.insert("conversation".into(), json!({"id": id}));
            request.conversation = Some(id);
        }
        let run =
            ResponseRun { handle, answers: Some(answers), first_event, workspace, known_workspace: None };
        (run, Vec::new(), None)
    };
    // Do not wait or fail from here to the end of this function. The run has started, but only the `ActiveResponse`
    // below cancels it at a disconnect.
    let listed = match &run.answers {
        None => requested_servers::list_items(run.handle.server_listings(), &request.tools, &known),
        // A run that continues after an approval has already listed its tools.
        Some(_) => Vec::new(),
    };
    let head = ResponseHead { listed, ..head(state, &mut request, id, &run) };
    let head = match compacted {
        Some(sealed) => ResponseHead {
            compacted: Some(sealed.encrypted),
            compaction_usage: sealed.usage.map(LogUsage::from),
            ..head
        },
        None => head,
    };
    // A request has a digest if it has an idempotency key, with which the client can repeat it.
    let is_repeatable_stream = request.stream && request.digest.is_some();
    let storage = match (request.store, request.background) {
        (false, _) => ResponseStorage::Discarded,
        (true, true) => ResponseStorage::StoredForReplay,
        (true, false) if is_repeatable_stream => ResponseStorage::StoredWithEvents,
        (true, false) => ResponseStorage::Stored,
    };
    let kept = KeptResponse {
        caller: caller.clone(),
        input: identified(&head.id, request.input_items),
        opening,
        storage,
        // A response that is not stored reads the conversation, but adds no items to it.
        conversation: request.conversation.filter(|_| request.store),
        first_event: run.first_event,
        request_digest: request.digest,
        warnings,
        listed: known,
    };
    Ok(ActiveResponse::new(active, run, ResponseFold::new(head), kept))
}

/// The `Retry-After` time of a server that is stopping, in seconds.
pub(crate) const RESTART_S: u64 = 5;

async fn new_run(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: &mut CreateRequest,
    id: &str,
    last: Option<&LastResponse>,
) -> Result<(ResponseRun, Vec<StoredMessage>, Option<SealedConversation>), ApiError> {
    let target = spec::check(state, caller, request)?;
    let Opening { messages: opening, workspace: known } = opening(state, caller, request, last).await?;
    let mut compacted = compact::before_response(state, caller, request, &opening).await?;
    let opening = compacted.as_mut().map_or(opening, |sealed| std::mem::take(&mut sealed.messages));
    // Copy the opening messages of the run only if they are needed: for a response that is stored before it ends, or to
    // find the new messages of a turn.
    let needs_opening = request.background || request.sealing == TurnSealing::On;
    let stored = if needs_opening { opening.iter().map(StoredMessage::of).collect() } else { Vec::new() };
    let uses_files = spec::uses_files(state, request, &target);
    let (directory, workspace) = workspace::open(state, caller, uses_files, known.as_deref(), id).await?;
    let spec = spec::build(&target, caller, request, directory, opening)?;
    let sessions = if request.store && state.runtime.config().sessions.enabled {
        SessionStorage::Stores
    } else if !request.store && spec::may_ask(state, caller, request, &target) {
        SessionStorage::Memory
    } else {
        SessionStorage::None
    };
    let output_storage = if request.store { OutputStorage::Stores } else { OutputStorage::Memory };
    // An agent file may name tools that this server does not have, but a request must name only existing ones.
    let unknown_tools = match target {
        ModelTarget::Agent(_) => UnknownTools::Warned,
        ModelTarget::Model(_) | ModelTarget::Route => UnknownTools::Refused,
    };
    let trace_parent = request.trace.clone();
    let hooks =
        RunHooks { output_storage, unknown_tools, trace_parent, ..approvals::hooks(state, caller, sessions) };
    let secrets = requested_servers::secrets(&request.tools);
    let started = state.runtime.start_with(spec, secrets, hooks).await;
    let handle = started.map_err(|error| spec::not_started_for(&error, request))?;
    let first_event = EventSeq::START;
    let run = ResponseRun { handle, answers: None, first_event, workspace, known_workspace: known };
    Ok((run, stored, compacted))
}

/// Returns the labels of the servers whose tool lists the conversation already contains. `last` is the last response of
/// the same connection.
async fn known_lists(
    state: &ServerState,
    caller: &Caller,
    request: &CreateRequest,
    last: Option<&LastResponse>,
) -> Result<BTreeSet<String>, ApiError> {
    let last = last.filter(|last| request.previous_response_id.as_ref() == Some(&last.id));
    let mut known = requested_servers::listed_in(request.input_items.iter());
    known.extend(last.iter().flat_map(|last| last.listed.iter().cloned()));
    if requested_servers::named(&request.tools).next().is_none() {
        return Ok(known);
    }
    if let (Some(id), None) = (&request.previous_response_id, last) {
        let before = stored::find(state, caller, id).await?;
        known.extend(before.iter().flat_map(|record| requested_servers::listed_before(&record.response)));
    }
    if let Some(id) = &request.conversation {
        let record = conversations::find(state, caller, id).await?;
        known.extend(requested_servers::listed_in(record.items.iter()));
    }
    Ok(known)
}

fn head(state: &ServerState, request: &mut CreateRequest, id: Uuid, run: &ResponseRun) -> ResponseHead {
    let named = requested_servers::named(&request.tools).map(|(label, _)| label);
    ResponseHead {
        origins: origins(state, &run.handle, named),
        approved: run.answers.as_ref().map_or_else(HashMap::new, approvals::ApprovalAnswers::items),
        is_queued: !run.handle.is_admitted(),
        ..head_without_run(state, request, id)
    }
}

/// Returns the head of a response that has no run, or whose run is not known yet.
fn head_without_run(state: &ServerState, request: &mut CreateRequest, id: Uuid) -> ResponseHead {
    let mut echo = std::mem::take(&mut request.echo);
    if request.background {
        request.event_options.record(&mut echo);
        request.padding.record(&mut echo);
    }
    // An agent compacts its conversation itself; a model without an agent does not.
    let is_agent = request.model.as_deref().is_some_and(|model| state.agents.get().get(model).is_some());
    if request.truncation.is_none() && is_agent {
        echo.insert("truncation".into(), "auto".into());
    }
    ResponseHead {
        id: response_id(id),
        created_s: now_ms() / 1000,
        model: request.model.clone().unwrap_or_else(|| default_model(state)),
        echo,
        origins: ToolOrigins::none(),
        approved: HashMap::new(),
        padding: request.padding,
        warnings: std::mem::take(&mut request.shown_warnings),
        compacted: None,
        listed: Vec::new(),
        sealing: request.sealing,
        compaction_usage: None,
        is_queued: false,
        event_options: request.event_options,
    }
}

/// Returns the lookup of the MCP servers whose tools a response may use. `named` has the labels in the request.
fn origins<'a>(state: &ServerState, handle: &RunHandle, named: impl Iterator<Item = &'a str>) -> ToolOrigins {
    let config = state.runtime.config();
    let configured = config.mcp_servers.iter().filter(|(_, server)| server.enabled).map(|(name, _)| name);
    let labels = configured.cloned().chain(named.map(str::to_owned)).collect();
    let handle = handle.clone();
    ToolOrigins::new(labels, move |name| handle.tool_identity(name))
}

/// The conversation and the workspace with which a response begins.
struct Opening {
    /// The whole conversation up to the message that the model answers.
    messages: Vec<Message>,
    /// The name of the workspace that the conversation already has.
    workspace: Option<String>,
}

/// Returns the whole conversation: the conversation of the previous response, and the new items. `last` is the last
/// response of the same connection, which may be missing in the store.
async fn opening(
    state: &ServerState,
    caller: &Caller,
    request: &CreateRequest,
    last: Option<&LastResponse>,
) -> Result<Opening, ApiError> {
    // Items of the API do not name a workspace, so take the workspace from the conversation object or from the previous
    // response.
    let mut workspace = request.conversation.clone();
    let last = last.filter(|last| request.previous_response_id.as_ref() == Some(&last.id));
    let mut builder = match (&request.previous_response_id, last) {
        (None, _) if request.input.is_empty() && request.conversation.is_none() => {
            return Err(invalid("input", "`input` is missing or empty"));
        }
        (None, _) => ConversationBuilder::default(),
        (Some(_), Some(last)) => {
            approvals::check_answered(last.suspended.iter().flat_map(|waiting| &waiting.approvals))?;
            workspace.clone_from(&last.workspace);
            ConversationBuilder::after(last.messages.clone(), &last.open_calls)
        }
        (Some(id), None) => {
            let missing = || {
                let message = format!("there is no stored response `{id}`");
                invalid("previous_response_id", message).with_code("previous_response_not_found")
            };
            let record = stored::find(state, caller, id).await?.ok_or_else(missing)?;
            if is_open(&record.response) {
                let message = format!(
                    "the response `{id}` has not ended; wait for its end before you continue from it"
                );
                return Err(invalid("previous_response_id", message));
            }
            approvals::check_answered(&record.approvals)?;
            workspace = record.workspace;
            let messages = record.messages.into_iter().map(StoredMessage::into_message);
            let messages = messages.collect::<Result<Vec<_>, _>>().map_err(|error| {
                ApiError::new(
                    ApiErrorKind::ServerError,
                    format!("the server cannot read the response {id}: {error}"),
                )
            })?;
            ConversationBuilder::after(messages, &record.open_calls)
        }
    };
    for (path, item) in without_repeats(opened_items(state, caller, request).await?) {
        if let OpenedItem::Turn(turn) = &item {
            workspace = turn.workspace.clone().or(workspace);
        }
        builder = match item {
            OpenedItem::Item(item) => {
                builder.push(&path, item)?;
                builder
            }
            OpenedItem::Turn(SealedTurn { messages, open_calls, scope: TurnScope::Response, .. }) => {
                builder.push_turn(&path, messages, &open_calls)?
            }
            OpenedItem::Turn(SealedTurn { messages, open_calls, scope: TurnScope::Conversation, .. }) => {
                ConversationBuilder::after(messages, &open_calls)
            }
            OpenedItem::Compacted(messages) => ConversationBuilder::after(messages, &[]),
        };
    }
    Ok(Opening { messages: builder.finish()?, workspace })
}

/// Returns the items of the conversation and of the input, with references resolved and encrypted items decrypted.
async fn opened_items(
    state: &ServerState,
    caller: &Caller,
    request: &CreateRequest,
) -> Result<Vec<OpenedEntry>, ApiError> {
    let mut items = Vec::new();
    if let Some(id) = &request.conversation {
        let record = conversations::find(state, caller, id).await?;
        for item in &record.items {
            let item = InputItem::parse("conversation", item)?;
            items.push(("conversation".to_owned(), opened(state, caller, "conversation", item).await?));
        }
    }
    for (at, item) in request.input.iter().enumerate() {
        let path = format!("input[{at}]");
        let item = opened(state, caller, &path, item.clone()).await?;
        items.push((path, item));
    }
    Ok(items)
}

async fn opened(
    state: &ServerState,
    caller: &Caller,
    path: &str,
    item: InputItem,
) -> Result<OpenedItem, ApiError> {
    let item = match item {
        InputItem::Reference(id) => match referenced(state, caller, &id).await? {
            Some(item) => InputItem::parse(path, &item)?,
            None => InputItem::Reference(id),
        },
        item => item,
    };
    Ok(match item {
        InputItem::Compaction(encrypted) => {
            OpenedItem::Compacted(compact::opened(state, caller, path, &encrypted).await?)
        }
        InputItem::Sealed(encrypted) => {
            let text = sealed_text::open(state, caller, path, &encrypted).await?;
            match sealed_run::read(path, &text)? {
                // Skip the encrypted run: if its approved calls were made, the other items contain them.
                Some(_) => OpenedItem::Item(InputItem::Dropped),
                None => OpenedItem::Turn(sealed_turn::read(path, &text)?),
            }
        }
        item => OpenedItem::Item(item),
    })
}

/// Returns the stored item that a reference names; `None` if there is none. An item id begins with the id of its response,
/// or of the conversation that a client added it to.
async fn referenced(state: &ServerState, caller: &Caller, id: &str) -> Result<Option<Value>, ApiError> {
    let hex = id.split_once('_').map_or("", |(_, rest)| rest);
    let Some(hex) = hex.get(..32) else { return Ok(None) };
    if let Some(record) = stored::find(state, caller, &format!("resp_{hex}")).await? {
        let output = record.response["output"].as_array().into_iter().flatten();
        return Ok(output.chain(&record.input).find(|item| item["id"] == id).cloned());
    }
    let record = conversations::stored(state, caller, &format!("conv_{hex}")).await?;
    Ok(record.into_iter().flat_map(|record| record.items).find(|item| item["id"] == id))
}

/// Replaces the references in a list by the items that they name, because a stored list must not break when the
/// referenced response expires. `list` is the name of the list in the request. Returns the positions of the references.
pub(crate) async fn resolve_references(
    state: &ServerState,
    caller: &Caller,
    list: &str,
    items: &mut [Value],
) -> Result<Vec<usize>, ApiError> {
    let mut positions = Vec::new();
    for (at, item) in items.iter_mut().enumerate() {
        let Some(id) = reference_id(item) else { continue };
        match referenced(state, caller, id).await? {
            Some(found) => *item = found,
            None => return Err(items::unknown_reference(&format!("{list}[{at}]"), id)),
        }
        positions.push(at);
    }
    Ok(positions)
}

/// Replaces the references in the input of a request.
async fn resolve_input(
    state: &ServerState,
    caller: &Caller,
    request: &mut CreateRequest,
) -> Result<(), ApiError> {
    for at in resolve_references(state, caller, "input", &mut request.input_items).await? {
        request.input[at] = InputItem::parse(&format!("input[{at}]"), &request.input_items[at])?;
    }
    Ok(())
}

fn default_model(state: &ServerState) -> String {
    state.runtime.config().models.default.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// Gives each input item an id, for `/input_items`.
pub(crate) fn identified(response: &str, items: Vec<Value>) -> Vec<Value> {
    let of_response = response.trim_start_matches("resp_");
    let identify = |(at, mut item): (usize, Value)| {
        if item.get("id").is_none_or(Value::is_null) {
            item["id"] = format!("item_{of_response}{at:04x}").into();
        }
        if item.get("type").is_none_or(Value::is_null) {
            item["type"] = "message".into();
        }
        let text = item["content"].as_str().filter(|_| item["type"] == "message").map(str::to_owned);
        if let Some(text) = text {
            let kind = if item["role"] == "assistant" { "output_text" } else { "input_text" };
            item["content"] = json!([{"type": kind, "text": text}]);
        }
        item
    };
    items.into_iter().enumerate().map(identify).collect()
}

/// Returns a JSON response. Serializes into one growing buffer, which takes half as long as `axum::Json`.
fn json_response(value: &Value) -> Response {
    // The serialization of a JSON value cannot fail.
    let body = serde_json::to_vec(value).unwrap_or_default();
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// Returns the HTTP response for an ended response. A failed run is an HTTP error, as clients expect. If a tool has
/// begun, tells clients not to retry, because many retry automatically.
fn whole(ended: EndedResponse) -> Response {
    let EndedResponse { response, end, tool_began, warnings } = ended;
    let Some(error) = end.error else {
        let mut reply = json_response(&response);
        warnings_header::add(&mut reply, &warnings.join("; "));
        return reply;
    };
    let mut failed = error.api_error();
    failed.should_retry = tool_began.then_some(false);
    failed.into_response()
}

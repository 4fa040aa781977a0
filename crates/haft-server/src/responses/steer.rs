//! Steering over a WebSocket: user input that a client sends while a response is in progress.
//!
//! The response in progress ends before its next turn: the reply of the model and all its tool calls are completed. Then
//! the connection starts a successor, which has the settings of the response and the queued input. If the response waits
//! for the client, the input waits for the client's next request. This module decides without IO; `websocket` sends the
//! events and starts the responses.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::approvals;
use super::drive::EndedResponse;
use super::field::{RequestField, invalid};
use super::items::InputItem;
use super::request::{self, CreateRequest};
use crate::error::ApiError;
use crate::request_json::parse_object;

/// The maximum number of steering messages of one connection whose input is not part of a response yet.
const STEERS_MAX: usize = 16;

/// The maximum number of ended responses that a connection remembers, to distinguish them from unknown responses.
const ENDED_MAX: usize = 64;

/// The fields of a steering message.
const FIELDS: [&str; 3] = ["type", "previous_response_id", "input"];

/// Returns true if the text is a steering message, which is answered at once. All other messages wait for their turn.
pub(super) fn is_steer(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
    }
    serde_json::from_str(text).is_ok_and(|typed: Typed<'_>| typed.kind == "response.steer")
}

/// The steering input of one connection.
#[derive(Debug, Default)]
pub(super) struct SteerQueue {
    /// The response in progress.
    active: Option<SteeredResponse>,
    /// Responses that wait for the client, with their queued input.
    waiting: Vec<SteeredResponse>,
    /// The ids of ended responses, the newest last.
    ended: VecDeque<String>,
}

/// A response, the settings for its successor, and the queued input.
#[derive(Debug, Default)]
struct SteeredResponse {
    id: String,
    settings: Option<SuccessorSettings>,
    steers: Vec<AcceptedSteer>,
}

/// The fields of a request that a successor repeats: all except `input` and `previous_response_id`.
pub(super) type SuccessorSettings = Map<String, Value>;

/// Input that was accepted and is not part of a response yet.
#[derive(Debug)]
pub(super) struct AcceptedSteer {
    id: String,
    previous_response_id: String,
    /// The input as the client sent it.
    input: Value,
    parsed: Vec<InputItem>,
    items: Vec<Value>,
    /// True after the server has told the client that the input waits for the client's next request. This event is sent
    /// only once.
    is_announced: bool,
}

/// A request that starts a response, and the steering input that it takes out of the queue.
#[derive(Debug)]
pub(super) struct SteeredRequest {
    pub(super) request: CreateRequest,
    pub(super) input: TakenInput,
}

/// The steering input that a request takes out of the queue, and the settings for a successor of the new response.
#[derive(Debug, Default)]
pub(super) struct TakenInput {
    /// The settings for a successor of the new response; `None` if the new response cannot be steered.
    settings: Option<SuccessorSettings>,
    /// The steering input that the request contains.
    committed: Vec<AcceptedSteer>,
    /// The steering input that stays queued for a successor of the new response.
    queued: Vec<AcceptedSteer>,
}

/// The action of the connection after the end of a response.
#[derive(Debug)]
pub(super) enum SteerStep {
    /// Send these events; no successor follows.
    Events(Vec<Value>),
    /// A successor must be started.
    Successor(TakenInput, Result<Box<CreateRequest>, ApiError>),
}

impl SteerQueue {
    /// Reads a steering message, and returns the event that answers it.
    pub(super) fn submit(&mut self, text: &str) -> Value {
        let message = match parse_object(text.as_bytes(), "the message") {
            Ok(message) => message,
            Err(error) => {
                let unknown = json!({"previous_response_id": "", "input": ""});
                return SteerError::new("invalid_input", error.message).event(unknown);
            }
        };
        let target =
            message.get("previous_response_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let input = message.get("input").cloned().unwrap_or_else(|| "".into());
        let accepted = parse(message).map_err(|error| SteerError::new("invalid_input", error.message));
        match accepted.and_then(|(parsed, items)| Ok((self.target(&target)?, parsed, items))) {
            Ok((response, parsed, items)) => {
                let id = format!("steer_{}", Uuid::new_v4().simple());
                let event = json!({
                    "type": "response.steer.accepted", "steer": {"id": id, "previous_response_id": target},
                });
                let previous_response_id = target;
                let steer =
                    AcceptedSteer { id, previous_response_id, input, parsed, items, is_announced: false };
                response.steers.push(steer);
                event
            }
            Err(error) => error.event(json!({"previous_response_id": target, "input": input})),
        }
    }

    /// Returns the response in progress if it has this id and can be steered.
    fn target(&mut self, id: &str) -> Result<&mut SteeredResponse, SteerError> {
        let queued: usize =
            self.active.iter().chain(&self.waiting).map(|response| response.steers.len()).sum();
        let Some(active) = self.active.as_mut().filter(|active| active.id == id) else {
            return Err(if self.ended.iter().any(|ended| ended == id) {
                SteerError::new(
                    "response_already_completed",
                    format!("the response `{id}` has already ended, so input cannot steer it"),
                )
            } else {
                let message = format!("this connection has no response `{id}`");
                SteerError::new("response_not_found", message)
            });
        };
        if active.settings.is_none() {
            let message = "this response cannot be steered: it uses `conversation` or `context_management`, \
                           or it continues a response of another connection after an approval";
            return Err(SteerError::new("steering_not_supported", message));
        }
        if queued >= STEERS_MAX {
            let message = format!("{queued} steering messages wait already; the limit is {STEERS_MAX}");
            return Err(SteerError::new("too_many_pending_steers", message));
        }
        Ok(active)
    }

    /// Adds the input that waits for this request. `settings` are the settings of the request.
    pub(super) fn join(&mut self, settings: SuccessorSettings, mut request: CreateRequest) -> SteeredRequest {
        let given = approvals::answers(&request).unwrap_or_default();
        let approvals = given.first().map(|(_, item, _)| approvals::response_of(item));
        let is_resumed = approvals.is_some();
        let parent = approvals.unwrap_or_else(|| request.previous_response_id.clone());
        let at = self.waiting.iter().position(|waiting| Some(&waiting.id) == parent.as_ref());
        let parent = at.map(|at| self.waiting.remove(at)).unwrap_or_default();
        let input = if is_resumed {
            // The run continues exactly where it stopped, with the settings of the response before, so this request
            // can take no further input.
            TakenInput { settings: parent.settings, committed: Vec::new(), queued: parent.steers }
        } else {
            insert(&mut request, &parent.steers);
            let can_be_steered = request.conversation.is_none() && request.compact_threshold.is_none();
            let settings = can_be_steered.then_some(settings);
            TakenInput { settings, committed: parent.steers, queued: Vec::new() }
        };
        SteeredRequest { request, input }
    }

    /// Notes that a response has begun.
    pub(super) fn begin(&mut self, id: &str, input: TakenInput) {
        let TakenInput { settings, queued: steers, .. } = input;
        self.active = Some(SteeredResponse { id: id.to_owned(), settings, steers });
    }

    /// Returns true if input waits for the end of the response in progress.
    pub(super) fn is_steered(&self) -> bool {
        self.active.as_ref().is_some_and(|active| !active.steers.is_empty())
    }

    /// Notes that the response has ended, and decides what follows.
    pub(super) fn end(&mut self, ended: Option<&EndedResponse>) -> SteerStep {
        let Some(mut response) = self.active.take() else { return SteerStep::Events(Vec::new()) };
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(response.id.clone());
        let required = ended.map(|ended| required_input(&ended.response)).unwrap_or_default();
        if !required.is_empty() {
            let events = response.steers.iter_mut().filter(|steer| !steer.is_announced);
            let events = events.map(|steer| steer.pending(&required)).collect();
            self.wait(response);
            return SteerStep::Events(events);
        }
        if response.steers.is_empty() {
            return SteerStep::Events(Vec::new());
        }
        let is_complete = ended.is_some_and(|ended| ["completed", "incomplete"].contains(&ended.end.status));
        let Some(settings) = response.settings.filter(|_| is_complete) else {
            let input = TakenInput { committed: response.steers, ..TakenInput::default() };
            let why = "the response did not complete, so no successor continues it";
            return SteerStep::Events(input.returned(why));
        };
        let request = successor(&response.id, &settings, &response.steers).map(Box::new);
        let input = TakenInput { settings: Some(settings), committed: response.steers, queued: Vec::new() };
        SteerStep::Successor(input, request)
    }

    /// Keeps a response that waits for the client, because the client's next request needs the queued input, and a
    /// request that answers an approval also needs the settings. If too many responses wait, forgets the oldest one
    /// without input.
    fn wait(&mut self, response: SteeredResponse) {
        if self.waiting.len() >= ENDED_MAX {
            let oldest = self.waiting.iter().position(|waiting| waiting.steers.is_empty());
            oldest.map(|at| self.waiting.remove(at));
        }
        self.waiting.push(response);
    }
}

impl TakenInput {
    /// Returns the events that give the input back to the client, because no response could take it.
    pub(super) fn returned(self, why: &str) -> Vec<Value> {
        let failed = |steer: AcceptedSteer| {
            let AcceptedSteer { id, previous_response_id, input, .. } = steer;
            let steer = json!({"id": id, "previous_response_id": previous_response_id, "input": input});
            SteerError::new("successor_creation_failed", why).event(steer)
        };
        self.committed.into_iter().chain(self.queued).map(failed).collect()
    }
}

impl AcceptedSteer {
    /// Returns the event that tells the client why the input waits.
    fn pending(&mut self, required: &[Value]) -> Value {
        self.is_announced = true;
        json!({
            "type": "response.steer.pending",
            "reason": "waiting_for_required_input",
            "required_input": required,
            "steer": {"id": self.id, "previous_response_id": self.previous_response_id},
        })
    }
}

/// The reason why input was not accepted, or is given back.
#[derive(Debug)]
struct SteerError {
    code: &'static str,
    message: String,
}

impl SteerError {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn event(&self, steer: Value) -> Value {
        let error = json!({"type": "invalid_request_error", "code": self.code, "message": self.message});
        let mut event = json!({"type": "response.steer.failed", "error": error});
        event["steer"] = steer;
        event
    }
}

/// Returns the request of a successor.
fn successor(
    previous: &str,
    settings: &SuccessorSettings,
    steers: &[AcceptedSteer],
) -> Result<CreateRequest, ApiError> {
    let mut body = settings.clone();
    body.insert("previous_response_id".into(), previous.into());
    let items: Vec<Value> = steers.iter().flat_map(|steer| steer.items.iter().cloned()).collect();
    body.insert("input".into(), items.into());
    request::parse(body)
}

/// Returns the settings of a request.
pub(super) fn settings_of(body: &Map<String, Value>) -> SuccessorSettings {
    let kept = body.iter().filter(|(name, _)| !["input", "previous_response_id"].contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Puts queued input before the other input of a request, but after the outputs of calls, because a model requires the
/// output of a call directly after the call.
fn insert(request: &mut CreateRequest, steers: &[AcceptedSteer]) {
    let outputs = request.input.iter().take_while(|item| matches!(item, InputItem::Output { .. })).count();
    let parsed = steers.iter().flat_map(|steer| steer.parsed.iter().cloned());
    request.input.splice(outputs..outputs, parsed);
    let items = steers.iter().flat_map(|steer| steer.items.iter().cloned());
    request.input_items.splice(outputs..outputs, items);
}

/// Returns the items that the client must send before the response can continue, without their results.
fn required_input(response: &Value) -> Vec<Value> {
    let items = response["output"].as_array().into_iter().flatten();
    let stub = |item: &Value| match item["type"].as_str() {
        Some("function_call") => {
            let (call_id, name) = (&item["call_id"], &item["name"]);
            Some(json!({"type": "function_call_output", "call_id": call_id, "name": name}))
        }
        Some("mcp_approval_request") => {
            Some(json!({"type": "mcp_approval_response", "approval_request_id": item["id"]}))
        }
        _ => None,
    };
    items.filter_map(stub).collect()
}

/// Parses the input of a steering message, which consists of user messages only.
fn parse(mut message: Map<String, Value>) -> Result<(Vec<InputItem>, Vec<Value>), ApiError> {
    if let Some(name) = message.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        return Err(invalid(name, format!("`{name}` is not a field of `response.steer`")));
    }
    let target = RequestField::new("previous_response_id", message.remove("previous_response_id"));
    target.text()?.ok_or_else(|| target.wrong("the id of a response"))?;
    let (parsed, items) = request::input(RequestField::new("input", message.remove("input")))?;
    if items.is_empty() {
        return Err(invalid("input", "`input` is missing or empty"));
    }
    items.iter().enumerate().try_for_each(|(at, item)| check_item(&format!("input[{at}]"), item))?;
    Ok((parsed, items))
}

/// Refuses all items except messages of the user.
fn check_item(path: &str, item: &Value) -> Result<(), ApiError> {
    if let Some(name) = item
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .find(|name| !["type", "role", "content"].contains(&name.as_str()))
    {
        return Err(invalid(
            format!("{path}.{name}"),
            format!("a steering message does not accept the field `{path}.{name}`"),
        ));
    }
    if item["role"] != "user" || !(item["type"].is_null() || item["type"] == "message") {
        return Err(invalid(path, format!("`{path}` must be a message with the role `user`")));
    }
    let parts = item["content"].as_array().into_iter().flatten();
    let accepted = ["input_text", "input_image", "input_file"];
    match parts.into_iter().find(|part| !accepted.iter().any(|kind| part["type"] == *kind)) {
        None => Ok(()),
        Some(part) => Err(invalid(
            format!("{path}.content"),
            format!(
                "`{path}.content` cannot have a part of type {}; expected {}",
                part["type"],
                accepted.join(", ")
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> SteerQueue {
        let mut queue = SteerQueue::default();
        queue.begin("resp_1", TakenInput { settings: Some(Map::new()), ..TakenInput::default() });
        queue
    }

    fn steer(input: &Value) -> Value {
        json!({"type": "response.steer", "previous_response_id": "resp_1", "input": input})
    }

    #[test]
    fn steering_message_with_a_duplicate_field_is_refused() {
        let message = r#"{"type":"response.steer","previous_response_id":"resp_1","input":"a","input":"b"}"#;
        let mut queue = queue();
        let failed = queue.submit(message);
        assert_eq!(
            (&failed["type"], &failed["error"]["code"]),
            (&json!("response.steer.failed"), &json!("invalid_input"))
        );
        assert!(failed["error"]["message"].as_str().unwrap().contains("`input` twice"), "{failed}");
        assert!(queue.active.is_some_and(|response| response.steers.is_empty()));
    }

    #[test]
    fn invalid_steering_input_is_returned_with_its_error() {
        let check = |message: &Value, expected: &str| {
            let failed = queue().submit(&message.to_string());
            assert_eq!(failed["type"], "response.steer.failed", "{message}");
            assert_eq!(failed["error"]["code"], "invalid_input", "{message}");
            assert_eq!(failed["error"]["type"], "invalid_request_error");
            let found = failed["error"]["message"].as_str().unwrap();
            assert!(found.contains(expected), "{message}: {found}");
            let input = message.get("input").cloned().unwrap_or_else(|| "".into());
            assert_eq!((&failed["steer"]["input"], failed["steer"].get("id")), (&input, None));
        };
        let user = |content: Value| json!([{"role": "user", "content": content}]);
        check(&json!({"type": "response.steer", "previous_response_id": "resp_1"}), "missing or empty");
        check(&json!({"type": "response.steer", "input": "x"}), "`previous_response_id`");
        check(
            &json!({"type": "response.steer", "previous_response_id": 1, "input": "x"}),
            "must be a string",
        );
        let mut lane = steer(&json!("x"));
        lane["stream_id"] = "a".into();
        check(&lane, "`stream_id` is not a field");
        check(&steer(&json!([])), "missing or empty");
        check(&steer(&json!(1)), "a string or an array");
        check(&steer(&json!([{"role": "assistant", "content": "x"}])), "the role `user`");
        check(&steer(&json!([{"role": "system", "content": "x"}])), "the role `user`");
        check(&steer(&json!([{"role": "user", "content": "x", "id": "msg_1"}])), "`input[0].id`");
        let output = json!([{"type": "function_call_output", "call_id": "c", "output": "x"}]);
        check(&steer(&output), "a steering message does not accept the field");
        let approval =
            json!([{"type": "mcp_approval_response", "approval_request_id": "a", "approve": true}]);
        check(&steer(&approval), "a steering message does not accept the field");
        check(&steer(&user(json!([{"type": "output_text", "text": "x"}]))), "output_text");
        check(&steer(&user(json!([{"type": "input_image", "image_url": "file:///etc"}]))), "image_url");
        check(&steer(&user(json!([{"type": "input_text"}]))), "text");
        check(&steer(&json!([{"role": "user", "content": "x"}, {"type": "teapot"}])), "teapot");
    }

    #[test]
    fn only_the_response_in_progress_accepts_steering_up_to_a_limit() {
        let mut queue = queue();
        let submit = |queue: &mut SteerQueue, target: &str| {
            let text =
                json!({"type": "response.steer", "previous_response_id": target, "input": "x"}).to_string();
            assert!(is_steer(&text));
            let answer = queue.submit(&text);
            answer["error"]["code"].as_str().map_or_else(|| "accepted".to_owned(), str::to_owned)
        };
        assert_eq!(submit(&mut queue, "resp_2"), "response_not_found");
        for _ in 0..STEERS_MAX {
            assert_eq!(submit(&mut queue, "resp_1"), "accepted");
        }
        assert_eq!(submit(&mut queue, "resp_1"), "too_many_pending_steers");
        let SteerStep::Events(events) = queue.end(None) else {
            panic!("a response without an end has a successor")
        };
        assert_eq!(events.len(), STEERS_MAX, "the client gets its input back");
        assert_eq!(submit(&mut queue, "resp_1"), "response_already_completed");
        queue.begin("resp_2", TakenInput::default());
        assert_eq!(submit(&mut queue, "resp_2"), "steering_not_supported");
    }

    #[test]
    fn connection_remembers_a_limited_number_of_responses() {
        let mut queue = SteerQueue::default();
        let output = json!([{"type": "function_call", "call_id": "c", "name": "f"}]);
        let end = super::super::object::ResponseEnd::completed();
        let ended = EndedResponse {
            response: json!({"output": output}),
            end,
            tool_began: false,
            warnings: Vec::new(),
        };
        for number in 0..2 * ENDED_MAX {
            queue.begin(&format!("resp_{number}"), TakenInput::default());
            queue.end(Some(&ended));
        }
        assert_eq!((queue.ended.len(), queue.waiting.len()), (ENDED_MAX, ENDED_MAX));
    }

    #[test]
    fn only_steering_messages_are_answered_at_once() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"type": 1}"#,
            r#"{"type": "response.create"}"#,
            r#"{"type": "response.steered"}"#,
        ] {
            assert!(!is_steer(text), "{text}");
        }
        assert!(is_steer(r#"{"input": "x", "type": "response.\u0073teer"}"#));
    }
}

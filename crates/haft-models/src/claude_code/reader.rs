//! Parses the JSON lines that Claude Code prints.

use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::{ModelEvent, PartDelta, PartStart};
use haft_core::model_reply::{StopReason, TokenUsage};
use haft_core::price::Cost;
use serde_json::Value;

use super::control::CommandCall;
use super::tool_uses::PendingToolUses;
use crate::failure;
use crate::wire::ErrorHead;

/// Selects how to interpret the text messages of Claude Code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextMeaning {
    /// No other message can follow, so the text is the answer, and haft passes it on as it streams.
    Answer,
    /// A text is either an intermediate step or the answer. It is an intermediate step if another message follows.
    Steps,
}

/// Reads one reply, which may span several `claude` processes.
#[derive(Debug)]
pub(super) struct ClaudeOutputReader {
    /// The session id that Claude Code reported.
    pub(super) session: Option<String>,
    texts: TextMeaning,
    started: bool,
    parts: usize,
    /// The pending text. It is the answer unless another message follows.
    pending: Option<String>,
    live: StreamedMessage,
    tool_uses: PendingToolUses,
    events: Vec<ModelEvent>,
    outcome: Option<ClaudeOutcome>,
    /// The reason why the model stopped, if Claude Code reports one.
    stop: StopReason,
    spent: ClaudeSpend,
    model: Option<String>,
    messages: MessageUsage,
}

/// The token usage of one `claude` process, added up from its messages. Only the result line at the end has the total,
/// and a reply with tool calls ends before this line.
#[derive(Debug, Default)]
struct MessageUsage {
    /// The usage of the message that is being streamed.
    current: TokenUsage,
    /// The usage of the messages since the last reply.
    reply: TokenUsage,
    /// The usage of earlier replies.
    accounted: TokenUsage,
}

/// The token usage and cost. In `ClaudeOutputReader`, these are the totals of all processes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ClaudeSpend {
    pub(super) usage: Option<TokenUsage>,
    pub(super) cost: Option<Cost>,
}

/// The result of one `claude` process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClaudeOutcome {
    pub(super) answer: Result<String, ClaudeFailure>,
    /// The usage and cost of this process alone.
    pub(super) spent: ClaudeSpend,
}

/// The reason why Claude Code gave no answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ClaudeFailure {
    /// Claude Code reached its turn limit.
    TurnsUsedUp,
    /// The model's provider or Claude Code returned an error.
    Refused(ModelError),
    /// The process exited without a result line.
    Died(String),
    NotStarted(String),
}

impl ClaudeFailure {
    pub(super) fn into_error(self) -> ModelError {
        match self {
            Self::TurnsUsedUp => {
                let message = "Claude Code used all its turns before it had an answer; raise `maxTurns` to allow more turns";
                ModelError::new(ModelErrorKind::ReplyTooLarge, message)
            }
            Self::Refused(error) => error,
            Self::Died(how) | Self::NotStarted(how) => ModelError::new(ModelErrorKind::ServerFailed, how),
        }
    }
}

impl ClaudeOutputReader {
    pub(super) fn new(texts: TextMeaning) -> Self {
        Self {
            session: None,
            texts,
            started: false,
            parts: 0,
            pending: None,
            live: StreamedMessage::default(),
            tool_uses: PendingToolUses::default(),
            events: Vec::new(),
            outcome: None,
            stop: StopReason::EndOfTurn,
            spent: ClaudeSpend::default(),
            model: None,
            messages: MessageUsage::default(),
        }
    }

    /// Begins the next reply of the same process.
    pub(super) fn next_reply(&mut self) {
        self.parts = 0;
        self.events.push(ModelEvent::Started { id: self.session.clone(), model: self.model.clone() });
    }

    /// Returns true while a message of the model is incomplete and may contain further calls.
    pub(super) fn is_in_message(&self) -> bool {
        self.live.streaming
    }

    /// Returns true if Claude Code will soon send more calls that belong together with these.
    pub(super) fn expects_more_than(&self, calls: &[CommandCall]) -> bool {
        self.tool_uses.expect_more_than(calls)
    }

    /// Ends a reply with calls. Returns the usage since the last reply.
    pub(super) fn finish_with_calls(&mut self, calls: &[CommandCall]) -> TokenUsage {
        self.close();
        self.demote_pending_text();
        self.tool_uses.remove_calls(calls);
        for call in calls {
            let part = PartStart::Call { id: call.id.clone(), name: call.name.clone() };
            self.part(part, call.arguments.to_string());
        }
        let usage = std::mem::take(&mut self.messages.reply);
        self.messages.accounted = sum(self.messages.accounted, usage);
        self.events.extend([ModelEvent::Usage(usage), ModelEvent::Finished { stop: StopReason::ToolCalls }]);
        usage
    }

    /// Returns true if Claude Code has reported its result.
    pub(super) fn has_outcome(&self) -> bool {
        self.outcome.is_some()
    }

    /// Returns true if the caller already got a part of the answer, so that another answer cannot replace it.
    pub(super) fn has_answered(&self) -> bool {
        self.live.answered
    }

    /// Handles an output line. Skips lines of unknown kinds, because each version of Claude Code adds new kinds.
    pub(super) fn line(&mut self, line: &Value) {
        // Skip messages of Claude Code's own sub-agents, which are not part of the reply.
        if !line["parent_tool_use_id"].is_null() {
            return;
        }
        match line["type"].as_str() {
            Some("system") if line["subtype"] == "init" => self.began(line),
            Some("stream_event") => self.live(&line["event"]),
            Some("assistant") if line["is_api_error_message"] != true => self.read_message(&line["message"]),
            Some("user") => self.tool_uses.remove_results(&line["message"]),
            Some("result") => self.ended(line),
            _ => {}
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<ModelEvent> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn take_outcome(&mut self) -> Option<ClaudeOutcome> {
        self.outcome.take()
    }

    /// Emits the rest of the reply once the answer is complete.
    pub(super) fn finish(&mut self, answer: String) {
        self.close();
        if let Some(text) = self.pending.take().filter(|text| *text != answer) {
            self.part(PartStart::Reasoning, text);
        }
        if !answer.is_empty() && !self.live.answered {
            self.part(PartStart::Text, answer);
        }
        self.events.extend(self.spent.usage.map(ModelEvent::Usage));
        self.events.push(ModelEvent::Finished { stop: self.stop.clone() });
    }

    fn began(&mut self, line: &Value) {
        self.session = line["session_id"].as_str().map(str::to_owned).or(self.session.take());
        if !std::mem::replace(&mut self.started, true) {
            self.model = line["model"].as_str().map(str::to_owned);
            self.events.push(ModelEvent::Started { id: self.session.clone(), model: self.model.clone() });
        }
    }

    /// Handles a complete message. Text before the final message is an intermediate step, so it becomes reasoning and
    /// not a part of the answer.
    fn read_message(&mut self, message: &Value) {
        let is_live = self.live.message.is_some() && self.live.message.as_deref() == message["id"].as_str();
        for block in message["content"].as_array().into_iter().flatten() {
            let text = |key: &str| block[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            if !is_live {
                self.demote_pending_text();
            }
            match (block["type"].as_str(), self.texts) {
                (Some("text"), TextMeaning::Answer) if is_live => {}
                (Some("text"), _) => self.pending = text("text"),
                (Some("thinking"), _) if !is_live => {
                    if let Some(thought) = text("thinking") {
                        self.part(PartStart::Reasoning, thought);
                    }
                }
                _ => {}
            }
        }
    }

    /// Handles a streaming event of a message that is still being written. The whole message follows in a separate
    /// output line.
    fn live(&mut self, event: &Value) {
        match event["type"].as_str() {
            Some("message_start") => {
                self.live_message(event["message"]["id"].as_str());
                self.tool_uses.clear();
                self.messages.current = usage(&event["message"]["usage"]).unwrap_or_default();
            }
            Some("message_delta") => {
                self.messages.current.output = event["usage"]["output_tokens"].as_u64().unwrap_or_default();
            }
            Some("message_stop") => {
                self.live.streaming = false;
                self.messages.reply = sum(self.messages.reply, std::mem::take(&mut self.messages.current));
            }
            Some("content_block_start") => {
                self.close();
                self.demote_pending_text();
                self.tool_uses.add_block(&event["content_block"]);
                match (event["content_block"]["type"].as_str(), self.texts) {
                    (Some("thinking"), _) => self.live.flowing = Some(PartStart::Reasoning),
                    (Some("text"), TextMeaning::Answer) => self.live.flowing = Some(PartStart::Text),
                    _ => {}
                }
            }
            Some("content_block_delta") => {
                let delta = &event["delta"];
                let more = delta["text"].as_str().or(delta["thinking"].as_str()).unwrap_or_default();
                self.flow(more);
            }
            Some("content_block_stop") => self.close(),
            _ => {}
        }
    }

    /// Starts a streamed message. Claude Code repeats a model request whose stream broke. If the caller already got a
    /// part of the answer, the reply fails, because the caller cannot take that part back.
    fn live_message(&mut self, id: Option<&str>) {
        let broke_off = self.live.open.is_some();
        self.close();
        if broke_off && self.live.answered {
            let how = "Claude Code restarted its answer after haft had passed on a part of it";
            self.live.broken = Some(ClaudeFailure::Died(how.into()));
        }
        self.live.message = id.map(str::to_owned);
        self.live.streaming = true;
    }

    fn flow(&mut self, more: &str) {
        let Some(part) = self.live.flowing.clone().filter(|_| !more.is_empty()) else { return };
        self.live.answered |= part == PartStart::Text;
        let index = match self.live.open {
            Some(index) => index,
            None => self.open(part),
        };
        self.live.open = Some(index);
        self.events.push(ModelEvent::PartDelta { index, delta: PartDelta::Text(more.to_owned()) });
    }

    fn close(&mut self) {
        self.live.flowing = None;
        if let Some(index) = self.live.open.take() {
            self.events.push(ModelEvent::PartFinished { index, mark: None });
        }
    }

    /// Turns the pending text into reasoning: another message follows, so the text was not the answer.
    fn demote_pending_text(&mut self) {
        if let Some(before) = self.pending.take() {
            self.part(PartStart::Reasoning, before);
        }
    }

    fn ended(&mut self, line: &Value) {
        self.session = line["session_id"].as_str().map(str::to_owned).or(self.session.take());
        let spent = ClaudeSpend {
            usage: usage(&line["usage"]).map(|total| difference(total, self.messages.accounted)),
            cost: line["total_cost_usd"].as_f64().filter(|usd| *usd >= 0.0).map(Cost::from_usd),
        };
        self.messages = MessageUsage::default();
        self.spent = self.spent.and(spent);
        self.stop = stop(line);
        let answer = self.live.broken.take().map_or_else(|| answer(line), Err);
        self.outcome = Some(ClaudeOutcome { answer, spent });
    }

    fn open(&mut self, part: PartStart) -> usize {
        let index = self.parts;
        self.parts += 1;
        self.events.push(ModelEvent::PartStarted { index, part, mark: None });
        index
    }

    fn part(&mut self, part: PartStart, text: String) {
        let index = self.open(part);
        self.events.extend([
            ModelEvent::PartDelta { index, delta: PartDelta::Text(text) },
            ModelEvent::PartFinished { index, mark: None },
        ]);
    }
}

/// The state of a message that is being streamed.
#[derive(Debug, Default)]
struct StreamedMessage {
    /// The message id, which identifies the whole message when it follows.
    message: Option<String>,
    /// The kind of part to which the current deltas belong.
    flowing: Option<PartStart>,
    /// The index of the part in which the deltas are emitted.
    open: Option<usize>,
    /// True from the start of a streamed message to its end.
    streaming: bool,
    answered: bool,
    broken: Option<ClaudeFailure>,
}

impl ClaudeSpend {
    fn and(self, more: Self) -> Self {
        let usage = match (self.usage, more.usage) {
            (Some(one), Some(other)) => Some(sum(one, other)),
            (one, other) => other.or(one),
        };
        let cost = match (self.cost, more.cost) {
            (Some(one), Some(other)) => Some(Cost { nano_usd: one.nano_usd.saturating_add(other.nano_usd) }),
            (one, other) => other.or(one),
        };
        Self { usage, cost }
    }
}

fn sum(one: TokenUsage, other: TokenUsage) -> TokenUsage {
    each_count(one, other, u64::saturating_add)
}

fn difference(one: TokenUsage, other: TokenUsage) -> TokenUsage {
    each_count(one, other, u64::saturating_sub)
}

fn each_count(one: TokenUsage, other: TokenUsage, join: fn(u64, u64) -> u64) -> TokenUsage {
    TokenUsage {
        input: join(one.input, other.input),
        output: join(one.output, other.output),
        cache_read: join(one.cache_read, other.cache_read),
        cache_write: join(one.cache_write, other.cache_write),
        reasoning: join(one.reasoning, other.reasoning),
    }
}

fn answer(line: &Value) -> Result<String, ClaudeFailure> {
    if line["subtype"] == "error_max_turns" {
        return Err(ClaudeFailure::TurnsUsedUp);
    }
    let text = line["result"].as_str().unwrap_or_default();
    if line["is_error"] != true {
        let structured = &line["structured_output"];
        return Ok(if structured.is_null() { text.to_owned() } else { structured.to_string() });
    }
    let status = line["api_error_status"].as_u64().and_then(|status| u16::try_from(status).ok());
    let errors = line["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words = errors.chain([text]).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
    // Some errors have no status. An error that asks the user to run `/login` means missing credentials.
    let status = status.unwrap_or(if words.to_ascii_lowercase().contains("/login") { 401 } else { 500 });
    Err(ClaudeFailure::Refused(failure::decode(&ErrorHead::of_status(status), words.as_bytes())))
}

/// Returns the stop reason. A truncated or refused answer is incomplete, even though Claude Code reports success.
fn stop(line: &Value) -> StopReason {
    match line["stop_reason"].as_str() {
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
        Some("refusal") => StopReason::Refusal,
        Some(_) | None => StopReason::EndOfTurn,
    }
}

fn usage(line: &Value) -> Option<TokenUsage> {
    let count = |key: &str| line[key].as_u64().unwrap_or(0);
    let (cache_read, cache_write) = (count("cache_read_input_tokens"), count("cache_creation_input_tokens"));
    let usage = TokenUsage {
        input: count("input_tokens").saturating_add(cache_read).saturating_add(cache_write),
        output: count("output_tokens"),
        cache_read,
        cache_write,
        reasoning: line["output_tokens_details"]["thinking_tokens"].as_u64().unwrap_or(0),
    };
    line.is_object().then_some(usage)
}

#[cfg(test)]
mod tests {
    use haft_core::model_reply::ReplyFold;
    use serde_json::json;

    use super::*;

    fn read(lines: &[Value]) -> ClaudeOutputReader {
        read_as(TextMeaning::Steps, lines)
    }

    fn read_as(texts: TextMeaning, lines: &[Value]) -> ClaudeOutputReader {
        let mut reader = ClaudeOutputReader::new(texts);
        for line in lines {
            reader.line(line);
        }
        reader
    }

    fn assistant(content: &Value) -> Value {
        json!({"type": "assistant", "message": {"content": content}, "parent_tool_use_id": null})
    }

    fn result(result: &str) -> Value {
        json!({"type": "result", "subtype": "success", "is_error": false, "result": result, "session_id": "s",
               "total_cost_usd": 0.25, "usage": {"input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 3}})
    }

    #[test]
    fn last_message_is_the_answer_and_earlier_text_is_reasoning() {
        let init = json!({"type": "system", "subtype": "init", "session_id": "s", "model": "m"});
        let look =
            assistant(&json!([{"type": "text", "text": "I look."}, {"type": "tool_use", "name": "Read"}]));
        let inner = json!({"type": "assistant", "parent_tool_use_id": "t", "message": {"content": [{"type": "text", "text": "inner"}]}});
        let done = assistant(&json!([{"type": "text", "text": "It is 3."}]));
        let mut reader =
            read(&[init, look, inner, json!({"type": "new"}), json!(7), done, result("It is 3.")]);
        let outcome = reader.take_outcome().unwrap();
        assert_eq!(outcome.spent.cost, Some(Cost { nano_usd: 250_000_000 }));
        reader.finish(outcome.answer.unwrap());
        let reply = ReplyFold::of(reader.take_events());
        assert_eq!((reply.text().as_str(), reply.parts.len()), ("It is 3.", 2));
        assert_eq!((reply.id.as_deref(), reply.model.as_deref()), (Some("s"), Some("m")));
        assert_eq!(reply.usage.unwrap().input, 3);
    }

    /// Returns the output lines for a message: first its stream events, then the whole message.
    fn written(id: &str, blocks: &[(&str, &[&str])]) -> Vec<Value> {
        let event =
            |event: Value| json!({"type": "stream_event", "event": event, "parent_tool_use_id": null});
        let mut lines = vec![event(json!({"type": "message_start", "message": {"id": id}}))];
        for (kind, pieces) in blocks {
            lines.push(event(json!({"type": "content_block_start", "content_block": {"type": kind}})));
            let delta = |piece: &&str| event(json!({"type": "content_block_delta", "delta": {*kind: piece}}));
            lines.extend(pieces.iter().map(delta));
            let mut whole = assistant(&json!([{"type": kind, *kind: pieces.concat()}]));
            whole["message"]["id"] = json!(id);
            lines.extend([whole, event(json!({"type": "content_block_stop"}))]);
        }
        lines
    }

    fn parts(events: &[ModelEvent]) -> Vec<String> {
        let shown_text = |event: &ModelEvent| match event {
            ModelEvent::PartStarted { part, .. } => Some(format!("{part:?}:")),
            ModelEvent::PartDelta { delta: PartDelta::Text(text), .. } => Some(text.clone()),
            _ => None,
        };
        events.iter().filter_map(shown_text).collect()
    }

    #[test]
    fn final_answer_is_streamed_and_not_repeated_at_the_end() {
        let mut lines = written("m", &[("thinking", &["Let ", "me."]), ("text", &["A ", "handle."])]);
        let mut reader = read_as(TextMeaning::Answer, &lines);
        assert_eq!(parts(&reader.take_events()), ["Reasoning:", "Let ", "me.", "Text:", "A ", "handle."]);
        reader.finish("A handle.".into());
        assert_eq!(parts(&reader.take_events()), Vec::<String>::new());
        // Claude Code restarts its answer under a new message id.
        lines.truncate(lines.len() - 2);
        lines.extend(written("n", &[("text", &["Again."])]));
        lines.push(result("Again."));
        let mut reader = read_as(TextMeaning::Answer, &lines);
        assert!(reader.has_answered());
        assert!(matches!(reader.take_outcome().unwrap().answer, Err(ClaudeFailure::Died(_))));
    }

    #[test]
    fn only_thinking_is_streamed_between_tool_steps() {
        let mut lines = written("m", &[("thinking", &["Let ", "me."]), ("text", &["I ", "look."])]);
        lines.extend(written("m", &[("tool_use", &[])]));
        lines.extend(written("n", &[("text", &["It is ", "3."])]));
        let mut reader = read(&lines);
        reader.finish("It is 3.".into());
        let shown_text = parts(&reader.take_events());
        assert_eq!(shown_text, ["Reasoning:", "Let ", "me.", "Reasoning:", "I look.", "Text:", "It is 3."]);
    }

    #[test]
    fn each_failed_result_maps_to_its_error_kind() {
        let check = |line: Value, expected: ModelErrorKind| {
            let failed = read(&[line]).take_outcome().unwrap().answer.unwrap_err();
            assert_eq!(failed.clone().into_error().kind, expected, "{failed:?}");
        };
        check(json!({"type": "result", "subtype": "error_max_turns"}), ModelErrorKind::ReplyTooLarge);
        let refused = |status: Value, text: &str| json!({"type": "result", "is_error": true, "api_error_status": status, "result": text});
        check(refused(json!(529), "API Error: 529"), ModelErrorKind::Overloaded);
        check(refused(json!(401), "no"), ModelErrorKind::Unauthorized);
        check(refused(Value::Null, "Invalid API key · Please run /login"), ModelErrorKind::Unauthorized);
        check(refused(Value::Null, "boom"), ModelErrorKind::ServerFailed);
    }

    #[test]
    fn stop_reason_of_the_result_is_passed_on() {
        let check = |reason: Value, expected: StopReason| {
            let mut line = result("words");
            line["stop_reason"] = reason;
            let mut reader = read(&[line]);
            reader.finish("words".into());
            assert_eq!(reader.take_events().last(), Some(&ModelEvent::Finished { stop: expected }));
        };
        check(Value::Null, StopReason::EndOfTurn);
        check(json!("end_turn"), StopReason::EndOfTurn);
        check(json!("max_tokens"), StopReason::Length);
        check(json!("refusal"), StopReason::Refusal);
    }

    #[test]
    fn structured_output_of_claude_code_is_the_answer() {
        let mut line = result("words");
        line["structured_output"] = json!({"a": 1});
        assert_eq!(read(&[line]).take_outcome().unwrap().answer, Ok("{\"a\":1}".to_owned()));
    }
}

//! A model's reply, its stop reason and its token usage.

use std::fmt;

use crate::arguments::RawArguments;
use crate::conversation::{Message, MessagePart, PartBody};
use crate::model_event::{ModelEvent, PartDelta, PartStart};
use crate::tool::ToolCall;

/// One reply of a model, which is one turn.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReply {
    /// The id that the provider gave the reply; `None` if the provider sends no ids.
    pub id: Option<String>,
    /// The model that actually answered, if the provider reports it.
    pub model: Option<String>,
    /// The content, in the order in which it arrived.
    pub parts: Vec<MessagePart>,
    /// The reason why the model stopped.
    pub stop: StopReason,
    /// The token usage; `None` if the provider did not report it.
    pub usage: Option<TokenUsage>,
    /// Repairs and anomalies of the reply, for the log.
    pub notes: Vec<ReplyNote>,
}

impl ModelReply {
    /// Converts the reply to the next message of its conversation.
    pub fn into_message(self) -> Message {
        Message::assistant(self.parts)
    }

    /// Returns the events that produce this reply again, for a provider that does not stream.
    pub fn into_events(self) -> Vec<ModelEvent> {
        let mut events = vec![ModelEvent::Started { id: self.id, model: self.model }];
        for (index, MessagePart { body, mark }) in self.parts.into_iter().enumerate() {
            let Some((part, deltas)) = unfold(body) else { continue };
            events.push(ModelEvent::PartStarted { index, part, mark: mark.clone() });
            events.extend(deltas.into_iter().map(|delta| ModelEvent::PartDelta { index, delta }));
            events.push(ModelEvent::PartFinished { index, mark });
        }
        events.extend(self.notes.into_iter().map(ModelEvent::Noted));
        events.extend(self.usage.map(ModelEvent::Usage));
        events.push(ModelEvent::Finished { stop: self.stop });
        events
    }

    /// Returns the concatenated text, without reasoning.
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(MessagePart::as_text).collect()
    }

    /// Returns the tool calls of the reply, in the order in which the model wrote them.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(MessagePart::as_call)
    }
}

/// The reason why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// The model finished its answer.
    EndOfTurn,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The reply reached the limit on output tokens or the end of the context window.
    Length,
    /// The model wrote one of the request's stop sequences.
    StopSequence,
    /// The model refused to answer.
    Refusal,
    /// The provider's filter withheld the answer, or the rest of it.
    Filtered,
    /// The provider paused. To continue, send the same conversation again, together with the reply so far.
    Paused,
    /// The stream ended too early.
    CutOff,
    /// An unknown stop reason, as the provider wrote it.
    Other(String),
}

/// The tokens of a turn. `input` includes all tokens read and `output` all tokens written; the other fields are parts
/// of these two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// All input tokens, including those from the cache.
    pub input: u64,
    /// All tokens written, including reasoning.
    pub output: u64,
    /// The part of the input that the provider read from its cache.
    pub cache_read: u64,
    /// The part of the input that the provider wrote to its cache.
    pub cache_write: u64,
    /// The part of the output that is reasoning.
    pub reasoning: u64,
}

/// An anomaly in a reply that could still be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyNote {
    /// Two calls had the same id, or a call had no id, so haft generated this id.
    CallIdGiven {
        /// The id that haft generated for the call, unique in the reply.
        id: String,
    },
    /// The provider sent a stop reason that its format does not define.
    UnknownStopReason {
        /// The stop reason as the provider wrote it.
        reason: String,
    },
    /// The reply has a part of an unknown kind. Only a request in the same wire format sends the part back.
    UnknownPart {
        /// The provider's own name for the kind of part.
        kind: String,
    },
    /// The stream ended without an end event.
    NoEnd,
    /// The reply has no content.
    Empty,
    /// The server reported fewer input tokens than the prompt must have, so it truncated the prompt without an error.
    PromptCut {
        /// The input tokens that the server reported.
        read_tokens: u64,
        /// The minimum number of tokens that the prompt can have.
        sent_tokens_min: u64,
    },
    /// A request feature that the provider does not support, and the substitute.
    FeatureDropped {
        /// The feature, in words for the operator.
        what: String,
        /// The substitute that haft used instead of the feature.
        instead: String,
    },
    /// haft skipped an event that it could not use, or the calls beyond [`CALLS_PER_REPLY_MAX`].
    EventSkipped {
        /// The reason why haft skipped this part of the reply.
        reason: String,
    },
    /// A call written as plain text was not valid JSON, and the parser repaired it.
    CallRepaired {
        /// The tool name in the call.
        name: String,
        /// The repair, in words for the operator.
        how: String,
    },
    /// A text that is tagged as a call cannot be parsed as one, and stays text.
    CallUnread {
        /// The reason why the text cannot be parsed as a call.
        problem: String,
    },
    /// The first model failed, and a fallback model received the request.
    FallbackUsed {
        /// The model that failed, as `provider/model`.
        failed: String,
        /// The error of the failed model.
        problem: String,
    },
}

impl ReplyNote {
    /// Returns true for a note that every user must see, because the answer may be wrong. Other notes are details.
    pub fn is_alarm(&self) -> bool {
        match self {
            Self::PromptCut { .. } | Self::CallUnread { .. } | Self::FallbackUsed { .. } => true,
            Self::CallIdGiven { .. }
            | Self::UnknownStopReason { .. }
            | Self::UnknownPart { .. }
            | Self::NoEnd
            | Self::Empty
            | Self::FeatureDropped { .. }
            | Self::EventSkipped { .. }
            | Self::CallRepaired { .. } => false,
        }
    }
}

impl fmt::Display for ReplyNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CallIdGiven { id } => {
                write!(f, "a tool call had no unique id, so haft gave it the id `{id}`")
            }
            Self::UnknownStopReason { reason } => {
                write!(f, "the provider ended the reply for an unknown reason: `{reason}`")
            }
            Self::UnknownPart { kind } => {
                write!(f, "the model's reply has a part of an unknown kind: `{kind}`")
            }
            Self::NoEnd => write!(f, "the reply stream of the model ended without its end event"),
            Self::Empty => write!(f, "the model's reply is empty"),
            Self::PromptCut { read_tokens, sent_tokens_min } => write!(
                f,
                "the model server cut the prompt: it read {read_tokens} tokens of at least {sent_tokens_min}; \
                 raise `contextTokens` of the model in `models.settings`, or of the agent"
            ),
            Self::FeatureDropped { what, instead } => {
                write!(f, "the provider does not support {what}: {instead}")
            }
            Self::EventSkipped { reason } => {
                write!(f, "haft skipped a part of the model's reply: {reason}")
            }
            Self::CallRepaired { name, how } => {
                write!(f, "haft repaired the model's call to `{name}`: {how}")
            }
            Self::FallbackUsed { failed, problem } => {
                write!(f, "the model {failed} failed, so haft used a fallback model: {problem}")
            }
            Self::CallUnread { problem } => {
                write!(f, "haft could not parse text that is tagged as a tool call: {problem}")
            }
        }
    }
}

/// The maximum number of calls in one reply. Further calls are dropped as they arrive: a run makes only a few calls per
/// turn, and refusing 100,000 calls one by one would take a minute.
pub const CALLS_PER_REPLY_MAX: usize = 1_000;

/// The text between two paragraphs of a reasoning summary.
const SUMMARY_BREAK: &str = "\n\n";

/// Builds a reply from events.
#[derive(Debug, Default)]
pub struct ReplyFold {
    id: Option<String>,
    model: Option<String>,
    parts: Vec<MessagePart>,
    /// The index in `parts` of each part in the stream; `None` for a dropped call.
    positions: Vec<Option<usize>>,
    calls: usize,
    stop: Option<StopReason>,
    usage: Option<TokenUsage>,
    notes: Vec<ReplyNote>,
}

impl ReplyFold {
    /// Builds a reply from all its events.
    pub fn of(events: impl IntoIterator<Item = ModelEvent>) -> ModelReply {
        let mut fold = Self::default();
        for event in events {
            fold.apply(&event);
        }
        fold.finish()
    }

    /// Adds the next event of the stream. Returns false if the event belongs to a dropped call; see
    /// [`CALLS_PER_REPLY_MAX`].
    pub fn apply(&mut self, event: &ModelEvent) -> bool {
        match event {
            ModelEvent::Started { id, model } => (self.id, self.model) = (id.clone(), model.clone()),
            ModelEvent::PartStarted { part, mark, .. } => {
                self.calls += usize::from(matches!(part, PartStart::Call { .. }));
                let is_dropped = matches!(part, PartStart::Call { .. }) && self.calls > CALLS_PER_REPLY_MAX;
                self.positions.push((!is_dropped).then_some(self.parts.len()));
                if is_dropped {
                    return false;
                }
                self.parts.push(MessagePart { body: started(part), mark: mark.clone() });
            }
            ModelEvent::PartDelta { index, delta } => match self.part(*index) {
                Some(part) => extend(&mut part.body, delta),
                None => return false,
            },
            ModelEvent::PartFinished { index, mark } => match (self.part(*index), mark) {
                (Some(part), Some(mark)) => part.mark = Some(mark.clone()),
                (Some(_), None) => {}
                (None, _) => return false,
            },
            ModelEvent::Usage(usage) => self.usage = Some(*usage),
            ModelEvent::Noted(note) => self.notes.push(note.clone()),
            ModelEvent::Finished { stop } => self.stop = Some(stop.clone()),
        }
        true
    }

    fn part(&mut self, index: usize) -> Option<&mut MessagePart> {
        let position = self.positions.get(index).copied().flatten()?;
        self.parts.get_mut(position)
    }

    /// Returns the reply. Without a `Finished` event, its stop reason is `CutOff`.
    pub fn finish(self) -> ModelReply {
        let Self { id, model, parts, stop, usage, mut notes, calls, .. } = self;
        if calls > CALLS_PER_REPLY_MAX {
            let reason =
                format!("the reply has {calls} calls; haft keeps only the first {CALLS_PER_REPLY_MAX}");
            notes.push(ReplyNote::EventSkipped { reason });
        }
        ModelReply { id, model, parts, stop: stop.unwrap_or(StopReason::CutOff), usage, notes }
    }
}

fn started(part: &PartStart) -> PartBody {
    match part {
        PartStart::Text => PartBody::Text { text: String::new(), annotations: Vec::new() },
        PartStart::Refusal => PartBody::Refusal(String::new()),
        PartStart::Reasoning => PartBody::Reasoning(String::new()),
        PartStart::Call { id, name } => PartBody::Call(ToolCall {
            id: id.clone(),
            name: name.clone(),
            arguments: RawArguments::from_text(String::new()),
        }),
        PartStart::Image(media) => PartBody::Image(media.clone()),
        PartStart::Audio(media) => PartBody::Audio(media.clone()),
        PartStart::File { name, media } => PartBody::File { name: name.clone(), media: media.clone() },
        PartStart::Opaque => PartBody::Opaque,
    }
}

/// Splits a part into its start and its deltas. Returns `None` for a tool reply, which a model never writes.
fn unfold(body: PartBody) -> Option<(PartStart, Vec<PartDelta>)> {
    Some(match body {
        PartBody::Text { text, annotations } => {
            let annotations = annotations.into_iter().map(PartDelta::Annotation);
            (PartStart::Text, std::iter::once(PartDelta::Text(text)).chain(annotations).collect())
        }
        PartBody::Refusal(text) => (PartStart::Refusal, vec![PartDelta::Text(text)]),
        PartBody::Reasoning(text) => (PartStart::Reasoning, vec![PartDelta::Text(text)]),
        PartBody::Call(call) => {
            let arguments = call.arguments.as_text().to_owned();
            (PartStart::Call { id: call.id, name: call.name }, vec![PartDelta::Text(arguments)])
        }
        PartBody::Image(media) => (PartStart::Image(media), Vec::new()),
        PartBody::Audio(media) => (PartStart::Audio(media), Vec::new()),
        PartBody::File { name, media } => (PartStart::File { name, media }, Vec::new()),
        PartBody::Opaque => (PartStart::Opaque, Vec::new()),
        PartBody::Reply(_) => return None,
    })
}

fn extend(body: &mut PartBody, delta: &PartDelta) {
    match (body, delta) {
        (
            PartBody::Text { text, .. } | PartBody::Refusal(text) | PartBody::Reasoning(text),
            PartDelta::Text(more),
        ) => {
            text.push_str(more);
        }
        (PartBody::Reasoning(text), PartDelta::Summary(more)) => text.push_str(more),
        (PartBody::Reasoning(text), PartDelta::SummaryBreak) => text.push_str(SUMMARY_BREAK),
        (PartBody::Call(call), PartDelta::Text(more)) => call.arguments.push_text(more),
        (PartBody::Text { annotations, .. }, PartDelta::Annotation(annotation)) => {
            annotations.push(annotation.clone());
        }
        // Media and opaque state arrive as a whole, only text has annotations, and only reasoning has a summary.
        (
            PartBody::Image(_)
            | PartBody::Audio(_)
            | PartBody::File { .. }
            | PartBody::Reply(_)
            | PartBody::Opaque,
            PartDelta::Text(_),
        )
        | (_, PartDelta::Annotation(_) | PartDelta::Summary(_) | PartDelta::SummaryBreak) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::CallId;

    #[test]
    fn reply_fold_drops_only_the_calls_beyond_the_limit() {
        let call = |index: usize| {
            let part = PartStart::Call { id: CallId(index.to_string()), name: "bash".into() };
            let delta = PartDelta::Text(format!("{{\"n\": {index}}}"));
            [
                ModelEvent::PartStarted { index, part, mark: None },
                ModelEvent::PartDelta { index, delta },
                ModelEvent::PartFinished { index, mark: None },
            ]
        };
        let calls = 100_000;
        let text = [
            ModelEvent::PartStarted { index: calls, part: PartStart::Text, mark: None },
            ModelEvent::PartDelta { index: calls, delta: PartDelta::Text("done".into()) },
        ];
        let mut fold = ReplyFold::default();
        let applied = (0..calls).flat_map(call).chain(text).filter(|event| fold.apply(event)).count();
        assert_eq!(
            applied,
            3 * CALLS_PER_REPLY_MAX + 2,
            "the fold applies only the events of the text and of calls within the limit"
        );
        let reply = fold.finish();
        assert_eq!(reply.calls().count(), CALLS_PER_REPLY_MAX);
        assert_eq!(reply.calls().last().unwrap().arguments.as_text(), "{\"n\": 999}");
        assert_eq!(reply.text(), "done");
        let noted = "haft skipped a part of the model's reply: \
                     the reply has 100000 calls; haft keeps only the first 1000";
        assert_eq!(reply.notes.iter().map(ToString::to_string).collect::<Vec<_>>(), [noted]);
    }
}

//! Computes fingerprints of requests incrementally: a conversation grows at its end, so only new messages are hashed.

use std::sync::Arc;

use haft_core::conversation::{Conversation, Message, Role};
use haft_core::digest::Digest;
use haft_core::model_request::{ModelRequest, ModelTool};
use haft_core::stored::{StoredMessage, StoredRequest};

use super::normalize;
use crate::conversation_cache::ConversationState;

/// The fingerprints of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestFingerprints {
    /// The digest of the normalized request.
    pub(super) digest: Digest,
    /// The digest of the full request. It distinguishes requests that are equal only after normalization.
    pub(super) exact: Digest,
    /// The turn, counted from 1: one more than the number of assistant messages in the request.
    pub(super) turn: usize,
    /// The names of the tools that the last assistant message called.
    pub(super) called: Vec<String>,
}

/// The cached fingerprint state of one conversation.
#[derive(Debug)]
pub(super) struct FingerprintCache {
    seen: Vec<Arc<Message>>,
    digest: Digest,
    exact: Digest,
    replies: usize,
    called: Vec<String>,
    tools: Option<(Arc<[ModelTool]>, Digest)>,
    /// The last exchange that the recorder wrote, and its number.
    pub(super) written: Option<(u64, ModelRequest)>,
}

impl Default for FingerprintCache {
    fn default() -> Self {
        let nothing = Digest::of_text("");
        Self {
            seen: Vec::new(),
            digest: nothing,
            exact: nothing,
            replies: 0,
            called: Vec::new(),
            tools: None,
            written: None,
        }
    }
}

impl FingerprintCache {
    pub(super) fn prints(&mut self, request: &ModelRequest) -> RequestFingerprints {
        let messages = request.conversation.messages();
        if !self.fits(messages) {
            *self = Self::default();
        }
        for message in &messages[self.seen.len()..] {
            self.add(message);
        }
        let tools = self.tools(&request.tools);
        let settings = normalize::settings(request);
        let rest = StoredRequest::after(request, Some(request), messages.len());
        RequestFingerprints {
            digest: chained(self.digest, &format!("{tools}{settings}")),
            exact: chained(self.exact, &format!("{tools}{}{}", json(&rest), request.system)),
            turn: self.replies + 1,
            called: self.called.clone(),
        }
    }

    fn fits(&self, messages: &[Arc<Message>]) -> bool {
        self.seen.len() <= messages.len()
            && self.seen.iter().zip(messages).all(|(kept, new)| Arc::ptr_eq(kept, new))
    }

    fn add(&mut self, message: &Arc<Message>) {
        if let Some(counts) = normalize::message(message) {
            self.digest = chained(self.digest, &counts.to_string());
        }
        self.exact = chained(self.exact, &json(&StoredMessage::of(message)));
        if message.role == Role::Assistant {
            self.replies += 1;
            self.called = message.calls().map(|call| call.name.clone()).collect();
        }
        self.seen.push(Arc::clone(message));
    }

    fn tools(&mut self, tools: &Arc<[ModelTool]>) -> Digest {
        match &self.tools {
            Some((kept, digest)) if Arc::ptr_eq(kept, tools) => *digest,
            Some(_) | None => {
                let digest = Digest::of_value(&normalize::tools(tools));
                self.tools = Some((Arc::clone(tools), digest));
                digest
            }
        }
    }
}

impl ConversationState for FingerprintCache {
    fn knows(&self, conversation: &Conversation) -> Option<usize> {
        let known = self.seen.len();
        (known > 0 && self.fits(conversation.messages())).then_some(known)
    }

    /// Returns the size in bytes. Includes only the pointers to messages, because the conversation owns the messages.
    fn bytes(&self) -> usize {
        self.seen.len() * size_of::<Arc<Message>>()
    }
}

fn chained(before: Digest, more: &str) -> Digest {
    Digest::of_text(&format!("{before}{more}"))
}

/// Serializes a stored type. Stored types are plain data, so serializing cannot fail.
fn json(stored: &impl serde::Serialize) -> String {
    serde_json::to_string(stored).unwrap_or_default()
}

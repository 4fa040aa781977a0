//! Estimates the size of messages. An estimate depends on the length alone, so that every process gets the same result.

use crate::conversation::{Conversation, Message, MessagePart, PartBody};
use crate::output::OutputContent;
use crate::tokens::Tokens;

/// The estimated tokens of an image, a sound or a file. Models differ; this is the cost of a large image.
pub const MEDIA_TOKENS: u64 = 1_600;

/// The tokens that wire formats spend on the structure of one message.
const MESSAGE_TOKENS: u64 = 4;

/// The text in a message that a model reads, and the tokens of its other content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VisibleContent {
    /// All text, including the names and arguments of calls.
    pub text: String,
    /// The estimated tokens of images, sounds and files.
    pub media_tokens: u64,
}

impl VisibleContent {
    /// Collects the content of a message. Reasoning and opaque state are counted as text of the same length, because a
    /// provider counts this content too when haft sends it back.
    pub fn of(message: &Message) -> Self {
        let mut content = Self::default();
        message.parts.iter().for_each(|part| content.add(part));
        content
    }

    fn add(&mut self, part: &MessagePart) {
        match &part.body {
            PartBody::Text { text, .. } | PartBody::Refusal(text) | PartBody::Reasoning(text) => {
                self.add_text(text);
            }
            PartBody::Call(call) => {
                self.add_text(&call.name);
                self.add_text(call.arguments.as_text());
            }
            PartBody::Reply(reply) => reply.content.iter().for_each(|piece| self.add_output(piece)),
            PartBody::Image(_) | PartBody::Audio(_) | PartBody::File { .. } => self.add_media(),
            PartBody::Opaque => {}
        }
        if let Some(state) = part.mark.as_ref().and_then(|mark| mark.state.as_deref()) {
            self.add_text(state);
        }
    }

    fn add_output(&mut self, piece: &OutputContent) {
        match piece {
            OutputContent::Image { .. } | OutputContent::Audio { .. } => self.add_media(),
            OutputContent::Text(text) => self.add_text(text),
            OutputContent::Link(_)
            | OutputContent::Resource { .. }
            | OutputContent::Binary { .. }
            | OutputContent::FoundTools(_)
            | OutputContent::Stored(_) => {
                self.add_text(&piece.as_text());
            }
        }
    }

    fn add_text(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn add_media(&mut self) {
        self.media_tokens = self.media_tokens.saturating_add(MEDIA_TOKENS);
    }
}

/// Returns the estimated tokens of a text.
pub fn text_tokens(text: &str) -> u64 {
    Tokens::by_length(text.len() as u64).count()
}

/// Returns the estimated tokens of a message.
pub fn message_tokens(message: &Message) -> u64 {
    let VisibleContent { text, media_tokens } = VisibleContent::of(message);
    text_tokens(&text).saturating_add(media_tokens).saturating_add(MESSAGE_TOKENS)
}

/// Returns the estimated tokens of all messages.
pub fn conversation_tokens(conversation: &Conversation) -> u64 {
    conversation.messages().iter().map(|message| message_tokens(message)).fold(0, u64::saturating_add)
}

//! The new conversation: old outputs become references to the archive, or a summary replaces old turns.

use std::sync::Arc;

use super::ArchiveSpan;
use super::plan::{CompactionPlan, head};
use super::size::text_tokens;
use super::summary::SummaryText;
use super::transcript::{self, call_line, section};
use crate::conversation::{Conversation, ConversationError, Message, MessagePart, PartBody, Role, ToolReply};
use crate::output::OutputContent;
use crate::output_store::{HANDLE_ARGUMENT, PREVIEW_LINE, STORED_BEGINNINGS};
use crate::tool::ToolCall;

/// The minimum size of a text that is moved to the archive, in bytes. A reference is about half as long.
const OUTPUT_BYTES_MIN: usize = 600;

/// The tokens of a reference to the archive.
const REFERENCE_TOKENS: u64 = 90;

/// The number of characters from the start of an output that its reference repeats.
const BEGINNING_CHARS_MAX: usize = 80;

/// The first words of a reference to the archive.
const MOVED_BEGINNING: &str = "[This old output (";

impl CompactionPlan {
    /// Returns the text to append to the archive before content is removed from the conversation.
    pub fn archive_text(&self, conversation: &Conversation) -> String {
        let messages = conversation.messages();
        match self.scope {
            super::CompactionScope::Turns => transcript::whole(self.replaced(messages)),
            super::CompactionScope::Outputs => {
                let mut text = String::new();
                for output in old_outputs(messages, self.recent_from) {
                    section(&mut text, &output.heading(), &output.text, usize::MAX);
                }
                text
            }
        }
    }

    /// Returns the number of outputs that move to the archive.
    pub fn outputs(&self, conversation: &Conversation) -> usize {
        old_outputs(conversation.messages(), self.recent_from).count()
    }

    /// Returns the number of messages that a summary replaces.
    pub fn messages(&self, conversation: &Conversation) -> usize {
        self.replaced(conversation.messages()).count()
    }

    /// Returns the conversation with references in place of the old outputs. `span` gives the lines of
    /// [`archive_text`](Self::archive_text) in the archive.
    pub fn without_outputs(
        &self,
        conversation: &Conversation,
        span: &ArchiveSpan,
    ) -> Result<Conversation, ConversationError> {
        let mut line = span.first;
        let mut compacted = Conversation::default();
        for (at, message) in conversation.messages().iter().enumerate() {
            if at >= self.recent_from || message.role != Role::Tool {
                compacted.push_shared(Arc::clone(message))?;
                continue;
            }
            let parts = message.parts.iter().map(|part| referring(part, span, &mut line)).collect();
            compacted.push(Message { role: Role::Tool, parts })?;
        }
        Ok(compacted)
    }

    /// Returns the conversation with a summary in place of the old turns: the first request, the summary, the newest
    /// request if it is old, and the recent messages. The summary has the role `user`: every format accepts this role
    /// before a model reply, and a model's words must not become operator instructions.
    pub fn with_summary(
        &self,
        conversation: &Conversation,
        summary: &SummaryText,
    ) -> Result<Conversation, ConversationError> {
        let messages = conversation.messages();
        let mut compacted = Conversation::default();
        for message in &messages[..head(messages)] {
            compacted.push_shared(Arc::clone(message))?;
        }
        compacted.push(Message::user(summary.message(self, conversation)))?;
        let pinned = self.pinned(messages).and_then(|at| messages.get(at));
        for message in pinned.into_iter().chain(&messages[self.old(messages).end..]) {
            compacted.push_shared(Arc::clone(message))?;
        }
        Ok(compacted)
    }
}

/// Returns the estimated number of tokens that become free if old outputs move to the archive and old previews of
/// stored outputs are removed.
pub(super) fn freed_by_outputs(messages: &[Arc<Message>], recent_from: usize) -> u64 {
    let moved = old_outputs(messages, recent_from);
    let freed = moved.map(|output| text_tokens(&output.text).saturating_sub(REFERENCE_TOKENS)).sum::<u64>();
    let replies = messages
        .iter()
        .take(recent_from)
        .flat_map(|message| &message.parts)
        .filter_map(MessagePart::as_reply);
    freed.saturating_add(replies.flat_map(|reply| &reply.content).map(preview_tokens).sum())
}

/// The text of an old output that is still in the conversation.
struct OldOutput<'a> {
    call: Option<&'a ToolCall>,
    reply: &'a ToolReply,
    text: String,
}

impl OldOutput<'_> {
    fn heading(&self) -> String {
        let call = self.call.map_or_else(|| self.reply.name.clone(), call_line);
        format!("Output of {call}")
    }
}

fn old_outputs(messages: &[Arc<Message>], recent_from: usize) -> impl Iterator<Item = OldOutput<'_>> {
    let old = &messages[..recent_from.min(messages.len())];
    old.iter().enumerate().flat_map(move |(at, message)| {
        let calls = at.checked_sub(1).and_then(|at| old.get(at));
        message.parts.iter().filter_map(move |part| {
            let reply = part.as_reply()?;
            let text = movable_text(reply)?;
            let call = calls.and_then(|calls| calls.calls().find(|call| call.id == reply.call));
            Some(OldOutput { call, reply, text })
        })
    })
}

/// Returns the text of a reply that can move to the archive, or `None` if the text is too short to be worth it. A
/// reference to the archive is shorter than this limit, so a reference is never moved to the archive.
fn movable_text(reply: &ToolReply) -> Option<String> {
    let movable = reply.content.iter().filter(|piece| is_movable(piece));
    let texts: Vec<String> = movable.map(OutputContent::as_text).collect();
    let text = texts.join("\n");
    (text.len() >= OUTPUT_BYTES_MIN).then_some(text)
}

/// Returns true if the content can move to the archive. Decides by the text alone: a journal stores bytes and handles
/// as text, and a replay must make the same decision as the original run.
fn is_movable(piece: &OutputContent) -> bool {
    match piece {
        OutputContent::Image { .. }
        | OutputContent::Audio { .. }
        | OutputContent::Resource { text: None, .. }
        // Some wire formats load the found tools at the position of the search result, so the result must stay until a
        // summary replaces its turn.
        | OutputContent::FoundTools(_) => false,
        OutputContent::Text(text) => !is_stored(text),
        OutputContent::Link(link) => {
            let is_described = link.name.is_some() || link.description.is_some();
            is_described && !is_stored(&piece.as_text())
        }
        OutputContent::Resource { text: Some(_), .. }
        | OutputContent::Binary { .. }
        | OutputContent::Stored(_) => !is_stored(&piece.as_text()),
    }
}

/// Returns true if a text refers to an output that is already stored.
fn is_stored(text: &str) -> bool {
    let begins = STORED_BEGINNINGS.iter().chain([&MOVED_BEGINNING]).any(|words| text.starts_with(words));
    begins && text.contains(HANDLE_ARGUMENT)
}

fn referring(part: &MessagePart, span: &ArchiveSpan, line: &mut u64) -> MessagePart {
    let Some(reply) = part.as_reply() else { return part.clone() };
    let mut content: Vec<OutputContent> = reply.content.iter().map(without_preview).collect();
    if let Some(text) = movable_text(reply) {
        let lines = line_ends(&text);
        // In the archive, a heading takes the line before the text.
        let (first, last) = (*line + 1, *line + lines);
        *line = last + 1;
        content.retain(|piece| !is_movable(piece));
        content.insert(0, OutputContent::Text(reference(&text, span, first, last)));
    }
    let reply = ToolReply { content, ..reply.clone() };
    MessagePart { body: PartBody::Reply(reply), mark: part.mark.clone() }
}

/// Returns the number of lines that a text takes in the archive.
fn line_ends(text: &str) -> u64 {
    let ends = text.bytes().filter(|byte| *byte == b'\n').count() as u64;
    if text.ends_with('\n') { ends } else { ends + 1 }
}

fn reference(text: &str, span: &ArchiveSpan, first: u64, last: u64) -> String {
    let begins: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let begins: String = begins.chars().take(BEGINNING_CHARS_MAX).collect();
    format!(
        "{MOVED_BEGINNING}{} bytes) was moved out of the context. It begins: {begins}\n\
         Read it with tool_output(handle = \"{}\", extract = \"lines {first}-{last}\").]",
        text.len(),
        span.handle
    )
}

/// Returns a stored output without the preview of its text. The whole text can still be read with the handle.
fn without_preview(piece: &OutputContent) -> OutputContent {
    match preview(piece) {
        Some((kept, _)) => OutputContent::Text(kept),
        None => piece.clone(),
    }
}

fn preview_tokens(piece: &OutputContent) -> u64 {
    preview(piece).map_or(0, |(_, preview)| text_tokens(&preview))
}

/// Splits the text of a stored output into the part before its preview and the preview.
fn preview(piece: &OutputContent) -> Option<(String, String)> {
    let text = match piece {
        OutputContent::Text(text) => text.clone(),
        OutputContent::Stored(_) => piece.as_text(),
        OutputContent::Link(_)
        | OutputContent::Resource { .. }
        | OutputContent::Image { .. }
        | OutputContent::Audio { .. }
        | OutputContent::FoundTools(_)
        | OutputContent::Binary { .. } => return None,
    };
    let (kept, preview) = text.split_once(PREVIEW_LINE)?;
    let is_previewed = kept.starts_with(STORED_BEGINNINGS[0]) && is_stored(kept);
    is_previewed.then(|| (kept.to_owned(), preview.to_owned()))
}

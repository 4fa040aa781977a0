//! Messages as plain text, for the archive and for the model that summarizes them.

use std::sync::Arc;

use crate::conversation::{Message, PartBody, Role, ToolReply};
use crate::output::OutputContent;
use crate::shorten::head_and_tail;
use crate::tool::ToolCall;

/// The initial maximum length of a message part for the summarizing model, in characters. It is halved until the whole
/// text fits.
const PART_CHARS_MAX: usize = 16 << 10;

/// The minimum part length. If the text is still too long with this length, it is cut as a whole.
const PART_CHARS_MIN: usize = 64;

/// The maximum length of the arguments in the heading of an output, in characters.
const HEADING_CHARS_MAX: usize = 200;

/// Returns the messages in full.
pub(super) fn whole<'a>(messages: impl Iterator<Item = &'a Arc<Message>>) -> String {
    rendered(messages, usize::MAX)
}

/// Returns the messages in at most about `bytes_max` bytes. Long parts are shortened in the middle first.
pub(super) fn shortened<'a>(
    messages: &(impl Iterator<Item = &'a Arc<Message>> + Clone),
    bytes_max: usize,
) -> String {
    let mut chars_max = PART_CHARS_MAX;
    loop {
        let text = rendered(messages.clone(), chars_max);
        if text.len() <= bytes_max {
            return text;
        }
        if chars_max <= PART_CHARS_MIN {
            return head_and_tail(&text, bytes_max / 2);
        }
        chars_max /= 2;
    }
}

fn rendered<'a>(messages: impl Iterator<Item = &'a Arc<Message>>, chars_max: usize) -> String {
    let mut text = String::new();
    for message in messages {
        render(&mut text, message, chars_max);
    }
    text
}

fn render(text: &mut String, message: &Message, chars_max: usize) {
    for part in &message.parts {
        match &part.body {
            PartBody::Text { text: words, .. } | PartBody::Refusal(words) => {
                section(text, speaker(message.role), words, chars_max);
            }
            PartBody::Call(call) => {
                section(text, &format!("Call of {}", call.name), call.arguments.as_text(), chars_max);
            }
            PartBody::Reply(reply) => {
                section(text, &format!("Output of {}", reply.name), &reply_text(reply), chars_max);
            }
            PartBody::Image(_) => section(text, speaker(message.role), "[an image]", chars_max),
            PartBody::Audio(_) => section(text, speaker(message.role), "[a sound]", chars_max),
            PartBody::File { name, .. } => {
                let file = format!("[a file: {}]", name.as_deref().unwrap_or("without a name"));
                section(text, speaker(message.role), &file, chars_max);
            }
            // Reasoning is meant only for its provider, and opaque state has no text.
            PartBody::Reasoning(_) | PartBody::Opaque => {}
        }
    }
}

fn speaker(role: Role) -> &'static str {
    match role {
        Role::System => "Operator",
        Role::User => "User",
        Role::Assistant => "Assistant",
        Role::Tool => "Tool",
    }
}

/// Appends a heading and a text. The text ends with a newline, so that line numbers refer to whole lines.
pub(super) fn section(out: &mut String, heading: &str, text: &str, chars_max: usize) {
    out.push_str("### ");
    out.push_str(heading);
    out.push('\n');
    out.push_str(&head_and_tail(text, chars_max));
    if !out.ends_with('\n') {
        out.push('\n');
    }
}

pub(super) fn reply_text(reply: &ToolReply) -> String {
    reply.content.iter().map(OutputContent::as_text).collect::<Vec<_>>().join("\n")
}

/// Returns a call in one line, for a heading or a list.
pub(super) fn call_line(call: &ToolCall) -> String {
    let line: String = call.arguments.as_text().split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = line.chars().take(HEADING_CHARS_MAX).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    format!("{} {short}", call.name)
}

//! Shows the messages between client and server, if the operator enables it: without secrets, and up to a size limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use haft_core::redact::SecretRedactor;

/// The maximum number of characters that are shown of one message.
const LINE_CHARS_MAX: usize = 2_000;

/// The maximum size of a message that is parsed, in bytes. For a larger message, only the size is shown.
const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// The maximum number of bytes that are shown per server.
const SHOWN_BYTES_MAX: usize = 8 << 20;

/// Values are hidden if their name contains one of these words, ignoring case and punctuation. `key` is not in this
/// list, because many ordinary names contain it.
const SECRET_NAMES: [&str; 13] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "authorization",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "cookie",
    "bearer",
    "signature",
];

/// Values are hidden if their whole name is one of these.
const SECRET_WORDS: [&str; 4] = ["auth", "key", "pwd", "pat"];

/// The prefix of a token in an `Authorization` header.
const BEARER: &str = "bearer ";

/// Receives lines that are safe to show.
pub trait TraceSink: Send + Sync {
    fn line(&self, server: &str, what: TraceLineKind, text: &str);
}

/// The kind of a trace line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceLineKind {
    Sent,
    Received,
    /// A change in the server's lifecycle: started, ready, ended.
    Life,
}

/// The trace of one server, with a size limit.
pub(super) struct ServerTrace {
    server: String,
    sink: Arc<dyn TraceSink>,
    withheld: Arc<SecretRedactor>,
    shown_bytes: AtomicUsize,
}

impl ServerTrace {
    pub(super) fn new(server: &str, sink: Arc<dyn TraceSink>, withheld: Arc<SecretRedactor>) -> Self {
        Self { server: server.to_owned(), sink, withheld, shown_bytes: AtomicUsize::new(0) }
    }

    pub(super) fn write(&self, what: TraceLineKind, text: &str) {
        let line = shown(text, &self.withheld);
        let before = self.shown_bytes.fetch_add(line.len(), Ordering::Relaxed);
        if before <= SHOWN_BYTES_MAX {
            self.sink.line(&self.server, what, &line);
        }
        if before <= SHOWN_BYTES_MAX && before + line.len() > SHOWN_BYTES_MAX {
            let end = format!("the trace ends, because it has reached its limit of {SHOWN_BYTES_MAX} bytes");
            self.sink.line(&self.server, TraceLineKind::Life, &end);
        }
    }
}

/// Returns the message without its secrets, cut to a readable length.
fn shown(text: &str, withheld: &SecretRedactor) -> String {
    if text.len() > MESSAGE_BYTES_MAX {
        return format!("({} bytes)", text.len());
    }
    let clean: String = match serde_json::from_str::<Value>(text) {
        Ok(mut value) => {
            hide(&mut value);
            value.to_string()
        }
        Err(_) => text.to_owned(),
    };
    let clean = without_tokens(&withheld.redact(clean));
    let mut line: String = clean.chars().filter(|c| !c.is_control()).take(LINE_CHARS_MAX).collect();
    if clean.chars().nth(LINE_CHARS_MAX).is_some() {
        line.push('…');
    }
    line
}

/// Returns the text without the tokens that follow `Bearer`.
fn without_tokens(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let (mut clean, mut from) = (String::with_capacity(text.len()), 0);
    while let Some(at) = lower[from..].find(BEARER) {
        let begin = from + at + BEARER.len();
        let is_token = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
        let end = text[begin..].find(|c| !is_token(c)).map_or(text.len(), |length| begin + length);
        clean.push_str(&text[from..begin]);
        clean.push_str(if end > begin { "(hidden)" } else { "" });
        from = end;
    }
    clean + &text[from..]
}

fn hide(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if is_secret(name) { *value = "(hidden)".into() } else { hide(value) }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_secret(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = plain.to_ascii_lowercase();
    let is_one = SECRET_WORDS.contains(&plain.as_str());
    plain != "progresstoken" && (is_one || SECRET_NAMES.iter().any(|secret| plain.contains(secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_lines_hide_secrets_and_are_truncated() {
        let withheld = SecretRedactor::of(["s3cret-of-mine"]);
        let shown = |text: &str| shown(text, &withheld);
        let check = |text: &str, expected: &str| assert_eq!(shown(text), expected);
        check(
            r#"{"id":1,"params":{"api_key":"k","x":[{"accessToken":"t"}],"progressToken":3}}"#,
            r#"{"id":1,"params":{"api_key":"(hidden)","progressToken":3,"x":[{"accessToken":"(hidden)"}]}}"#,
        );
        check(
            r#"{"auth":"a","keywords":["k"],"said":"Authorization: Bearer abc.def, and s3cret-of-mine"}"#,
            r#"{"auth":"(hidden)","keywords":["k"],"said":"Authorization: Bearer (hidden), and [redacted]"}"#,
        );
        check("key=s3cret-of-mine bearer ü", "key=[redacted] bearer ü");
        check("not \x1b[1m JSON", "not [1m JSON");
        assert_eq!(shown(&"y".repeat(5000)).chars().count(), LINE_CHARS_MAX + 1);
        assert_eq!(shown(&"y".repeat(300_000)), "(300000 bytes)");
    }

    #[test]
    fn trace_stops_at_its_byte_limit() {
        #[derive(Default)]
        struct CountingSink(AtomicUsize);
        impl TraceSink for CountingSink {
            fn line(&self, _: &str, _: TraceLineKind, text: &str) {
                self.0.fetch_add(text.len(), Ordering::Relaxed);
            }
        }
        let sink = Arc::new(CountingSink::default());
        let trace = ServerTrace::new("a", Arc::clone(&sink) as _, Arc::default());
        (0..5_000).for_each(|_| trace.write(TraceLineKind::Sent, &"x".repeat(3_000)));
        let shown = sink.0.load(Ordering::Relaxed);
        assert!((SHOWN_BYTES_MAX..SHOWN_BYTES_MAX + 4_000).contains(&shown), "{shown}");
    }
}

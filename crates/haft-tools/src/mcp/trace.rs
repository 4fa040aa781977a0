//! What goes between us and a server, shown to an operator who asked for it: without secrets, and not without end.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// How much of one message is shown.
const LINE_CHARS_MAX: usize = 2_000;

/// A larger message is not looked into; its size is told.
const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// How much is shown of one server.
const SHOWN_BYTES_MAX: usize = 8 << 20;

/// What is hidden when a name holds one of these.
const SECRET_NAMES: [&str; 8] =
    ["token", "secret", "password", "passwd", "authorization", "apikey", "credential", "cookie"];

/// Takes lines that may be shown.
pub trait TraceSink: Send + Sync {
    fn line(&self, server: &str, what: Traced, text: &str);
}

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traced {
    Sent,
    Received,
    /// The server's own life: started, ready, ended.
    Life,
}

/// Shows the messages of one server, up to a limit.
pub(super) struct Trace {
    server: String,
    sink: std::sync::Arc<dyn TraceSink>,
    shown_bytes: AtomicUsize,
}

impl Trace {
    pub(super) fn new(server: &str, sink: std::sync::Arc<dyn TraceSink>) -> Self {
        Self { server: server.to_owned(), sink, shown_bytes: AtomicUsize::new(0) }
    }

    pub(super) fn tell(&self, what: Traced, text: &str) {
        let line = shown(text);
        let before = self.shown_bytes.fetch_add(line.len(), Ordering::Relaxed);
        if before <= SHOWN_BYTES_MAX {
            self.sink.line(&self.server, what, &line);
        }
        if before <= SHOWN_BYTES_MAX && before + line.len() > SHOWN_BYTES_MAX {
            let end = format!("{SHOWN_BYTES_MAX} bytes were shown; no more is");
            self.sink.line(&self.server, Traced::Life, &end);
        }
    }
}

/// The message without its secrets, cut to what one can read.
fn shown(text: &str) -> String {
    if text.len() > MESSAGE_BYTES_MAX {
        return format!("({} bytes)", text.len());
    }
    let clean: Cow<'_, str> = match serde_json::from_str::<Value>(text) {
        Ok(mut value) => {
            hide(&mut value);
            value.to_string().into()
        }
        Err(_) => text.into(),
    };
    let mut line: String = clean.chars().filter(|c| !c.is_control()).take(LINE_CHARS_MAX).collect();
    if clean.chars().nth(LINE_CHARS_MAX).is_some() {
        line.push('…');
    }
    line
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
    plain != "progresstoken" && SECRET_NAMES.iter().any(|secret| plain.contains(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_long_lines_cut() {
        let check = |text: &str, expected: &str| assert_eq!(shown(text), expected);
        check(
            r#"{"id":1,"params":{"api_key":"k","x":[{"accessToken":"t"}],"progressToken":3}}"#,
            r#"{"id":1,"params":{"api_key":"(hidden)","progressToken":3,"x":[{"accessToken":"(hidden)"}]}}"#,
        );
        check("not \x1b[1m JSON", "not [1m JSON");
        assert_eq!(shown(&"y".repeat(5000)).chars().count(), LINE_CHARS_MAX + 1);
        assert_eq!(shown(&"y".repeat(300_000)), "(300000 bytes)");
    }

    #[test]
    fn what_never_ends_is_shown_only_so_far() {
        #[derive(Default)]
        struct Counted(AtomicUsize);
        impl TraceSink for Counted {
            fn line(&self, _: &str, _: Traced, text: &str) {
                self.0.fetch_add(text.len(), Ordering::Relaxed);
            }
        }
        let sink = std::sync::Arc::new(Counted::default());
        let trace = Trace::new("a", std::sync::Arc::clone(&sink) as _);
        (0..5_000).for_each(|_| trace.tell(Traced::Sent, &"x".repeat(3_000)));
        let shown = sink.0.load(Ordering::Relaxed);
        assert!((SHOWN_BYTES_MAX..SHOWN_BYTES_MAX + 4_000).contains(&shown), "{shown}");
    }
}

//! Scripted failures: error responses, and faults in the middle of a response.

use serde::Deserialize;
use serde_json::Value;

/// A provider error: a status, and a body in the provider's format.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ErrorResponse {
    pub status: u16,
    #[serde(default)]
    pub message: String,
    /// The provider's error code (`type`, `code` or `status`). The default is the usual code for the status.
    #[serde(default)]
    pub kind: Option<String>,
    #[serde(default)]
    pub retry_after_seconds: Option<u64>,
    /// A body that is sent unchanged instead of a body in the provider's format, for example a proxy's HTML page.
    #[serde(default)]
    pub raw: Option<String>,
}

impl ErrorResponse {
    pub fn new(status: u16, message: &str) -> Self {
        Self { status, message: message.to_owned(), ..Self::default() }
    }

    pub fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after_seconds: Some(seconds), ..self }
    }

    pub(crate) fn kind_or(&self, usual: impl FnOnce(u16) -> &'static str) -> String {
        self.kind.clone().unwrap_or_else(|| usual(self.status).to_owned())
    }
}

/// A fault in the middle of a response that started normally. A whole response counts as one frame.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum ResponseFault {
    /// Breaks the connection after this many frames, and this many bytes of the next frame.
    Cut {
        after_frames: usize,
        #[serde(default)]
        and_bytes: usize,
    },
    /// Ends the response in the regular way, but too early.
    EndEarly { after_frames: usize },
    /// Inserts a malformed frame between the regular frames.
    Malformed { after_frames: usize, frame: String },
    /// Inserts bytes between the regular frames. These bytes may be invalid UTF-8.
    Bytes { after_frames: usize, bytes: Vec<u8> },
    /// Reports a provider error inside a 200 response.
    ErrorEvent { after_frames: usize, error: ErrorResponse },
    /// Sends nothing more, and keeps the connection open.
    Hang { after_frames: usize },
}

/// One action of the server on the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionAction {
    Send(Vec<u8>),
    Cut,
    Hang,
}

/// Applies a fault to the frames of a response. `error_event` encodes a provider error inside a 200 response.
pub(crate) fn apply_fault(
    frames: Vec<String>,
    fault: Option<&ResponseFault>,
    error_event: impl FnOnce(&ErrorResponse) -> Vec<String>,
) -> Vec<ConnectionAction> {
    let Some(fault) = fault else { return frames.into_iter().map(send).collect() };
    let after = fault.after_frames().min(frames.len());
    let mut actions: Vec<ConnectionAction> = frames[..after].iter().map(send).collect();
    let rest = &frames[after..];
    match fault {
        ResponseFault::Cut { and_bytes, .. } => {
            let next = rest.first().map_or("", String::as_str);
            actions.push(send(&next[..next.floor_char_boundary(*and_bytes)]));
            actions.push(ConnectionAction::Cut);
        }
        ResponseFault::EndEarly { .. } => {}
        ResponseFault::Malformed { frame, .. } => {
            actions.push(send(frame));
            actions.extend(rest.iter().map(send));
        }
        ResponseFault::Bytes { bytes, .. } => {
            actions.push(ConnectionAction::Send(bytes.clone()));
            actions.extend(rest.iter().map(send));
        }
        ResponseFault::ErrorEvent { error, .. } => actions.extend(error_event(error).into_iter().map(send)),
        ResponseFault::Hang { .. } => actions.push(ConnectionAction::Hang),
    }
    actions
}

fn send(text: impl AsRef<str>) -> ConnectionAction {
    ConnectionAction::Send(text.as_ref().as_bytes().to_vec())
}

impl ResponseFault {
    fn after_frames(&self) -> usize {
        match self {
            Self::Cut { after_frames, .. }
            | Self::EndEarly { after_frames }
            | Self::Malformed { after_frames, .. }
            | Self::Bytes { after_frames, .. }
            | Self::ErrorEvent { after_frames, .. }
            | Self::Hang { after_frames } => *after_frames,
        }
    }
}

/// Returns the body of a failure: its raw text, or the failure in the provider's format.
pub(crate) fn body_of(failure: &ErrorResponse, shape: impl FnOnce(&ErrorResponse) -> Value) -> String {
    failure.raw.clone().unwrap_or_else(|| shape(failure).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fault: &ResponseFault, expected: &[&str]) {
        let frames = ["one", "two", "three"].map(str::to_owned).to_vec();
        let actions = apply_fault(frames, Some(fault), |failure| vec![format!("error {}", failure.message)]);
        let said: Vec<String> = actions
            .into_iter()
            .map(|action| match action {
                ConnectionAction::Send(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                ConnectionAction::Cut => "<cut>".to_owned(),
                ConnectionAction::Hang => "<hang>".to_owned(),
            })
            .collect();
        assert_eq!(said, expected);
    }

    #[test]
    fn each_fault_is_applied_after_the_configured_frames() {
        check(&ResponseFault::Cut { after_frames: 1, and_bytes: 2 }, &["one", "tw", "<cut>"]);
        check(&ResponseFault::Cut { after_frames: 9, and_bytes: 9 }, &["one", "two", "three", "", "<cut>"]);
        check(
            &ResponseFault::Bytes { after_frames: 2, bytes: vec![0xff] },
            &["one", "two", "\u{fffd}", "three"],
        );
        check(&ResponseFault::EndEarly { after_frames: 2 }, &["one", "two"]);
        check(
            &ResponseFault::Malformed { after_frames: 0, frame: "{".to_owned() },
            &["{", "one", "two", "three"],
        );
        check(
            &ResponseFault::ErrorEvent { after_frames: 1, error: ErrorResponse::new(529, "full") },
            &["one", "error full"],
        );
        check(&ResponseFault::Hang { after_frames: 1 }, &["one", "<hang>"]);
    }
}

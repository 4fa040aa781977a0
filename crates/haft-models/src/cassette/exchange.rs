//! One line of a recording: a request and its reply.

use haft_core::digest::Digest;
use haft_core::model_request::ModelRequest;
use haft_core::stored::StoredRequest;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::fingerprint::RequestFingerprints;
use super::recording::RecordingLine;
use super::reply_event::{ReplayEvent, StoredMoment};
use super::{Recording, RecordingError};

/// One line of a recording, in the form for writing: a model request and its reply.
#[derive(Debug, Serialize)]
pub(super) struct ExchangeLine<'a> {
    pub(super) exchange: u64,
    pub(super) provider: &'a str,
    /// The id that the caller gave to the request.
    pub(super) asked: &'a str,
    pub(super) turn: usize,
    pub(super) called: &'a [String],
    pub(super) digest: String,
    pub(super) exact: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) continues: Option<EarlierExchange>,
    pub(super) request: StoredRequest,
    pub(super) reply: &'a [StoredMoment],
}

/// A reference to an earlier exchange that this request extends. The request repeats the first `messages` messages of
/// that exchange, and also its system prompt and tools unless the request has its own.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct EarlierExchange {
    pub(super) exchange: u64,
    pub(super) messages: usize,
}

/// One line of a recording, in the form for reading. The fields for matching are already parsed. The request and the
/// reply are parsed only when a caller needs them.
#[derive(Debug)]
pub(super) struct RecordedExchange {
    pub(super) line: usize,
    pub(super) number: u64,
    pub(super) provider: String,
    pub(super) asked: String,
    pub(super) prints: RequestFingerprints,
    continues: Option<EarlierExchange>,
    request: Box<RawValue>,
    reply: Box<RawValue>,
}

#[derive(Deserialize)]
struct StoredExchange {
    exchange: u64,
    provider: String,
    #[serde(default)]
    asked: String,
    turn: usize,
    called: Vec<String>,
    digest: String,
    exact: String,
    continues: Option<EarlierExchange>,
    request: Box<RawValue>,
    reply: Box<RawValue>,
}

impl RecordedExchange {
    pub(super) fn read(recording: &Recording, line: &RecordingLine) -> Result<Self, RecordingError> {
        let read: StoredExchange = recording.parse(line)?;
        let digest = |text: &str| {
            let no_digest = || {
                RecordingError::line(recording.path(), line.number, "a digest of the request is not valid")
            };
            Digest::from_hex(text).ok_or_else(no_digest)
        };
        let StoredExchange { turn, called, .. } = read;
        Ok(Self {
            line: line.number,
            number: read.exchange,
            provider: read.provider,
            asked: read.asked,
            prints: RequestFingerprints {
                digest: digest(&read.digest)?,
                exact: digest(&read.exact)?,
                turn,
                called,
            },
            continues: read.continues,
            request: read.request,
            reply: read.reply,
        })
    }

    /// Returns the recorded events of the reply, in order.
    pub(super) fn reply(&self) -> Result<Vec<ReplayEvent>, String> {
        let moments: Vec<StoredMoment> =
            serde_json::from_str(self.reply.get()).map_err(|error| self.wrong(&error))?;
        let happenings = moments.into_iter().map(|StoredMoment(_, happening)| happening.into_replay_event());
        happenings.collect::<Result<_, _>>().map_err(|error| self.wrong(&error))
    }

    /// Rebuilds the request. `before` returns the request of an earlier exchange.
    pub(super) fn request<'a>(
        &self,
        before: impl FnOnce(u64) -> Option<&'a ModelRequest>,
    ) -> Result<ModelRequest, String> {
        let stored: StoredRequest =
            serde_json::from_str(self.request.get()).map_err(|error| self.wrong(&error))?;
        let before = match self.continues {
            None => None,
            Some(EarlierExchange { exchange, messages }) => {
                let missing = || {
                    self.wrong(&format!(
                        "the recording has no exchange {exchange}, which this line continues"
                    ))
                };
                Some((before(exchange).ok_or_else(missing)?, messages))
            }
        };
        stored.into_request(before).map_err(|error| self.wrong(&error))
    }

    fn wrong(&self, problem: &dyn std::fmt::Display) -> String {
        format!("haft cannot read line {} of the recording: {problem}", self.line)
    }
}

//! The timing of a response, and the sizes of its chunks.

use std::time::Duration;

use serde::Deserialize;

use crate::fault::ConnectionAction;

/// The maximum delay that a script can set, in milliseconds.
const PAUSE_MILLISECONDS_MAX: u64 = 600_000;

/// The timing and chunking of a response. By default, the response is sent without delay, frame by frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ResponsePace {
    /// The delay before the status line, in milliseconds.
    pub first_byte_milliseconds: u64,
    /// The delay before each chunk after the first, in milliseconds.
    pub between_milliseconds: u64,
    /// The size of each chunk in bytes, regardless of frames and characters. By default, each frame is one chunk.
    pub chunk_bytes: Option<usize>,
    /// The number of characters of text or arguments per delta. The default is 8.
    pub delta_characters: Option<usize>,
    /// The number of keep-alive comments before the first frame of an event stream.
    pub comments: usize,
}

impl ResponsePace {
    pub(crate) fn before_first_byte(self) -> Duration {
        bounded(self.first_byte_milliseconds)
    }

    pub(crate) fn between(self) -> Duration {
        bounded(self.between_milliseconds)
    }

    /// Splits a text into deltas. An empty text has one delta, because every part must have at least one.
    pub(crate) fn deltas(self, text: &str) -> Vec<String> {
        let size = self.delta_characters.unwrap_or(8).max(1);
        let characters: Vec<char> = text.chars().collect();
        if characters.is_empty() {
            vec![String::new()]
        } else {
            characters.chunks(size).map(|piece| piece.iter().collect()).collect()
        }
    }

    /// Returns the chunks to write to the connection.
    pub(crate) fn pieces(self, actions: Vec<ConnectionAction>) -> Vec<ResponseChunk> {
        let mut pieces = Vec::new();
        let mut waiting = Vec::new();
        for action in actions {
            match action {
                ConnectionAction::Send(bytes) => waiting.extend(bytes),
                ConnectionAction::Cut => {
                    self.flush(&mut waiting, &mut pieces);
                    pieces.push(ResponseChunk::Cut);
                }
                ConnectionAction::Hang => {
                    self.flush(&mut waiting, &mut pieces);
                    pieces.push(ResponseChunk::Hang);
                }
            }
            if self.chunk_bytes.is_none() {
                self.flush(&mut waiting, &mut pieces);
            }
        }
        self.flush(&mut waiting, &mut pieces);
        pieces
    }

    fn flush(self, waiting: &mut Vec<u8>, pieces: &mut Vec<ResponseChunk>) {
        let size = self.chunk_bytes.unwrap_or(usize::MAX).max(1);
        pieces.extend(waiting.chunks(size).map(|chunk| ResponseChunk::Bytes(chunk.to_vec())));
        waiting.clear();
    }
}

/// One write, or the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResponseChunk {
    Bytes(Vec<u8>),
    Cut,
    Hang,
}

fn bounded(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds.min(PAUSE_MILLISECONDS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(text: &str) -> ConnectionAction {
        ConnectionAction::Send(text.as_bytes().to_vec())
    }

    fn bytes(text: &str) -> ResponseChunk {
        ResponseChunk::Bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn frames_are_split_only_if_a_chunk_size_is_set() {
        let actions = vec![send("abc"), send("de"), ConnectionAction::Cut];
        assert_eq!(
            ResponsePace::default().pieces(actions.clone()),
            [bytes("abc"), bytes("de"), ResponseChunk::Cut]
        );
        let dripping = ResponsePace { chunk_bytes: Some(2), ..ResponsePace::default() };
        assert_eq!(dripping.pieces(actions), [bytes("ab"), bytes("cd"), bytes("e"), ResponseChunk::Cut]);
    }

    #[test]
    fn deltas_are_split_between_characters() {
        let pace = ResponsePace { delta_characters: Some(2), ..ResponsePace::default() };
        assert_eq!(pace.deltas("añb"), ["añ", "b"]);
        assert_eq!(pace.deltas(""), [""]);
    }
}

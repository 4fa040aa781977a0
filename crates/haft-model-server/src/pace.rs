//! The timing of a response, and the sizes of its pieces.

use std::time::Duration;

use serde::Deserialize;

use crate::fault::Action;

/// The longest single delay that a script can set.
const PAUSE_MILLISECONDS_MAX: u64 = 600_000;

/// The timing and chunking of a response. By default it is sent at once, frame by frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Pace {
    /// The delay before the status line.
    pub first_byte_milliseconds: u64,
    /// The delay before each piece after the first.
    pub between_milliseconds: u64,
    /// The size of each piece, regardless of frames and characters. By default a piece is a frame.
    pub chunk_bytes: Option<usize>,
    /// The characters of text or arguments per delta, 8 by default.
    pub delta_characters: Option<usize>,
    /// The number of keep-alive comments before the first frame of an event stream.
    pub comments: usize,
}

impl Pace {
    pub(crate) fn before_first_byte(self) -> Duration {
        bounded(self.first_byte_milliseconds)
    }

    pub(crate) fn between(self) -> Duration {
        bounded(self.between_milliseconds)
    }

    /// Splits a text into deltas. An empty text has one delta, because every part has at least one.
    pub(crate) fn deltas(self, text: &str) -> Vec<String> {
        let size = self.delta_characters.unwrap_or(8).max(1);
        let characters: Vec<char> = text.chars().collect();
        if characters.is_empty() {
            vec![String::new()]
        } else {
            characters.chunks(size).map(|piece| piece.iter().collect()).collect()
        }
    }

    /// Returns the pieces to write to the connection.
    pub(crate) fn pieces(self, actions: Vec<Action>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut waiting = Vec::new();
        for action in actions {
            match action {
                Action::Send(bytes) => waiting.extend(bytes),
                Action::Cut => {
                    self.flush(&mut waiting, &mut pieces);
                    pieces.push(Piece::Cut);
                }
                Action::Hang => {
                    self.flush(&mut waiting, &mut pieces);
                    pieces.push(Piece::Hang);
                }
            }
            if self.chunk_bytes.is_none() {
                self.flush(&mut waiting, &mut pieces);
            }
        }
        self.flush(&mut waiting, &mut pieces);
        pieces
    }

    fn flush(self, waiting: &mut Vec<u8>, pieces: &mut Vec<Piece>) {
        let size = self.chunk_bytes.unwrap_or(usize::MAX).max(1);
        pieces.extend(waiting.chunks(size).map(|chunk| Piece::Bytes(chunk.to_vec())));
        waiting.clear();
    }
}

/// One write, or the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
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

    fn send(text: &str) -> Action {
        Action::Send(text.as_bytes().to_vec())
    }

    fn bytes(text: &str) -> Piece {
        Piece::Bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn frames_go_out_as_they_are_unless_a_size_is_given() {
        let actions = vec![send("abc"), send("de"), Action::Cut];
        assert_eq!(Pace::default().pieces(actions.clone()), [bytes("abc"), bytes("de"), Piece::Cut]);
        let dripping = Pace { chunk_bytes: Some(2), ..Pace::default() };
        assert_eq!(dripping.pieces(actions), [bytes("ab"), bytes("cd"), bytes("e"), Piece::Cut]);
    }

    #[test]
    fn deltas_are_cut_between_characters() {
        let pace = Pace { delta_characters: Some(2), ..Pace::default() };
        assert_eq!(pace.deltas("añb"), ["añ", "b"]);
        assert_eq!(pace.deltas(""), [""]);
    }
}

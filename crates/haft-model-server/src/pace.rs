//! How fast an answer comes, and in which pieces.

use std::time::Duration;

use serde::Deserialize;

use crate::fault::Action;

/// The longest wait that a script can ask for at one place.
const PAUSE_MILLISECONDS_MAX: u64 = 600_000;

/// The speed and the cut of an answer; the default is at once and in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Pace {
    /// Before the status line.
    pub first_byte_milliseconds: u64,
    /// Before each thing that is sent after the first.
    pub between_milliseconds: u64,
    /// Sends pieces of so many bytes, across frames and characters, instead of frames.
    pub chunk_bytes: Option<usize>,
    /// How many characters of text or arguments a delta has; 8 when it is not given.
    pub delta_characters: Option<usize>,
    /// Comments that keep the connection alive, before the first frame of a stream of events.
    pub comments: usize,
}

impl Pace {
    pub(crate) fn before_first_byte(self) -> Duration {
        bounded(self.first_byte_milliseconds)
    }

    pub(crate) fn between(self) -> Duration {
        bounded(self.between_milliseconds)
    }

    /// The deltas of a text. An empty text has one, as every part has at least one.
    pub(crate) fn deltas(self, text: &str) -> Vec<String> {
        let size = self.delta_characters.unwrap_or(8).max(1);
        let characters: Vec<char> = text.chars().collect();
        if characters.is_empty() {
            vec![String::new()]
        } else {
            characters.chunks(size).map(|piece| piece.iter().collect()).collect()
        }
    }

    /// What goes onto the connection, piece by piece.
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

/// One write, or its end.
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

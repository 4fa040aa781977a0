//! The framing of messages on a stream: a little-endian `u32` length, then that many bytes of JSON.
//!
//! A worker uses [`read_frame`] and [`write_frame`]; its client uses `exchange`, which does the same without blocking.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The size of the length field before every body.
pub const FRAME_HEADER_BYTES: usize = 4;

/// The maximum size of a body, in bytes: the size of the largest file, and space for its path, the field names and some
/// JSON escapes.
pub const FRAME_BODY_BYTES_MAX: usize = 72 * 1024 * 1024;

/// The reason why a frame could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The body is longer than [`FRAME_BODY_BYTES_MAX`].
    #[error(
        "a message between haft and its worker process is larger than {FRAME_BODY_BYTES_MAX} bytes, the limit of a frame"
    )]
    TooLong,
    /// The body is not the JSON of the expected message.
    #[error("a message between haft and its worker process is malformed: {0}")]
    Malformed(#[source] serde_json::Error),
    /// The stream failed, or ended in the middle of a frame.
    #[error("the connection to the worker process broke: {0}")]
    Stream(#[source] io::Error),
}

/// Returns the whole frame of a message, including the header.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut frame = BoundedFrame { bytes: vec![0; FRAME_HEADER_BYTES] };
    serde_json::to_writer(&mut frame, message).map_err(encode_error)?;
    let mut bytes = frame.bytes;
    let length = u32::try_from(bytes.len() - FRAME_HEADER_BYTES).map_err(|_| FrameError::TooLong)?;
    bytes[..FRAME_HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// Returns the number of bytes that follow this header.
pub fn body_bytes(header: [u8; FRAME_HEADER_BYTES]) -> Result<usize, FrameError> {
    match announced_bytes(header) {
        bytes if bytes <= FRAME_BODY_BYTES_MAX => Ok(bytes),
        _ => Err(FrameError::TooLong),
    }
}

/// Decodes the message in a body.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(body).map_err(FrameError::Malformed)
}

/// Reads the next body; returns `None` if the stream ends between two frames.
///
/// A body that is too long is skipped and reported, so that the next frame can still be read.
pub fn read_frame(reader: &mut impl Read) -> Result<Option<Vec<u8>>, FrameError> {
    let Some(header) = read_header(reader)? else { return Ok(None) };
    match body_bytes(header) {
        Ok(bytes) => read_body(reader, bytes).map(Some),
        Err(error) => {
            let mut rest = reader.take(announced_bytes(header) as u64);
            io::copy(&mut rest, &mut io::sink()).map_err(FrameError::Stream)?;
            Err(error)
        }
    }
}

/// Writes one message as a frame, and flushes the stream.
pub fn write_frame<T: Serialize>(writer: &mut impl Write, message: &T) -> Result<(), FrameError> {
    let frame = encode(message)?;
    writer.write_all(&frame).and_then(|()| writer.flush()).map_err(FrameError::Stream)
}

fn announced_bytes(header: [u8; FRAME_HEADER_BYTES]) -> usize {
    u32::from_le_bytes(header) as usize
}

fn read_header(reader: &mut impl Read) -> Result<Option<[u8; FRAME_HEADER_BYTES]>, FrameError> {
    let mut header = Vec::with_capacity(FRAME_HEADER_BYTES);
    reader.take(FRAME_HEADER_BYTES as u64).read_to_end(&mut header).map_err(FrameError::Stream)?;
    if header.is_empty() {
        return Ok(None);
    }
    header.try_into().map(Some).map_err(|_| ended_early())
}

/// Reads a body. The buffer grows with the data received, so a large announced length that never arrives costs no
/// memory.
fn read_body(reader: &mut impl Read, bytes: usize) -> Result<Vec<u8>, FrameError> {
    let mut body = Vec::new();
    reader.take(bytes as u64).read_to_end(&mut body).map_err(FrameError::Stream)?;
    if body.len() == bytes { Ok(body) } else { Err(ended_early()) }
}

fn ended_early() -> FrameError {
    FrameError::Stream(io::Error::new(io::ErrorKind::UnexpectedEof, "the stream ended inside a frame"))
}

fn encode_error(error: serde_json::Error) -> FrameError {
    if error.is_io() { FrameError::TooLong } else { FrameError::Malformed(error) }
}

/// A buffer for a frame that refuses to grow beyond the limit, because JSON escapes can make a body six times as long
/// as its text.
struct BoundedFrame {
    bytes: Vec<u8>,
}

impl Write for BoundedFrame {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + more.len() > FRAME_HEADER_BYTES + FRAME_BODY_BYTES_MAX {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::files::{FileError, FileReply, FileRequest, IntrospectLevel};

    fn round_trip(request: &FileRequest) {
        let frame = encode(request).unwrap();
        let body = read_frame(&mut frame.as_slice()).unwrap().unwrap();
        assert_eq!(&decode::<FileRequest>(&body).unwrap(), request);
    }

    #[test]
    fn file_requests_round_trip() {
        round_trip(&FileRequest::Read { path: "/a".into(), offset: Some(3), limit: None, bytes_max: 9 });
        round_trip(&FileRequest::Write { path: "/ä\n".into(), content: "\0\u{1F600}".into() });
        round_trip(&FileRequest::Introspect { path: "/".into(), level: IntrospectLevel::All });
    }

    #[test]
    fn file_replies_round_trip() {
        for reply in [FileReply::Ok("text".to_owned().into()), FileReply::Err(FileError::denied("no"))] {
            let frame = encode(&reply).unwrap();
            assert_eq!(decode::<FileReply>(&frame[FRAME_HEADER_BYTES..]).unwrap(), reply);
        }
    }

    #[test]
    fn stream_that_ends_between_frames_reads_as_none() {
        assert!(read_frame(&mut [].as_slice()).unwrap().is_none());
    }

    #[test]
    fn end_of_stream_inside_a_frame_is_an_error() {
        let frame = encode(&"hello").unwrap();
        for cut in 1..frame.len() {
            assert!(
                matches!(read_frame(&mut &frame[..cut]), Err(FrameError::Stream(_))),
                "the frame ends after {cut} bytes"
            );
        }
    }

    #[test]
    fn oversized_frame_is_skipped_and_the_next_one_is_read() {
        let too_long = u32::try_from(FRAME_BODY_BYTES_MAX + 1).unwrap();
        let next = encode(&"next").unwrap();
        let mut stream = io::Cursor::new(too_long.to_le_bytes())
            .chain(io::repeat(b'x').take(u64::from(too_long)))
            .chain(next.as_slice());
        assert!(matches!(read_frame(&mut stream), Err(FrameError::TooLong)));
        assert_eq!(read_frame(&mut stream).unwrap().unwrap(), b"\"next\"");
    }

    #[test]
    fn message_too_long_after_escaping_is_not_encoded() {
        let content = "\u{1}".repeat(FRAME_BODY_BYTES_MAX / 6 + 1);
        assert!(matches!(encode(&content), Err(FrameError::TooLong)));
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_as_a_frame_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_frame(&mut bytes.as_slice());
            let _ = decode::<FileRequest>(&bytes);
        }

        #[test]
        fn any_text_survives_a_round_trip_through_a_frame(text in ".*") {
            let frame = encode(&text).unwrap();
            let body = read_frame(&mut frame.as_slice()).unwrap().unwrap();
            prop_assert_eq!(decode::<String>(&body).unwrap(), text);
        }
    }
}

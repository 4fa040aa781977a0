//! The file tools, as they run inside the sandboxed worker process.
//!
//! Start reading at [`perform`]. The kernel confines this process before this code runs, and only the kernel decides
//! whether a path may be accessed. This code must handle every kind of file in bounded time and memory, and describe
//! each refusal of the kernel.

use std::os::unix::net::UnixStream;

mod directory_entry;
mod edit;
#[cfg(test)]
mod fixture;
mod image;
mod introspect;
mod kind;
mod path;
mod protocol;
mod read;
mod refusal;
mod text_file;
mod write;

use crate::frame::{self, FrameError};
pub use directory_entry::WRITE_FILE_BYTES_MAX;
use edit::{Occurrences, TextReplacement};
pub use image::IMAGE_BYTES_MAX;
pub use protocol::{FileError, FileErrorKind, FileImage, FileReply, FileRequest, FileText, IntrospectLevel};
pub use read::{MAX_READ_OUTPUT, READ_STORED_BYTES_MAX};
pub use text_file::READ_FILE_BYTES_MAX;

/// Answers the requests of one stream in order, until the other end closes it.
pub fn serve(mut stream: UnixStream) -> Result<(), FrameError> {
    loop {
        let reply = match frame::read_frame(&mut stream) {
            Ok(None) => return Ok(()),
            Ok(Some(body)) => answer(&body),
            Err(error @ FrameError::Stream(_)) => return Err(error),
            Err(error @ (FrameError::TooLong | FrameError::Malformed(_))) => refuse(&error),
        };
        frame::write_frame(&mut stream, &reply)?;
    }
}

/// Performs one request of a file tool, and returns its reply.
pub fn perform(request: FileRequest) -> FileReply {
    match request {
        FileRequest::Read { path, offset, limit, bytes_max } => read::read(&path, offset, limit, bytes_max),
        FileRequest::Write { path, content } => write::write(&path, &content).map(FileText::from),
        FileRequest::Edit { path, old_string, new_string, replace_all } => {
            let occurrences = if replace_all { Occurrences::All } else { Occurrences::First };
            edit::edit(&path, TextReplacement { old: &old_string, new: &new_string, occurrences })
                .map(FileText::from)
        }
        FileRequest::Introspect { path, level } => introspect::introspect(&path, level).map(FileText::from),
    }
}

fn answer(body: &[u8]) -> FileReply {
    frame::decode(body).map_or_else(|error| refuse(&error), perform)
}

fn refuse(error: &FrameError) -> FileReply {
    Err(FileError::failed(format!(
        "the process that runs the file tools could not parse the request: {error}"
    )))
}

#[cfg(test)]
mod tests;

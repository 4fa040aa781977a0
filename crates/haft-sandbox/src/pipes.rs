//! The pipes between haft's process and a confined command.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use tokio::net::unix::pipe;

use crate::command::{OutputPipes, StandardInput};

/// haft's ends of the pipes, and the command's ends.
pub(crate) struct Pipes {
    pub(crate) stdin: Option<pipe::Sender>,
    pub(crate) stdout: pipe::Receiver,
    pub(crate) stderr: Option<pipe::Receiver>,
    pub(crate) stdin_for_child: Option<OwnedFd>,
    pub(crate) stdout_for_child: Stdio,
    pub(crate) stderr_for_child: Stdio,
}

impl Pipes {
    pub(crate) fn new(stdin: StandardInput, output: OutputPipes) -> io::Result<Self> {
        let (out_read, out_write) = io::pipe()?;
        let (stderr, stderr_for_child) = match output {
            OutputPipes::Merged => (None, OwnedFd::from(out_write.try_clone()?)),
            OutputPipes::Separate => {
                let (read, write) = io::pipe()?;
                (Some(pipe::Receiver::from_owned_fd(read.into())?), OwnedFd::from(write))
            }
        };
        let (stdin, stdin_for_child) = match stdin {
            StandardInput::Empty => (None, None),
            StandardInput::Piped => {
                let (read, write) = io::pipe()?;
                (Some(pipe::Sender::from_owned_fd(write.into())?), Some(OwnedFd::from(read)))
            }
        };
        Ok(Self {
            stdin,
            stdout: pipe::Receiver::from_owned_fd(out_read.into())?,
            stderr,
            stdin_for_child,
            stdout_for_child: Stdio::from(OwnedFd::from(out_write)),
            stderr_for_child: Stdio::from(stderr_for_child),
        })
    }
}

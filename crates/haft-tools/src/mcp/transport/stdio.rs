//! Messages as lines over the standard streams of a child process.

mod lines;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_sandbox::{CommandExit, SandboxedChild};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use self::lines::{StdioLine, StdioLineSplitter};
use super::{ForgetOutcome, Inbox, MESSAGE_BYTES_MAX, Transport, TransportFailure};
use crate::mcp::log_ring::LogRing;
use crate::mcp::message::{McpOutgoingMessage, RequestId, id_in_fragment};

/// The maximum number of bytes that are queued for a server that does not read its input.
const UNREAD_BYTES_MAX: usize = 64 << 20;

/// The maximum number of bytes that a server may print without a newline before it is stopped.
const ENDLESS_LINE_BYTES_MAX: usize = 1 << 30;

/// The maximum wait for a server to exit after its input was closed, and again after SIGTERM.
const END_WAIT: Duration = Duration::from_secs(1);

/// The number of lines of standard error that are reported when a server exits unexpectedly.
const LAST_WORDS_LINES: usize = 5;

/// An MCP server that runs as a child process. Dropping it kills the process and every process that it started.
#[derive(Debug)]
pub(crate) struct StdioTransport {
    input: Arc<StdinQueue>,
    closing: Mutex<Option<oneshot::Sender<oneshot::Sender<()>>>>,
}

/// The standard input of the server, and the bytes that wait for space in the pipe.
#[derive(Debug)]
struct StdinQueue {
    state: Mutex<StdinQueueState>,
    more: Notify,
}

#[derive(Debug)]
struct StdinQueueState {
    pipe: Option<Arc<pipe::Sender>>,
    unread: Vec<u8>,
}

impl StdioTransport {
    /// Creates the transport for a process that was started with all three streams piped. Appends its standard error to
    /// `log`.
    pub(crate) fn over(mut child: SandboxedChild, inbox: Arc<dyn Inbox>, log: Arc<LogRing>) -> Self {
        let pipe = child.stdin.take().map(Arc::new);
        // Keep the standard error of this process separately, to report why it exited, because `log` may also contain
        // output of earlier processes.
        let stderr = Arc::new(log.sibling());
        let input = Arc::new(StdinQueue {
            state: Mutex::new(StdinQueueState { pipe, unread: Vec::new() }),
            more: Notify::new(),
        });
        let (closing, close_asked) = oneshot::channel();
        if let Some(pipe) = child.stderr.take() {
            tokio::spawn(keep_stderr(pipe, Arc::clone(&stderr), log));
        }
        tokio::spawn(attend(child, Arc::clone(&input), inbox, stderr, close_asked));
        Self { input, closing: Mutex::new(Some(closing)) }
    }
}

impl Transport for StdioTransport {
    fn send(&self, message: McpOutgoingMessage) -> Result<(), TransportFailure> {
        let mut line = message.text.into_bytes();
        line.push(b'\n');
        self.input.put(&line)
    }

    fn forget(&self, _: RequestId) -> ForgetOutcome {
        ForgetOutcome::NeedsCancellation
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (done, ended) = oneshot::channel();
            if closing.is_some_and(|closing| closing.send(done).is_ok()) {
                let _ = ended.await;
            }
        })
    }
}

impl StdinQueue {
    /// Writes as many bytes as the pipe accepts at once, so that most calls need no other task. Queues the rest.
    fn put(&self, bytes: &[u8]) -> Result<(), TransportFailure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = state
            .pipe
            .clone()
            .ok_or_else(|| TransportFailure::Closed("haft stopped the MCP server".into()))?;
        if state.unread.len() + bytes.len() > UNREAD_BYTES_MAX {
            return Err(TransportFailure::Broken(format!(
                "the MCP server does not read its input; more than {UNREAD_BYTES_MAX} bytes are waiting"
            )));
        }
        let written = if state.unread.is_empty() { pipe.try_write(bytes).unwrap_or(0) } else { 0 };
        if written < bytes.len() {
            state.unread.extend_from_slice(&bytes[written..]);
            self.more.notify_one();
        }
        Ok(())
    }

    /// Writes the queued bytes whenever the pipe has space again.
    async fn write_leftovers(&self) {
        loop {
            self.more.notified().await;
            while let Some(pipe) = self.pipe_with_leftovers() {
                if pipe.writable().await.is_err() {
                    return;
                }
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                match pipe.try_write(&state.unread) {
                    Ok(written) => drop(state.unread.drain(..written)),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        }
    }

    fn pipe_with_leftovers(&self) -> Option<Arc<pipe::Sender>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.pipe.clone().filter(|_| !state.unread.is_empty())
    }

    fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.pipe = None;
        state.unread = Vec::new();
    }
}

/// Owns the process: delivers its output until it exits or is closed.
async fn attend(
    mut child: SandboxedChild,
    input: Arc<StdinQueue>,
    inbox: Arc<dyn Inbox>,
    stderr: Arc<LogRing>,
    close_asked: oneshot::Receiver<oneshot::Sender<()>>,
) {
    let Some(stdout) = child.stdout.take() else { return };
    let reason = tokio::select! {
        reason = follow(stdout, inbox.as_ref()) => reason,
        () = input.write_leftovers() => None,
        asked = close_asked => {
            input.close();
            inbox.closed(TransportFailure::Closed("haft stopped the MCP server".into()));
            // A dropped sender means that the caller dropped the connection. Kill the process without an orderly
            // shutdown.
            if let Ok(done) = asked {
                end(child).await;
                let _ = done.send(());
            }
            return;
        }
    };
    input.close();
    let exit = timeout(END_WAIT, child.wait()).await;
    let how = reason.unwrap_or_else(|| match exit {
        Ok(Ok(CommandExit::Code(code))) => format!("the MCP server ended with exit code {code}"),
        Ok(Ok(CommandExit::Signal(signal))) => format!("the MCP server was killed by signal {signal}"),
        Ok(Err(error)) => format!("the server process could not be started: {error}"),
        Err(_) => "the MCP server closed its standard output".into(),
    });
    let last = stderr.last(LAST_WORDS_LINES);
    let words =
        if last.is_empty() { String::new() } else { format!("; last lines of stderr:\n{}", last.join("\n")) };
    inbox.closed(TransportFailure::Closed(format!("{how}{words}")));
    child.kill().await;
}

/// Ends the process in an orderly way. Its input is closed already. If it does not exit, its process group gets
/// SIGTERM. At the end, every process that is left gets SIGKILL.
async fn end(mut child: SandboxedChild) {
    if timeout(END_WAIT, child.wait()).await.is_err() {
        child.terminate();
        let _ = timeout(END_WAIT, child.wait()).await;
    }
    child.kill().await;
}

/// Reads to the end of the output. Returns a reason if reading stops before the end.
async fn follow(mut stdout: pipe::Receiver, inbox: &dyn Inbox) -> Option<String> {
    let mut lines = StdioLineSplitter::new(MESSAGE_BYTES_MAX);
    let mut chunk = vec![0; 64 << 10];
    while let Ok(read @ 1..) = stdout.read(&mut chunk).await {
        lines.push(&chunk[..read], &mut |line| match line {
            StdioLine::Whole(text) => inbox.received(&text, None),
            StdioLine::TooLong { head, tail } => too_long(inbox, &head, &tail),
        });
        if lines.skipped_bytes() > ENDLESS_LINE_BYTES_MAX {
            return Some(format!(
                "haft stopped the MCP server, because it printed more than {ENDLESS_LINE_BYTES_MAX} bytes without a newline"
            ));
        }
    }
    None
}

/// Fails the request whose reply is too long.
fn too_long(inbox: &dyn Inbox, head: &str, tail: &str) {
    for id in too_long_for(head, tail, inbox.waiting()) {
        inbox.failed(id, TransportFailure::TooLarge { bytes_max: MESSAGE_BYTES_MAX });
    }
}

/// Returns the requests that fail because of a message that is too long. A message with a method is not a reply, so it
/// fails no request. A reply with a request id fails that request, unless the request already failed when the line
/// became too long. Without an id, every waiting request fails. If several wait, they fail only at the end of the line,
/// because the id may follow.
fn too_long_for(head: &str, tail: &str, waiting: Vec<RequestId>) -> Vec<RequestId> {
    match id_in_fragment(head, tail) {
        _ if has_method(head) => Vec::new(),
        Some(id) => waiting.into_iter().filter(|waiting| *waiting == id).collect(),
        None if tail.is_empty() && waiting.len() > 1 => Vec::new(),
        None => waiting,
    }
}

/// Returns true for the beginning of a request or a notification.
fn has_method(head: &str) -> bool {
    let at = |key: &str| head.find(key).unwrap_or(usize::MAX);
    at("\"method\"") < at("\"result\"").min(at("\"error\"")).min(at("\"params\""))
}

async fn keep_stderr(mut pipe: pipe::Receiver, own: Arc<LogRing>, log: Arc<LogRing>) {
    let mut chunk = vec![0; 8 << 10];
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        own.push(&chunk[..read]);
        log.push(&chunk[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_long_message_fails_only_the_request_that_it_answers() {
        let check = |head: &str, tail: &str, waiting: &[RequestId], expected: &[RequestId]| {
            assert_eq!(too_long_for(head, tail, waiting.to_vec()), expected, "{head} {tail}");
        };
        let head = r#"{"jsonrpc":"2.0","id":2,"result":{"#;
        check(head, "", &[1, 2, 3], &[2]);
        check(head, r#""aaa"}}"#, &[1, 3], &[]);
        check(r#"{"result":{"id":1,"#, "", &[1, 2], &[]);
        check(r#"{"result":{"id":1,"#, r#"aaa"},"jsonrpc":"2.0","id":2}"#, &[1, 2], &[2]);
        check(r#"{"result":{"id":1,"#, "aaa", &[1, 2], &[1, 2]);
        check(r#"{"result":{"#, "", &[1], &[1]);
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"id":1,"#;
        check(notification, "", &[1], &[]);
        check(notification, r#""id":1}"#, &[1, 2], &[]);
    }
}

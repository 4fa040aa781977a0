//! Ends the HTTP/2 streams whose clients do not read them.
//!
//! The kernel closes a connection whose client stops reading the socket. But an HTTP/2 client can read the socket and
//! never allow more data on one of its streams. Only this stream is ended, because the others may be in use.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// The maximum size of a chunk, in bytes. The HTTP library takes a whole chunk as soon as the client allows one byte.
/// The rest of a larger chunk would wait in the memory of the library, where no time limit applies.
const CHUNK_BYTES_MAX: usize = 16 << 10;

/// The minimum number of written bytes that counts as progress. All pings within one send timeout have fewer bytes.
const PROGRESS_BYTES_MIN: u64 = 1 << 10;

tokio::task_local! {
    /// The chunk counter of the stream that the current task serves.
    static CHUNKS: Arc<ChunkCounter>;
}

/// Counts the chunks of a stream that the HTTP library has taken, and those that it has sent. A chunk counts as sent
/// when the library asks for the next one. Until then, the library waits for the client to allow more data.
#[derive(Debug, Default)]
struct ChunkCounter {
    taken: AtomicU64,
    sent: AtomicU64,
}

impl ChunkCounter {
    /// Returns the number of chunks so far; `None` if the last chunk is already sent.
    fn unsent(&self) -> Option<u64> {
        let taken = self.taken.load(Ordering::Relaxed);
        (self.sent.load(Ordering::Relaxed) < taken).then_some(taken)
    }
}

/// Runs the streams of one connection, each until it ends or stalls.
#[derive(Debug, Clone)]
pub(crate) struct StreamExecutor {
    send_timeout: Duration,
    /// The number of streams in progress.
    active: watch::Sender<usize>,
    /// The number of bytes that were written to the connection.
    written: Arc<AtomicU64>,
}

impl StreamExecutor {
    pub(crate) fn new(send_timeout: Duration) -> Self {
        Self { send_timeout, active: watch::Sender::new(0), written: Arc::default() }
    }

    /// Wraps a connection, to count the bytes that are written to it.
    pub(crate) fn counted<S>(&self, stream: S) -> CountedWrites<S> {
        CountedWrites { stream, written: Arc::clone(&self.written) }
    }

    /// Returns when, for the whole send timeout, no stream was in progress and no data except pings was written. The
    /// client then does not read the last chunks, so a closing connection need not wait for it any longer.
    pub(crate) async fn without_streams(&self) {
        let mut active = self.active.subscribe();
        loop {
            let before = self.written.load(Ordering::Relaxed);
            // Waiting cannot fail, because the sender lives as long as `self`.
            let _ = active.wait_for(|count| *count == 0).await;
            let is_idle = timeout(self.send_timeout, active.wait_for(|count| *count > 0)).await.is_err();
            let written = self.written.load(Ordering::Relaxed).saturating_sub(before);
            if is_idle && written < PROGRESS_BYTES_MIN {
                return;
            }
        }
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        let (active, send_timeout) = (ActiveStream::begin(&self.active), self.send_timeout);
        tokio::spawn(async move {
            until_stalled(stream, send_timeout).await;
            drop(active);
        });
    }
}

/// Counts a stream until it is dropped.
struct ActiveStream(watch::Sender<usize>);

impl ActiveStream {
    fn begin(active: &watch::Sender<usize>) -> Self {
        active.send_modify(|count| *count += 1);
        Self(active.clone())
    }
}

impl Drop for ActiveStream {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Polls a stream until it ends, or until one chunk has waited for the client for the whole send timeout. Dropping the
/// stream then resets it and drops the body, as if the client had closed the connection.
async fn until_stalled<F: Future>(stream: F, send_timeout: Duration) {
    let chunks = Arc::new(ChunkCounter::default());
    let mut stream = pin!(CHUNKS.scope(Arc::clone(&chunks), stream));
    let mut timer = pin!(sleep(send_timeout));
    let mut last = None;
    poll_fn(|context| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let unsent = chunks.unsent();
        if unsent != last {
            last = unsent;
            timer.as_mut().reset(Instant::now() + send_timeout);
        }
        if unsent.is_some() { timer.as_mut().poll(context) } else { Poll::Pending }
    })
    .await;
}

/// Divides the body of a response into chunks, and counts them for the stream that the current task serves.
pub(crate) fn counted(response: Response<Body>) -> Response<ChunkedBody> {
    let chunks = CHUNKS.try_with(Arc::clone).unwrap_or_default();
    response.map(|body| ChunkedBody { body, rest: Bytes::new(), chunks })
}

/// A body in chunks of limited size.
#[derive(Debug)]
pub(crate) struct ChunkedBody {
    body: Body,
    /// The part of a large chunk that the HTTP library has not taken yet.
    rest: Bytes,
    chunks: Arc<ChunkCounter>,
}

impl HttpBody for ChunkedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.chunks.sent.store(self.chunks.taken.load(Ordering::Relaxed), Ordering::Relaxed);
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let length = self.rest.len().min(CHUNK_BYTES_MAX);
        self.chunks.taken.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // The HTTP library asks for the size only before the first chunk, when `rest` is still empty.
        self.body.size_hint()
    }
}

/// A connection that counts the bytes that are written to it.
#[derive(Debug)]
pub(crate) struct CountedWrites<S> {
    stream: S,
    written: Arc<AtomicU64>,
}

impl<S> CountedWrites<S> {
    fn count(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.written.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedWrites<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedWrites<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.count(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;

    /// Returns the seconds until a connection without streams may close, if `bytes` bytes are written to it every half
    /// second, ten times.
    async fn seconds_until_closed(bytes: usize) -> u64 {
        let streams = StreamExecutor::new(Duration::from_secs(1));
        let (connection, _client) = duplex(1 << 20);
        let mut connection = streams.counted(connection);
        let writing = tokio::spawn(async move {
            for _ in 0..10 {
                connection.write_all(&vec![0; bytes]).await.unwrap();
                sleep(Duration::from_millis(500)).await;
            }
        });
        let began = Instant::now();
        streams.without_streams().await;
        writing.abort();
        began.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn http2_connection_without_streams_stays_open_while_data_is_written() {
        assert_eq!(seconds_until_closed(17).await, 1, "pings do not count as progress");
        assert_eq!(seconds_until_closed(16 << 10).await, 6);
    }

    #[tokio::test(start_paused = true)]
    async fn http2_connection_with_a_stream_stays_open() {
        let streams = StreamExecutor::new(Duration::from_secs(1));
        streams.execute(sleep(Duration::from_secs(10)));
        let began = Instant::now();
        streams.without_streams().await;
        assert_eq!(began.elapsed().as_secs(), 11);
    }
}

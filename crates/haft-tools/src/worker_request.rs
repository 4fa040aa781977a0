//! Requests to a confined worker: sends one frame and receives one frame.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::frame::{FRAME_HEADER_BYTES, body_bytes, decode, encode};

/// Sends a request over a worker's channel and waits for its reply. If the future is dropped before the reply, the
/// channel must not be used again, because the reply may still arrive.
pub(crate) async fn exchange<Q: Serialize, A: DeserializeOwned>(
    channel: &mut UnixStream,
    request: &Q,
) -> io::Result<A> {
    let frame = encode(request).map_err(io::Error::other)?;
    channel.write_all(&frame).await?;
    let mut header = [0; FRAME_HEADER_BYTES];
    channel.read_exact(&mut header).await?;
    let mut body = vec![0; body_bytes(header).map_err(io::Error::other)?];
    channel.read_exact(&mut body).await?;
    decode(&body).map_err(io::Error::other)
}

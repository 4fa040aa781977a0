//! Messages over a WebSocket: one per frame, in both directions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{SinkExt, StreamExt};
use secrecy::SecretString;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};
use url::Url;

use super::client::header_map;
use super::{ForgetOutcome, Inbox, MESSAGE_BYTES_MAX, Transport, TransportFailure};
use crate::http_client::install_crypto_provider;
use crate::mcp::message::{McpOutgoingMessage, RequestId};

/// The maximum number of messages that are queued for a server that does not read.
const UNSENT_MAX: usize = 1024;

/// The maximum wait for the closing handshake.
const FAREWELL_WAIT: Duration = Duration::from_secs(1);

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

/// The connection to an MCP server over a WebSocket. Dropping it closes the socket.
pub(crate) struct WebSocketTransport {
    unsent: Mutex<Option<mpsc::Sender<String>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl WebSocketTransport {
    pub(crate) async fn open(
        url: &Url,
        headers: &[(String, SecretString)],
        inbox: Arc<dyn Inbox>,
    ) -> Result<Self, TransportFailure> {
        install_crypto_provider();
        let mut request = url.as_str().into_client_request().map_err(|error| unreachable(&error))?;
        request.headers_mut().extend(header_map(headers)?);
        request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static("mcp"));
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let connected = connect_async_with_config(request, Some(config), true).await;
        let (socket, _) = connected.map_err(|error| unreachable(&error))?;
        let (unsent, waiting) = mpsc::channel(UNSENT_MAX);
        let task = tokio::spawn(attend(socket, waiting, inbox));
        Ok(Self { unsent: Mutex::new(Some(unsent)), task: Mutex::new(Some(task)) })
    }
}

impl Transport for WebSocketTransport {
    fn send(&self, message: McpOutgoingMessage) -> Result<(), TransportFailure> {
        let unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        let unsent = unsent
            .as_ref()
            .ok_or_else(|| TransportFailure::Closed("the connection to the MCP server was closed".into()))?;
        unsent.try_send(message.text).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => TransportFailure::Broken(format!(
                "the MCP server has stopped reading its input; {UNSENT_MAX} messages are waiting"
            )),
            mpsc::error::TrySendError::Closed(_) => {
                TransportFailure::Closed("the connection to the MCP server is closed".into())
            }
        })
    }

    fn forget(&self, _: RequestId) -> ForgetOutcome {
        ForgetOutcome::NeedsCancellation
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.unsent.lock().unwrap_or_else(PoisonError::into_inner).take();
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(mut task) = task
                && timeout(FAREWELL_WAIT, &mut task).await.is_err()
            {
                task.abort();
            }
        })
    }
}

impl Drop for WebSocketTransport {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

/// Owns the socket until either side closes it.
async fn attend(mut socket: Socket, mut unsent: mpsc::Receiver<String>, inbox: Arc<dyn Inbox>) {
    let failure = loop {
        tokio::select! {
            message = socket.next() => match message {
                Some(Ok(Message::Text(text))) => inbox.received(&text, None),
                Some(Ok(Message::Binary(bytes))) => inbox.received(&String::from_utf8_lossy(&bytes), None),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_))) | None => {
                    break TransportFailure::Closed("the MCP server closed the WebSocket".into());
                }
                Some(Err(Error::Capacity(_))) => {
                    break TransportFailure::TooLarge { bytes_max: MESSAGE_BYTES_MAX };
                }
                Some(Err(error)) => break TransportFailure::Closed(format!("the WebSocket connection failed: {error}")),
            },
            text = unsent.recv() => {
                let Some(text) = text else {
                    let _ = socket.close(None).await;
                    break TransportFailure::Closed("the connection to the MCP server was closed".into());
                };
                if let Err(error) = socket.send(Message::text(text)).await {
                    break TransportFailure::Closed(format!("the WebSocket connection failed: {error}"));
                }
            }
        }
    };
    inbox.closed(failure);
}

fn unreachable(error: &Error) -> TransportFailure {
    match error {
        Error::Http(response) if response.status() == 401 => TransportFailure::NeedsAuth(
            "the server rejected the credentials (HTTP 401); set the credentials of a WebSocket server in `headers`".into(),
        ),
        Error::Http(response) => {
            TransportFailure::Broken(format!("the server answered {}", response.status()))
        }
        other => TransportFailure::Unreached(format!("the server cannot be reached: {other}")),
    }
}

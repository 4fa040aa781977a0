//! Raw TCP connections to the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use haft_model_server::ModelServer;
use serde_json::Value;

/// The response on a connection, up to its end.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// The chunks as they were sent, without their sizes.
    pub(crate) chunks: Vec<String>,
    /// True if the body ended regularly, not with a broken connection.
    pub(crate) whole: bool,
}

impl RawResponse {
    pub(crate) fn body(&self) -> String {
        self.chunks.concat()
    }
}

/// Sends a request, and leaves the response unread.
pub(crate) fn open(server: &ModelServer, path: &str, body: &Value) -> TcpStream {
    open_with(server, path, &body.to_string())
}

fn open_with(server: &ModelServer, path: &str, body: &str) -> TcpStream {
    let address = server.url().replace("http://", "");
    let mut connection = TcpStream::connect(&address).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(
        connection,
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nanthropic-version: 2023-06-01\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    connection
}

/// Sends a request and reads the whole response.
pub(crate) fn post(server: &ModelServer, path: &str, body: &Value) -> RawResponse {
    post_text(server, path, &body.to_string())
}

/// Works like `post`, but the body need not be JSON.
pub(crate) fn post_text(server: &ModelServer, path: &str, body: &str) -> RawResponse {
    let mut connection = open_with(server, path, body);
    let mut bytes = Vec::new();
    // Accept a broken connection, which is a valid result for these tests.
    let _ = connection.read_to_end(&mut bytes);
    came(&bytes)
}

fn came(bytes: &[u8]) -> RawResponse {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let (head, mut rest) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let (mut chunks, mut whole) = (Vec::new(), false);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 || after.len() < size {
            whole = size == 0;
            break;
        }
        chunks.push(after[..size].to_owned());
        rest = after[size..].trim_start_matches("\r\n");
    }
    RawResponse { status, head: head.to_owned(), chunks, whole }
}

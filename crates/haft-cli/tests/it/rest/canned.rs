//! A server that sends the same response to every request, byte for byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A server that sends `answer` to every request, closes the connection, and records the requests.
pub(super) struct CannedServer {
    pub(super) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl CannedServer {
    pub(super) fn new(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::with(move |_, stream| drop(stream.write_all(&answer)))
    }

    /// Starts a server. `answer` gets the number of earlier requests.
    pub(super) fn with(answer: impl Fn(usize, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::answering(move |before, _, stream| answer(before, stream))
    }

    /// Starts a server whose `answer` also gets the request.
    pub(super) fn answering(answer: impl Fn(usize, &str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&heads), Arc::new(answer));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let head = head(&mut stream);
                    let before = {
                        let mut seen = seen.lock().unwrap();
                        seen.push(head.clone());
                        seen.len() - 1
                    };
                    answer(before, &head, &mut stream);
                });
            }
        });
        Self { address, heads }
    }

    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Reads a request: its head, followed by its body.
fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        bytes.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    let _ = stream.read_exact(&mut body);
    head + &String::from_utf8_lossy(&body)
}

/// Returns a whole response with its length.
pub(super) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

//! A minimal HTTP client, which costs far less CPU time than the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// One connection that stays open between requests.
pub(crate) struct Client {
    connection: BufReader<TcpStream>,
    head: String,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr, key: &str) -> Self {
        let connection = TcpStream::connect(address).unwrap();
        connection.set_nodelay(true).unwrap();
        let head = format!(
            "Host: {address}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: "
        );
        Self { connection: BufReader::new(connection), head }
    }

    /// Sends a request and reads the whole reply, which must be a success.
    pub(crate) fn post(&mut self, path: &str, body: &str) {
        match self.begin("POST", path, body) {
            Some(length) => drop(self.bytes(length)),
            None => while self.chunk().is_some() {},
        }
    }

    /// Sends a request whose reply is a stream. Call [`chunk`](Self::chunk) to read the stream.
    pub(crate) fn open(&mut self, method: &str, path: &str, body: &str) {
        assert_eq!(self.begin(method, path, body), None, "the reply is not a stream");
    }

    /// Sends a request for a stream, reads the whole reply, and returns the time until this text arrived.
    pub(crate) fn time_to(&mut self, text: &str, path: &str, body: &str) -> Duration {
        let began = Instant::now();
        self.open("POST", path, body);
        let mut arrived = None;
        while let Some(chunk) = self.chunk() {
            if arrived.is_none() && chunk.contains(text) {
                arrived = Some(began.elapsed());
            }
        }
        arrived.unwrap()
    }

    /// Returns the next chunk of a stream; `None` after the last one.
    pub(crate) fn chunk(&mut self) -> Option<String> {
        // A chunk begins with its length, and ends with a line break.
        let length = usize::from_str_radix(self.line().trim(), 16).unwrap();
        let mut bytes = self.bytes(length + 2);
        bytes.truncate(length);
        (length > 0).then(|| String::from_utf8(bytes).unwrap())
    }

    /// Reads a stream until this text has arrived.
    pub(crate) fn read_to(&mut self, text: &str) -> String {
        loop {
            let chunk = self.chunk().unwrap();
            if chunk.contains(text) {
                return chunk;
            }
        }
    }

    /// Sends a request and reads the head of the reply. Returns the length of the body; `None` if the body is chunked.
    fn begin(&mut self, method: &str, path: &str, body: &str) -> Option<usize> {
        let request = format!("{method} {path} HTTP/1.1\r\n{}{}\r\n\r\n{body}", self.head, body.len());
        self.connection.get_mut().write_all(request.as_bytes()).unwrap();
        let mut line = self.line();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        let mut length = None;
        while line != "\r\n" {
            line = self.line().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Some(value.trim().parse().unwrap());
            }
        }
        length
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.connection.read_line(&mut line).unwrap();
        line
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.connection.read_exact(&mut bytes).unwrap();
        bytes
    }
}

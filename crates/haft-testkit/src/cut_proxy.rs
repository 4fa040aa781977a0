//! A TCP proxy that can cut the connections through it, as a failing network does.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The size of the buffer of each direction of a connection.
const BUFFER_BYTES: usize = 16 << 10;

/// A proxy that copies bytes between its clients and one server, and accepts connections as long as the test runs.
#[derive(Debug)]
pub struct CutProxy {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<ProxyConnection>>>,
}

/// One connection through the proxy, which may have ended.
#[derive(Debug)]
struct ProxyConnection {
    client: TcpStream,
    server: TcpStream,
    /// All bytes that the client has sent.
    sent: Vec<u8>,
}

impl CutProxy {
    /// Starts a proxy in front of a server. `target` is the server's address, with or without `http://`.
    pub fn start(target: &str) -> Self {
        let target: SocketAddr = target.trim_start_matches("http://").parse().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::default();
        let accepted = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                join(&accepted, client, TcpStream::connect(target).unwrap());
            }
        });
        Self { address, connections }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts all connections that are open now. Later connections work.
    pub fn cut(&self) {
        for connection in lock(&self.connections).iter() {
            close(&connection.client);
            close(&connection.server);
        }
    }

    /// Returns the text that the client has sent on each connection so far.
    pub fn requests(&self) -> Vec<String> {
        let connections = lock(&self.connections);
        connections.iter().map(|one| String::from_utf8_lossy(&one.sent).into_owned()).collect()
    }
}

fn lock(connections: &Mutex<Vec<ProxyConnection>>) -> MutexGuard<'_, Vec<ProxyConnection>> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies the bytes of both directions in two threads.
fn join(connections: &Arc<Mutex<Vec<ProxyConnection>>>, client: TcpStream, server: TcpStream) {
    let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (from_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let index = {
        let mut all = lock(connections);
        all.push(ProxyConnection { client, server, sent: Vec::new() });
        all.len() - 1
    };
    let recorded = Arc::clone(connections);
    thread::spawn(move || {
        copy(from_client, to_server, |bytes| lock(&recorded)[index].sent.extend_from_slice(bytes));
    });
    thread::spawn(move || copy(from_server, to_client, |_| {}));
}

/// Copies bytes until one side closes, and then closes both.
fn copy(mut from: TcpStream, mut to: TcpStream, mut record: impl FnMut(&[u8])) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        record(&buffer[..length]);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    close(&from);
    close(&to);
}

fn close(stream: &TcpStream) {
    // Ignore the error: the other side has already closed the connection.
    let _ = stream.shutdown(Shutdown::Both);
}

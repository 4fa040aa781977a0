//! Receives the redirect of a login in a browser, on a local port.

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

/// The maximum time that a browser may take to send its request.
const REQUEST_WAIT: Duration = Duration::from_secs(5);

/// The maximum number of connections that are served at the same time.
const VISITS_MAX: usize = 256;

/// The maximum size of a request that is read, in bytes.
const REQUEST_BYTES_MAX: usize = 16 << 10;

const PATH: &str = "/callback";

/// An open port for the redirect of a login. The port listens on the loopback address only.
#[derive(Debug)]
pub struct LoopbackRedirect {
    listener: TcpListener,
    port: u16,
}

impl LoopbackRedirect {
    /// Opens a port; 0 selects any free port.
    pub async fn open(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    /// Returns the redirect URI for the authorization request.
    pub fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Serves requests until a browser sends the redirect of this login; all other requests get an error. Any web page
    /// and any local program can connect, so neither a silent connection nor a redirect with another state ends the
    /// wait.
    pub async fn redirected(&self, state: &str) -> Url {
        let mut visits = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if visits.len() < VISITS_MAX => {
                    if let Ok((stream, _)) = accepted {
                        visits.push(tokio::time::timeout(REQUEST_WAIT, self.visit(stream, state)));
                    }
                }
                Some(visit) = visits.next(), if !visits.is_empty() => {
                    if let Ok(Some(answer)) = visit {
                        return answer;
                    }
                }
            }
        }
    }

    async fn visit(&self, mut stream: TcpStream, state: &str) -> Option<Url> {
        let head = head(&mut stream).await?;
        let redirect = self.redirect_in(&head);
        let answer = redirect.clone().filter(|url| query(url, "state").as_deref() == Some(state));
        let (status, text) = match (&answer, redirect) {
            (Some(_), _) => ("200 OK", "The login is complete. You can close this page."),
            (None, Some(_)) => ("400 Bad Request", "This page belongs to another login."),
            (None, None) => ("404 Not Found", "This page does not exist."),
        };
        let reply = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
            text.len()
        );
        // Ignore an error: the redirect is valid even if the browser does not read the response.
        let _ = stream.write_all(reply.as_bytes()).await;
        answer
    }

    fn redirect_in(&self, head: &str) -> Option<Url> {
        let target = head.lines().next()?.strip_prefix("GET ")?.split(' ').next()?;
        let url = Url::parse(&self.redirect_uri()).ok()?.join(target).ok()?;
        (url.path() == PATH && is_login_redirect(&url)).then_some(url)
    }
}

async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    let mut chunk = [0; 2048];
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        read.extend_from_slice(chunk.get(..count)?);
        if read.len() > REQUEST_BYTES_MAX {
            return None;
        }
    }
    String::from_utf8(read).ok()
}

/// Returns true if an authorization server may have redirected a browser to this URL.
pub fn is_login_redirect(url: &Url) -> bool {
    query(url, "state").is_some() && (query(url, "code").is_some() || query(url, "error").is_some())
}

/// Returns the state of a login, from its authorization URL or from the URL of its redirect.
pub fn login_state(url: &Url) -> Option<String> {
    query(url, "state")
}

fn query(url: &Url, wanted: &str) -> Option<String> {
    url.query_pairs().find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
}

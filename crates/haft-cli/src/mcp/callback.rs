//! Receives the redirect of a login in a browser: on a local port, or as a URL that the user pastes.

use std::io::{self, BufRead, Read};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use haft_tools::mcp::OauthConsent;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use url::Url;

use super::super::terminal;

/// The maximum time that a user may take to log in.
const LOGIN_WAIT: Duration = Duration::from_mins(10);

/// The maximum time that a browser may take to send its request.
const REQUEST_WAIT: Duration = Duration::from_secs(5);

/// The maximum number of connections that are served at the same time.
const VISITS_MAX: usize = 256;

/// The maximum size of a request or pasted input that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 10;

const PATH: &str = "/callback";

/// An open port for the redirect. It listens on the loopback only.
#[derive(Debug)]
pub(super) struct RedirectListener {
    listener: TcpListener,
    port: u16,
}

impl RedirectListener {
    pub(super) async fn open(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    /// Serves requests until a browser sends the redirect of this login; all other requests get an error. Any web page
    /// and any local program can connect, so neither a silent connection nor a redirect with another state ends the
    /// wait.
    async fn visited(&self, state: &str) -> Url {
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
        let redirect = self.answer_in(&head);
        let answer = redirect.clone().filter(|url| query(url, "state").as_deref() == Some(state));
        let (status, text) = match (&answer, redirect) {
            (Some(_), _) => ("200 OK", "Done. You can close this page and go back to the terminal."),
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

    fn answer_in(&self, head: &str) -> Option<Url> {
        let target = head.lines().next()?.strip_prefix("GET ")?.split(' ').next()?;
        let url = Url::parse(&self.redirect_uri()).ok()?.join(target).ok()?;
        (url.path() == PATH && is_login_redirect(&url)).then_some(url)
    }
}

impl OauthConsent for RedirectListener {
    fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    fn ask<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Url, String>> {
        terminal::note(&format!(
            "open this address in a browser and log in there:\n\n  {url}\n\nthe browser then returns here; if it cannot (because it runs on another machine), paste the address of its last page:"
        ));
        let state = query(url, "state").unwrap_or_default();
        Box::pin(async move {
            let answer = async {
                tokio::select! {
                    answer = self.visited(&state) => answer,
                    answer = pasted() => answer,
                }
            };
            tokio::time::timeout(LOGIN_WAIT, answer).await.map_err(|_| {
                format!("the login was not completed within {} minutes", LOGIN_WAIT.as_secs() / 60)
            })
        })
    }
}

/// Returns the first line of standard input that is a redirect URL. Waits forever if the input ends without one.
async fn pasted() -> Url {
    let (found, answer) = oneshot::channel();
    // Use a detached thread, because a blocking read of a terminal cannot be cancelled.
    std::thread::spawn(move || {
        let mut input = io::stdin().lock().take(ANSWER_BYTES_MAX as u64);
        let mut line = String::new();
        while input.read_line(&mut line).is_ok_and(|read| read > 0) {
            if let Some(url) = Url::parse(line.trim()).ok().filter(is_login_redirect) {
                let _ = found.send(url);
                return;
            }
            terminal::note(
                "this is not the address of the last login page; that address contains `code=` and `state=`",
            );
            line.clear();
        }
    });
    match answer.await {
        Ok(url) => url,
        Err(_) => std::future::pending().await,
    }
}

async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    let mut chunk = [0; 2048];
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        read.extend_from_slice(chunk.get(..count)?);
        if read.len() > ANSWER_BYTES_MAX {
            return None;
        }
    }
    String::from_utf8(read).ok()
}

fn is_login_redirect(url: &Url) -> bool {
    query(url, "state").is_some() && (query(url, "code").is_some() || query(url, "error").is_some())
}

fn query(url: &Url, wanted: &str) -> Option<String> {
    url.query_pairs().find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
}

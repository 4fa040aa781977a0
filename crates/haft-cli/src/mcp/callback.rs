//! Receives the redirect of a login in a browser: on a local port, or as a URL that the user pastes.

use std::io::{self, BufRead, Read};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_tools::mcp::{LoopbackRedirect, OauthConsent, is_login_redirect, login_state};
use tokio::sync::oneshot;
use url::Url;

use super::super::terminal;

/// The maximum time that a user may take to log in.
const LOGIN_WAIT: Duration = Duration::from_mins(10);

/// The maximum size of pasted input that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 10;

/// Asks the user at the terminal to open a URL.
#[derive(Debug)]
pub(super) struct TerminalConsent(pub(super) LoopbackRedirect);

impl OauthConsent for TerminalConsent {
    fn redirect_uri(&self) -> String {
        self.0.redirect_uri()
    }

    fn ask<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Url, String>> {
        terminal::note(&format!(
            "open this address in a browser and log in there:\n\n  {url}\n\nafter the login, the browser returns to haft; if it cannot (because it runs on another machine), paste the address of its last page here:"
        ));
        let state = login_state(url).unwrap_or_default();
        Box::pin(async move {
            let answer = async {
                tokio::select! {
                    answer = self.0.redirected(&state) => answer,
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
        let mut input = io::stdin().lock().take(ANSWER_BYTES_MAX);
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

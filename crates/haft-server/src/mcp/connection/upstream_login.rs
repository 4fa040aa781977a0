//! Asks the client's user to log in at an upstream server that requires it.

use std::sync::Arc;
use std::time::Duration;

use haft_core::client_relay::{ClientRelay, RelayedRequest};
use haft_core::result::{ToolErrorKind, ToolResult};
use haft_tools::mcp::{LOGIN_NEEDED, URL_REQUIRED};
use serde_json::{Value, json};

use super::opened::OpenedClient;
use super::user_step::StepOutcome;
use super::{CORE_TASKS, ClientConnection};
use crate::mcp::era::RequestEra;
use crate::mcp::held::AbortOnDrop;
use crate::mcp::logins::{LoginPhase, PendingLogin};
use crate::mcp::message::{self, GatewayError};
use crate::mcp::outbox::MessageScope;
use crate::mcp::questions::ELICITATION;
use crate::mcp::shared_tools::SharedTools;

/// The time that a repeated request waits for the end of the login before haft asks again. It is shorter than the
/// timeout of common clients.
pub(super) const REPEATED_WAIT: Duration = Duration::from_secs(25);

/// The maximum number of logins during one request. A server may reject the token of a login at once.
pub(super) const LOGINS_PER_REQUEST_MAX: usize = 2;

/// The key of the question in a reply.
const QUESTION_KEY: &str = "login";

impl ClientConnection {
    /// Asks the user to log in, in the way of the protocol revision.
    pub(super) async fn request_login(
        &self,
        opened: &OpenedClient,
        server: usize,
        (era, asker): (RequestEra, &dyn ClientRelay),
    ) -> StepOutcome {
        let tools = &opened.shared;
        let Some(target) = tools.login_target(server).filter(|_| self.can_open_urls(tools, era)) else {
            return StepOutcome::NotOffered;
        };
        let begun =
            self.pool.logins.begin(target, &self.user.principal, &tools.upstreams.servers[server]).await;
        let login = match begun {
            Ok(login) => login,
            Err(reason) => return StepOutcome::Failed(reason),
        };
        match era {
            RequestEra::Handshake => self.url_required(&login),
            RequestEra::Stateless(_) => ask_until_logged_in(&login, asker).await,
        }
    }

    fn can_open_urls(&self, tools: &SharedTools, era: RequestEra) -> bool {
        match era {
            // Earlier revisions with a handshake have no questions with a URL.
            RequestEra::Handshake => {
                tools.client.abilities.url_elicitation && self.negotiated.get() == Some(&CORE_TASKS)
            }
            RequestEra::Stateless(abilities) => abilities.url_elicitation,
        }
    }

    /// Returns the error that names the URL, and notifies the client when the login is finished.
    fn url_required(&self, login: &Arc<PendingLogin>) -> StepOutcome {
        let Some(url) = login.url() else { return StepOutcome::Repeat };
        let elicitation = json!({
            "mode": "url", "elicitationId": login.id, "url": url, "message": message_of(login),
        });
        self.announce_end(login);
        let error = GatewayError::new(URL_REQUIRED, message_of(login));
        StepOutcome::Reply(error.with_data(json!({ "elicitations": [elicitation] })))
    }

    /// Notifies the client when the user has logged in. Only the first call for a login has an effect.
    fn announce_end(&self, login: &Arc<PendingLogin>) {
        let mut watched = self.watched_logins();
        watched.retain(|_, task| !task.0.is_finished());
        if watched.contains_key(&login.id) {
            return;
        }
        let (out, waiting) = (self.out.clone(), Arc::clone(login));
        let task = tokio::spawn(async move {
            if waiting.ended_within(Duration::MAX).await == LoginPhase::Finished {
                let params = json!({ "elicitationId": waiting.id });
                let text = message::notification("notifications/elicitation/complete", &params);
                out.send(MessageScope::Connection, text).await;
            }
        });
        watched.insert(login.id.clone(), AbortOnDrop(task.abort_handle()));
    }
}

/// Asks the user to open the URL, until the login ends or the user declines.
async fn ask_until_logged_in(login: &PendingLogin, asker: &dyn ClientRelay) -> StepOutcome {
    // The login itself has a time limit, so this loop has one too.
    loop {
        let Some(url) = login.url() else {
            return step_after(login.ended_within(Duration::ZERO).await);
        };
        let params = json!({ "mode": "url", "url": url, "message": message_of(login) }).to_string();
        let request = RelayedRequest {
            // The asker already belongs to one call, so the request need not name it.
            call: None,
            server: &login.server,
            key: Some(QUESTION_KEY),
            method: ELICITATION,
            params: &params,
        };
        let answer = match asker.relay(request).await {
            Ok(answer) => serde_json::from_str::<Value>(answer.get()).unwrap_or_default(),
            Err(reason) => return StepOutcome::Failed(reason),
        };
        if answer["action"] != "accept" {
            return StepOutcome::Failed("the user did not log in".into());
        }
        let phase = login.ended_within(REPEATED_WAIT).await;
        if !matches!(phase, LoginPhase::Waiting(_)) {
            return step_after(phase);
        }
    }
}

fn step_after(phase: LoginPhase) -> StepOutcome {
    match phase {
        LoginPhase::Finished => StepOutcome::Repeat,
        LoginPhase::Failed(reason) => StepOutcome::Failed(reason),
        LoginPhase::Preparing | LoginPhase::Waiting(_) => {
            StepOutcome::Failed("the login was cancelled".into())
        }
    }
}

fn message_of(login: &PendingLogin) -> String {
    format!("Log in at the MCP server `{}` ({}) to use its tools.", login.server, login.host)
}

/// Returns the upstream server that refused a call because a user must log in.
pub(super) fn login_server(tools: &SharedTools, result: &ToolResult) -> Option<usize> {
    let error = result.outcome.as_ref().err()?;
    if error.kind != ToolErrorKind::Unavailable || !error.message.contains(LOGIN_NEEDED) {
        return None;
    }
    let tool = tools.orchestrator.catalog().resolve(&result.call.name).ok()?;
    tools.upstreams.addresses.position(tool.identity().namespace.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::BoxFuture;
    use haft_core::client_relay::RelayedLog;
    use haft_core::tool::CallId;
    use haft_testkit::AccountServer;
    use serde_json::value::RawValue;

    use super::*;
    use crate::mcp::logins::tests::begun_login;

    /// A user who agrees to open the URL twice, but does not log in, and then declines.
    #[derive(Default)]
    struct SlowUser(AtomicUsize);

    impl ClientRelay for SlowUser {
        fn relay<'a>(&'a self, request: RelayedRequest<'a>) -> BoxFuture<'a, Result<Box<RawValue>, String>> {
            assert_eq!((request.server, request.method), ("far", ELICITATION));
            let action = if self.0.fetch_add(1, Ordering::Relaxed) < 2 { "accept" } else { "decline" };
            let answer = RawValue::from_string(json!({ "action": action }).to_string());
            Box::pin(async { answer.map_err(|error| error.to_string()) })
        }

        fn log(&self, _: RelayedLog<'_>) {}

        fn log_level(&self, _: &CallId) -> Option<&'static str> {
            None
        }
    }

    #[tokio::test]
    async fn user_is_asked_again_until_the_login_is_finished() {
        let (server, home) = (AccountServer::start(), tempfile::tempdir().unwrap());
        let (_logins, login) = begun_login(&server, home.path()).await;
        let user = SlowUser::default();
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let step = ask_until_logged_in(&login, &user).await;
        assert!(
            matches!(&step, StepOutcome::Failed(reason) if reason.contains("did not log in")),
            "{step:?}"
        );
        assert_eq!(user.0.load(Ordering::Relaxed), 3);
        assert!(began.elapsed() >= 2 * REPEATED_WAIT, "{:?}", began.elapsed());
    }
}

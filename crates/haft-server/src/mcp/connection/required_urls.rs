//! Errors with which upstream servers require that the user opens URLs first (-32042). The revision without sessions has
//! no such error, so haft asks the user in a reply, and then repeats the request.

use std::collections::HashSet;

use futures_util::future::join_all;
use haft_core::client_relay::{ClientRelay, RelayedRequest};
use haft_core::result::ToolResult;
use haft_tools::mcp::{ServerNews, URL_REQUIRED};
use serde_json::Value;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::ClientConnection;
use super::opened::OpenedClient;
use super::upstream_login::{LOGINS_PER_REQUEST_MAX, LoginStep, REPEATED_WAIT, login_server};
use crate::mcp::era::RequestEra;
use crate::mcp::questions::ELICITATION;
use crate::mcp::shared_tools::SharedTools;

/// The maximum number of URLs that a server may require at once.
const URLS_MAX: usize = 16;

/// The maximum number of times that one request asks the user to open URLs. A server may require them until the user has
/// finished.
const ROUNDS_MAX: usize = 8;

/// The key of the question in a reply.
const QUESTION_KEY: &str = "url";

/// The reason why a server cannot carry out a request before the user has done something.
#[derive(Debug)]
pub(super) enum UserStep {
    /// The user must log in at this server.
    Login(usize),
    /// The user must open URLs of this server, which the data of the error lists.
    OpenUrls(usize, Option<Value>),
}

impl UserStep {
    pub(super) fn of(tools: &SharedTools, result: &ToolResult) -> Option<Self> {
        if let Some(server) = login_server(tools, result) {
            return Some(Self::Login(server));
        }
        let error = result.outcome.as_ref().err()?.protocol.as_ref()?;
        if error.code != URL_REQUIRED {
            return None;
        }
        let tool = tools.orchestrator.catalog().resolve(&result.call.name).ok()?;
        let server = tools.upstreams.addresses.position(tool.identity().namespace.as_str())?;
        Some(Self::OpenUrls(server, error.data.clone()))
    }

    /// Returns the maximum number of such steps in one request.
    pub(super) fn rounds_max(&self) -> usize {
        match self {
            Self::Login(_) => LOGINS_PER_REQUEST_MAX,
            Self::OpenUrls(..) => ROUNDS_MAX,
        }
    }
}

impl ClientConnection {
    /// Asks the user for the step that a server requires.
    pub(super) async fn request_step(
        &self,
        opened: &OpenedClient,
        step: &UserStep,
        (era, asker): (RequestEra, &dyn ClientRelay),
    ) -> LoginStep {
        match (step, era) {
            (UserStep::Login(server), _) => self.request_login(opened, *server, (era, asker)).await,
            // The client gets the error, and later the notification that ends each question.
            (UserStep::OpenUrls(server, data), RequestEra::Handshake) => {
                let name = opened.shared.upstreams.servers[*server].name();
                self.questions.urls.add_listed(name, data.as_ref());
                LoginStep::NotOffered
            }
            (UserStep::OpenUrls(server, data), RequestEra::Stateless(abilities)) => {
                if !abilities.url_elicitation {
                    return LoginStep::Failed("the client cannot ask its user to open a URL".into());
                }
                ask_to_open_urls(opened, *server, data.as_ref(), asker).await
            }
        }
    }
}

async fn ask_to_open_urls(
    opened: &OpenedClient,
    server: usize,
    data: Option<&Value>,
    asker: &dyn ClientRelay,
) -> LoginStep {
    let upstream = &opened.shared.upstreams.servers[server];
    let RequiredUrls { questions, ids } = RequiredUrls::of(data);
    if questions.is_empty() {
        return LoginStep::Failed("the server names no URL".into());
    }
    // Subscribe before the user is asked, so that no notification is missed.
    let news = upstream.news();
    let questions = questions.iter().map(|params| {
        let request = RelayedRequest {
            // The asker belongs to one call.
            call: None,
            server: upstream.name(),
            key: Some(QUESTION_KEY),
            method: ELICITATION,
            params,
        };
        asker.relay(request)
    });
    for answer in join_all(questions).await {
        match answer.map(|answer| serde_json::from_str::<Value>(answer.get()).unwrap_or_default()) {
            Ok(answer) if answer["action"] == "accept" => {}
            Ok(_) => return LoginStep::Failed("the user did not open the URL".into()),
            Err(reason) => return LoginStep::Failed(reason),
        }
    }
    // If the user needs more time, the server requires the URL again, and haft asks again.
    let _ = timeout(REPEATED_WAIT, until_completed(news, ids)).await;
    LoginStep::Repeat
}

/// The URLs that an error requires.
#[derive(Debug, Default, PartialEq, Eq)]
struct RequiredUrls {
    /// The parameters of the questions as JSON.
    questions: Vec<String>,
    ids: HashSet<String>,
}

impl RequiredUrls {
    fn of(data: Option<&Value>) -> Self {
        let listed = data.and_then(|data| data["elicitations"].as_array()).into_iter().flatten();
        let urls = listed.filter(|question| question["mode"] == "url" && question["url"].is_string());
        urls.take(URLS_MAX).fold(Self::default(), |mut required, question| {
            required.questions.push(question.to_string());
            required.ids.extend(question["elicitationId"].as_str().map(str::to_owned));
            required
        })
    }
}

/// Waits until the server has reported the end of all questions.
async fn until_completed(mut news: Receiver<ServerNews>, mut ids: HashSet<String>) {
    while !ids.is_empty() {
        match news.recv().await {
            Ok(ServerNews::UrlCompleted(id)) => drop(ids.remove(&id)),
            Ok(
                ServerNews::PromptsChanged
                | ServerNews::ResourcesChanged
                | ServerNews::ResourceUpdated(_)
                | ServerNews::Log(_),
            ) => {}
            // The missed notifications may have been the awaited ones.
            Err(RecvError::Lagged(_) | RecvError::Closed) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_questions_with_a_url_are_asked() {
        let url = json!({"mode": "url", "url": "https://a.example", "elicitationId": "e"});
        let data = json!({"elicitations": [url, {"mode": "form"}, {"mode": "url"}, 7]});
        let required = RequiredUrls::of(Some(&data));
        assert_eq!(
            (required.questions, required.ids),
            (vec![url.to_string()], HashSet::from(["e".to_owned()]))
        );
        for odd in [None, Some(&json!(7)), Some(&json!({"elicitations": {}}))] {
            assert_eq!(RequiredUrls::of(odd), RequiredUrls::default());
        }
    }
}

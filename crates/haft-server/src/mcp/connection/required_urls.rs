//! Handles the error -32042: an upstream server requires that the user opens URLs before it performs a request. The
//! protocol revision without sessions has no such error, so haft puts a question for the user into its reply. When the
//! user has opened the URLs, haft repeats the upstream request.

use std::collections::HashSet;

use futures_util::future::join_all;
use haft_core::client_relay::{ClientRelay, RelayedRequest};
use haft_tools::mcp::ServerNews;
use serde_json::Value;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::opened::OpenedClient;
use super::upstream_login::REPEATED_WAIT;
use super::user_step::StepOutcome;
use crate::mcp::questions::ELICITATION;

/// The maximum number of URLs that a server may require at once.
const URLS_MAX: usize = 16;

/// The key of the question in a reply.
const QUESTION_KEY: &str = "url";

/// Asks the user of a stateless client to open the URLs, and waits until the server reports the end.
pub(super) async fn ask_to_open_urls(
    opened: &OpenedClient,
    server: usize,
    data: Option<&Value>,
    asker: &dyn ClientRelay,
) -> StepOutcome {
    let upstream = &opened.shared.upstreams.servers[server];
    let RequiredUrls { questions, ids } = RequiredUrls::of(data);
    if questions.is_empty() {
        return StepOutcome::Failed("the server names no URL".into());
    }
    // Subscribe before the user is asked, so that no notification is missed.
    let news = upstream.news();
    let questions = questions.iter().map(|params| {
        let request = RelayedRequest {
            // The asker already belongs to one call, so the request need not name it.
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
            Ok(_) => return StepOutcome::Failed("the user did not open the URL".into()),
            Err(reason) => return StepOutcome::Failed(reason),
        }
    }
    // If the user needs more time, the server requires the URL again, and haft asks again.
    let _ = timeout(REPEATED_WAIT, until_completed(news, ids)).await;
    StepOutcome::Repeat
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

//! The steps that a user must do before an upstream server carries out a request.

use haft_core::client_relay::ClientRelay;
use haft_core::result::ToolResult;
use haft_tools::mcp::URL_REQUIRED;
use serde_json::Value;

use super::ClientConnection;
use super::opened::OpenedClient;
use super::required_urls::ask_to_open_urls;
use super::upstream_login::{LOGINS_PER_REQUEST_MAX, login_server};
use crate::mcp::era::RequestEra;
use crate::mcp::message::GatewayError;
use crate::mcp::shared_tools::SharedTools;

/// The maximum number of times that one request asks the user to open URLs. A server may require them until the user has
/// finished.
const ROUNDS_MAX: usize = 8;

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

/// The outcome of a step of the user.
#[derive(Debug)]
pub(super) enum StepOutcome {
    /// The user has finished the step, so the request can be sent again.
    Repeat,
    /// The reply, with the URL for the user.
    Reply(GatewayError),
    /// The step failed, for this reason.
    Failed(String),
    /// The client cannot ask its user to open a URL, or only the operator can do the step.
    NotOffered,
}

impl ClientConnection {
    /// Asks the user for the step that a server requires.
    pub(super) async fn request_step(
        &self,
        opened: &OpenedClient,
        step: &UserStep,
        (era, asker): (RequestEra, &dyn ClientRelay),
    ) -> StepOutcome {
        match (step, era) {
            (UserStep::Login(server), _) => self.request_login(opened, *server, (era, asker)).await,
            // The client gets the error, and later the notification that ends each question.
            (UserStep::OpenUrls(server, data), RequestEra::Handshake) => {
                let name = opened.shared.upstreams.servers[*server].name();
                self.questions.urls.add_listed(name, data.as_ref());
                StepOutcome::NotOffered
            }
            (UserStep::OpenUrls(server, data), RequestEra::Stateless(abilities)) => {
                if !abilities.url_elicitation {
                    return StepOutcome::Failed("the client cannot ask its user to open a URL".into());
                }
                ask_to_open_urls(opened, *server, data.as_ref(), asker).await
            }
        }
    }
}

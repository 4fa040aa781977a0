//! One tool over HTTP: what the model is shown of it, and how its request is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use haft_core::tool::ToolDefinition;
use http::HeaderName;
use secrecy::SecretString;

use super::client::Client;
use super::credential::Credential;
use super::guard::Reach;
use super::request::OperationPlan;
use super::templated::Templated;
use haft_core::settings::method::Method;
use haft_core::settings::rest::Streaming;

/// A tool.
#[derive(Debug)]
pub struct RestTool {
    pub definition: ToolDefinition,
    pub plan: Plan,
    pub service: Arc<Service>,
    pub expected: Expected,
    /// When the answer comes in pieces.
    pub streaming: Option<Streaming>,
    /// Which of the service's credentials its requests carry.
    pub credentials: Vec<String>,
}

impl RestTool {
    /// What its requests carry to be let in.
    pub(super) fn used_credentials(&self) -> impl Iterator<Item = &Credential> {
        self.credentials.iter().filter_map(|name| self.service.credentials.get(name))
    }
}

/// How a request is made from arguments.
#[derive(Debug)]
pub enum Plan {
    /// As the operator wrote it.
    Templated(Templated),
    /// As a description says.
    Operation(OperationPlan),
}

impl Plan {
    pub fn method(&self) -> Method {
        match self {
            Plan::Templated(templated) => templated.method,
            Plan::Operation(operation) => operation.method,
        }
    }
}

/// What the answer should be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Expected {
    #[default]
    Anything,
    /// A page for people instead means that somebody else answered: a proxy, a login.
    Json,
}

/// What tools of one service share: where requests may go, and what all of them carry.
#[derive(Debug)]
pub struct Service {
    pub headers: Vec<(HeaderName, SecretString)>,
    pub credentials: BTreeMap<String, Credential>,
    pub client: Client,
}

impl Service {
    pub fn new(
        reach: Reach,
        headers: Vec<(HeaderName, SecretString)>,
        credentials: BTreeMap<String, Credential>,
    ) -> Self {
        Self { headers, credentials, client: Client::new(reach) }
    }
}

//! One HTTP tool: its definition for the model, and the plan for building its requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use haft_core::tool::ToolDefinition;
use http::HeaderName;
use secrecy::SecretString;

use super::client::RestClient;
use super::credential::Credential;
use super::guard::AllowedHosts;
use super::request::OperationPlan;
use super::templated::RequestTemplates;
use haft_core::settings::method::Method;
use haft_core::settings::rest::StreamSettings;

/// One HTTP tool.
#[derive(Debug)]
pub struct RestTool {
    pub definition: ToolDefinition,
    pub plan: RequestPlan,
    pub service: Arc<RestService>,
    pub expected: ExpectedContent,
    /// The stream settings, if the response is a stream.
    pub streaming: Option<StreamSettings>,
    /// The names of the service's credentials that this tool uses.
    pub credentials: Vec<String>,
}

impl RestTool {
    /// Returns the credentials that are added to the requests of this tool.
    pub(super) fn used_credentials(&self) -> impl Iterator<Item = &Credential> {
        self.credentials.iter().filter_map(|name| self.service.credentials.get(name))
    }
}

/// The plan for building a request from arguments.
#[derive(Debug)]
pub enum RequestPlan {
    /// Templates that the operator wrote.
    Templated(RequestTemplates),
    /// An operation of an OpenAPI document.
    Operation(OperationPlan),
}

impl RequestPlan {
    /// Returns the scheme, host and port of the requests.
    pub(super) fn host(&self) -> String {
        let url = match self {
            RequestPlan::Templated(templated) => &templated.origin,
            RequestPlan::Operation(operation) => &operation.base,
        };
        url.origin().ascii_serialization()
    }

    pub fn method(&self) -> Method {
        match self {
            RequestPlan::Templated(templated) => templated.method,
            RequestPlan::Operation(operation) => operation.method,
        }
    }
}

/// The expected content of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExpectedContent {
    #[default]
    Anything,
    /// The response must be JSON. An HTML page instead of it does not come from the API, but from a proxy or a login
    /// page.
    Json,
}

/// The parts that all tools of one service share: the client with its allowed hosts, headers and credentials.
#[derive(Debug)]
pub struct RestService {
    pub headers: Vec<(HeaderName, SecretString)>,
    pub credentials: BTreeMap<String, Credential>,
    pub client: RestClient,
}

impl RestService {
    pub fn new(
        reach: AllowedHosts,
        headers: Vec<(HeaderName, SecretString)>,
        credentials: BTreeMap<String, Credential>,
    ) -> Self {
        Self { headers, credentials, client: RestClient::new(reach) }
    }
}

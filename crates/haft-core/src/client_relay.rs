//! Requests from an MCP server that haft, as a gateway, passes on to its own client.

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use crate::approval::ApprovalId;
use crate::tool::CallId;

/// Passes a server's requests to the MCP client whose call caused the requests, and to no other client.
pub trait ClientRelay: Send + Sync {
    /// Passes the request to the client and returns the client's result as JSON. On error the server gets the error
    /// text. Dropping the future withdraws the request.
    fn relay<'a>(&'a self, request: RelayedRequest<'a>) -> BoxFuture<'a, Result<Box<RawValue>, String>>;

    /// Passes a log record of the server to the client, if the client wants records of this level. Does not wait.
    fn log(&self, record: RelayedLog<'_>);

    /// Returns the least severe level of log records that the client requests for this call, such as `warning`. `None`
    /// if it requests none; a server without sessions then sends none.
    fn log_level(&self, call: &CallId) -> Option<&'static str>;
}

/// The requests that the client behind a relay can answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelayAbilities {
    /// The client can show a form to its user.
    pub forms: bool,
}

/// A log record that is passed from a server to a client.
#[derive(Debug, Clone, Copy)]
pub struct RelayedLog<'a> {
    /// The call during which the server wrote the record.
    pub call: &'a CallId,
    /// The severity, such as `warning`.
    pub level: &'a str,
    /// The parameters of the notification as JSON, without secrets.
    pub params: &'a str,
}

/// A request that is passed from a server to a client.
#[derive(Debug, Clone, Copy)]
pub struct RelayedRequest<'a> {
    /// The call on whose behalf the server asks. The client gets the request only through this call. `None` for a
    /// request outside of calls.
    pub call: Option<ApprovalId>,
    /// The server name, for the user of the client.
    pub server: &'a str,
    /// The server's key for this request, if it sends several requests at once.
    pub key: Option<&'a str>,
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: &'a str,
    /// The parameters exactly as the server sent them: a JSON object.
    pub params: &'a str,
}

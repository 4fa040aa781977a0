//! Requests of an MCP server that the client of a gateway answers.

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

/// Passes requests to the MCP client that made a call, and to no other.
pub trait ClientRelay: Send + Sync {
    /// Returns the client's result as JSON. The server gets the error text. Dropping the future withdraws the request.
    fn relay<'a>(&'a self, request: RelayedRequest<'a>) -> BoxFuture<'a, Result<Box<RawValue>, String>>;
}

/// A request on its way from a server to a client.
#[derive(Debug, Clone, Copy)]
pub struct RelayedRequest<'a> {
    /// The name of the server, for the user of the client.
    pub server: &'a str,
    /// The server's own name of the request among several that it sends at once.
    pub key: Option<&'a str>,
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: &'a str,
    /// The parameters as the server sent them, a JSON object.
    pub params: &'a str,
}

//! Questions that an MCP server puts to a person.

use futures_util::future::BoxFuture;
use serde_json::Value;

/// Asks a person on behalf of a server. An interface implements it: a terminal, a browser.
pub trait Elicitor: Send + Sync {
    /// `request` is the server's own: `message` for the person, `requestedSchema` for the answer, or a `url`. Dropping the
    /// future withdraws the question.
    fn elicit<'a>(&'a self, server: &'a str, request: Value) -> BoxFuture<'a, ElicitationAnswer>;
}

/// The person's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitationAnswer {
    /// The answer, in the form of the server's `requestedSchema`.
    Accepted(Value),
    /// The person refused to answer.
    Declined,
    /// The person dismissed the question, or the call ended before an answer.
    Cancelled,
}

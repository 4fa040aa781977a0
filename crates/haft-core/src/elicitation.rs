//! Elicitation: questions that an MCP server asks a person.

use futures_util::future::BoxFuture;
use serde_json::Value;

/// Asks a person on behalf of an MCP server. A user interface such as a terminal or a browser implements this trait.
pub trait Elicitor: Send + Sync {
    /// Asks the person and returns the answer. `request` is the server's request: it has a `message` for the person,
    /// and either a `requestedSchema` for the answer or a `url`. Dropping the future withdraws the question.
    fn elicit<'a>(&'a self, server: &'a str, request: Value) -> BoxFuture<'a, ElicitationAnswer>;
}

/// The person's answer to the question of an MCP server.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitationAnswer {
    /// The answer, in the form of the server's `requestedSchema`.
    Accepted(Value),
    /// The person refused to answer.
    Declined,
    /// The person dismissed the question, or the call ended before an answer.
    Cancelled,
}

//! The server over real sockets, with a scripted model behind it and real clients in front.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a failed test")]

// A home, a model server, keys and a server on a port of its own.
mod fixture;

// Keys, hosts, origins, content types, request ids and the list of models.
mod access;

// Limits of keys, failed logins, the access log and metrics.
mod limits;

// Access tokens of an issuer beside API keys.
mod tokens;

// An MCP server over HTTP that counts its calls.
mod tool_server;

// Calls that wait for the approval of the client.
mod approvals;

// Agent clients of other makers.
mod clients;

// Responses that are not stored: what is left of them, and how they go on.
mod stateless;

// MCP servers that a request names by `server_url`.
mod requested_servers;

// Servers that stop or are killed, and start again.
mod restart;

// Responses: whole, streamed, stored and continued, with the official client and plain HTTP.
mod responses;

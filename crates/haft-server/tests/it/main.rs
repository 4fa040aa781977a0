//! The server over real sockets, with a scripted model behind it and real clients in front.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a failed test")]

// A home directory, a model server, keys, and a haft server on its own port.
mod fixture;

// Keys, hosts, origins, content types, request ids and the model list.
mod access;

// Web pages of other sites.
mod cors;

// A server that requires no keys.
mod no_auth;

// Key limits, failed logins, the access log and metrics.
mod limits;

// The queue of all runs.
mod queue;

// Access tokens from an issuer, in addition to API keys.
mod tokens;

// An MCP server over HTTP that counts its calls.
mod tool_server;

// The tools of a request: names of MCP servers, tool choices, and tools of the server.
mod request_tools;

// Responses of several turns: limits, a full context, calls of client and server, and the choice of the model.
mod turns;

// Calls that wait for the client's approval.
mod approvals;

// Parts of a reply other than plain text: refusals, reasoning summaries and citations.
mod reply_parts;

// Items of tools that other servers ran.
mod hosted_items;

// Input that a client sends over a WebSocket while a response is in progress.
mod steer;

// WebSocket connections: pings, age, warm-up and stream ids.
mod websocket;

// The native API below `/api/v1`.
mod native;

// Approval requests that wait: expiry, metrics and the webhook.
mod pending_approvals;

// Agent clients of other vendors.
mod clients;

// Responses that are not stored: no data is left on the disk, and clients continue them with encrypted items.
mod stateless;

// Calls of responses that are not stored, which wait for the client's approval.
mod stateless_approvals;

// MCP servers that a request names by `server_url`.
mod requested_servers;

// Many streams whose clients do not read them.
mod streams;

// Requests and streams that could use up the memory of a server, which runs in a process of its own.
mod memory;

// Clients that stop reading, over HTTP/1.1, TLS, HTTP/2 and WebSockets.
mod unread_replies;

// Clients that disconnect before their response ends.
mod disconnects;

// Servers that stop or are killed, and start again.
mod restart;

// Responses that the server cannot store.
mod store_failures;
// Clients that send a request again after their connection was cut.
mod retries;

// The rules of the Open Responses specification and of the SDKs, for all objects and streams of the tests.
mod open_responses;

// The systemd unit of the documentation.
mod systemd_unit;

// The server behind nginx and Caddy.
mod proxies;

// Responses: whole, streamed, stored and continued, with the official client and plain HTTP.
mod responses;

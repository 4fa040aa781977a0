//! Tests of the HTTP client and the formats against the scripted server.

/// Recording and replaying.
mod cassette;
/// Shared helpers.
mod client;
/// Failing requests and replies, and their retries.
mod failures;
/// Every combination of settings, to every family of models.
mod families;
/// Every scenario in every format, streamed and whole.
mod grid;
/// Accounts, prices, headers, model lists and fallbacks.
mod providers;
/// Models without native tool calls.
mod tool_calling;
/// HTTP versions, shared connections and TLS trust.
mod versions;

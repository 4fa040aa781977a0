//! Tests of the HTTP client and the formats against the scripted server.

/// Tests of recording and replaying.
mod cassette;
/// Helpers for the other files.
mod client;
/// Failing requests and replies, and their retries.
mod failures;
/// Every combination of settings, for every model family.
mod families;
/// Every scenario in every format, streamed and as a whole.
mod grid;
/// Usage figures, prices, headers, model lists and fallbacks.
mod providers;
/// Models without native tool calls.
mod tool_calling;
/// HTTP versions, shared connections and TLS trust.
mod versions;

//! The HTTP client, the formats and the scripted server together.

/// What these tests share.
mod asker;
/// What was said, recorded and said again.
mod cassette;
/// Requests and replies that go wrong, and what is tried about it.
mod failures;
/// Every scenario in every format, streamed and whole.
mod grid;
/// Accounts, prices, headers, lists of models, fallbacks.
mod providers;
/// Models that cannot call tools.
mod tool_calling;
/// Versions of HTTP, connections that are shared, and whom is trusted.
mod versions;

//! What callers of the wire formats rely on, one file per capability.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what tests share lies outside of test functions")]

/// The formats, the requests and the files that these tests share; no tests of its own.
mod fixture;

/// Words that one provider or model accepts and another refuses.
mod accepted;
/// Bytes that no provider should send.
mod garbage;
/// Requests as they are sent, byte for byte, one file per case and format.
mod golden;
/// The HTTP client and all that stands on it, against the scripted model server.
mod http;

/// Conversations begun on one format and continued on another.
mod handover;
/// What was sent once is never encoded again.
mod prefix;
/// Replies as providers send them, whole and in pieces of any size: the scenarios × formats grid.
mod replies;
/// What a model said goes back to it as it was.
mod round_trip;
/// Schemas in the grammars of providers.
mod schemas;
/// Whole runs against the scripted model server, which reads the providers' documents on its own.
mod server;
/// Nothing a request holds is dropped in silence.
mod unsaid;

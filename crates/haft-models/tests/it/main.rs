//! Integration tests of the wire formats, one file per capability.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are outside of test functions")]

/// Formats, requests and files that these tests share. Contains no tests.
mod fixture;

/// Request fields that one provider or model accepts and another rejects.
mod accepted;
/// Bytes that no provider should send.
mod garbage;
/// Requests as they are sent, byte for byte, with one file per case and format.
mod golden;
/// The HTTP client and everything built on it, tested with the scripted model server.
mod http;

/// Conversations that start in one format and continue in another.
mod handover;
/// Replies with far more calls than a run makes.
mod many_calls;
/// Each message is encoded only once.
mod prefix;
/// Replies as providers send them, whole and in chunks of any size: the grid of scenarios and formats.
mod replies;
/// A model's reply is sent back to it unchanged.
mod round_trip;
/// Schemas in the schema languages of providers.
mod schemas;
/// Every field of a request is in the request types of the official SDKs.
mod sdk_types;
/// Whole runs against the scripted model server, which implements the providers' documentation independently.
mod server;
/// No feature of a request is dropped silently.
mod unsupported_features;

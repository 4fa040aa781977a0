//! The scripted model server as its users meet it: over real connections, through the providers' own SDKs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a fixture that fails is a failed test"
)]

// The official SDKs of the providers complete their work with it.
mod sdk;
// Which step answers: turns, runs at the same time, strict order.
mod conversation;
// The frames of a stream, in the order that each provider documents.
mod frames;
// What goes wrong on the wire, and what the server notes of it.
mod wire;
// What a provider refuses.
mod refusal;
// The example of the README.
mod readme;
// Connections to the server, byte by byte.
mod connection;

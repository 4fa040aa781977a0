//! Integration tests of the scripted model server, over real connections and through the providers' own SDKs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed fixture must fail the test"
)]

// The providers' official SDKs work with the server.
mod sdk;
// The choice of steps: by turns, in concurrent runs, in strict order.
mod conversation;
// The order of stream frames, as each provider documents it.
mod frames;
// Faults on the connection, and the outcomes that the server records.
mod wire;
// Requests that a provider rejects.
mod refusal;
// The example in the README.
mod readme;
// Raw connections to the server.
mod connection;

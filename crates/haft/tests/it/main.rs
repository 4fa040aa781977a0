//! The library as its users have it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a failed test")]

// Every example runs and prints its answer.
mod examples;

// An embedder compiles no command line, no OTLP, no keyring, no vocabulary and no scripted server.
mod crate_graph;

//! Tests of the library from the view of its users.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a failed test")]

// Every example runs and prints its answer.
mod examples;

// A program that embeds haft compiles no command-line parser, no OTLP, no keyring, no vocabulary and no scripted
// server.
mod crate_graph;

//! Tests of the runtime as a Rust program uses it: real runs against a scripted model server, with tools of the
//! program.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a failed test")]

// A home directory, a model server, tools that count their calls, and runtimes that use them.
mod fixture;

// Start, events, cancel, attach, list, idempotency keys, reload.
mod life;

// Runs that wait for approvals, for the caller's functions or for secrets, including across a restart.
mod parking;

// Remembered approvals: stored when given, bound to principal and workspace, listed and revoked.
mod grants;

// Equal runs that share a prepared agent and its servers.
mod shared_agents;

// Two principals in one runtime cannot see each other's data.
mod principals;

// Specs, journals and stores that are damaged, missing or of another version.
mod bad_input;

// Cached outputs that several runtimes share through their stores.
mod shared_cache;

// All parsers of untrusted input, with the corpora of the fuzz targets and mutations of them.
mod seeded;

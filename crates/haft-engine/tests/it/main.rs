//! What callers of the engine rely on, one file per capability.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what tests share lies outside of test functions")]

/// Providers, sinks and calls made up for these tests; no tests of its own.
mod fake;

/// Arguments that are not JSON, not complete or not what the schema asks for.
mod arguments;
/// What is put on record of a call, and that nothing said is among it.
mod audit;
/// Rules, the answers of a person, and the runs that an answer holds for.
mod authority;
/// Providers that panic, hang, fail, say too much, or list too many tools.
mod bad_providers;
/// What a run's context still holds, and outputs that do not fit it.
mod budget;
/// Equal calls that are not made again.
mod cache;
/// Dropping a call: what is told and what is undone.
mod cancellation;
/// Lists of tools that change, and making providers ready.
mod changes;
/// What is kept of runs, and runs of which nothing can be kept.
mod chronicle;
/// Runs that are driven to their end.
mod drive;
/// Who is told what, and what stands on the receipt.
mod events;
/// Cutting output that is too large.
mod fit;
/// Which tools are active, and which a request is about.
mod groups;
/// From written names to tools, and what is said about names that mean none.
mod names;
/// Which calls of a turn run at the same time.
mod order;
/// Providers that panic.
mod panics;
/// Tools the operator does not allow.
mod policy;
/// Structured output, held against what the tool promises.
mod promise;
/// How many calls run at once, who is next, and who waits no longer.
mod queue;
/// Random calls, cancels, timeouts and panics over virtual time, and what holds whatever happens.
mod simulation;
/// Outputs that are stored instead of shown, and the runs that can read them.
mod stored;
/// Calls that take too long, with and without partial output, and the limits that end them.
mod timeout;

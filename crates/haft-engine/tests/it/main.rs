//! Tests of the behaviour that callers of the engine rely on, one file per capability.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the lints ignore test functions, but not the helpers that tests share"
)]

/// Shared providers, sinks and calls; no tests.
mod fake;

/// Arguments that are not JSON, incomplete, or against the schema.
mod arguments;
/// The audit record of a call, which contains no content.
mod audit;
/// Permission rules, user approvals, and the runs that an approval covers.
mod authority;
/// Providers that panic, hang, fail, return too much, or list too many tools.
mod bad_providers;
/// The context budget of a run, and outputs that do not fit.
mod budget;
/// Cached outputs and equal concurrent calls.
mod cache;
/// Cached outputs that several processes share through a store.
mod cache_store;
/// Dropped calls: their events and their cleanup.
mod cancellation;
/// Changing tool lists, and the warm-up of providers.
mod changes;
/// Structured output and its schema.
mod check_output;
/// Compaction of a conversation outside a run.
mod compact;
/// Runs from start to end.
mod drive;
/// Events and receipts.
mod events;
/// Truncation of outputs that are too large.
mod fit;
/// Active tools, and the tools that a request selects.
mod groups;
/// Journals of runs, and runs with a failing journal.
mod journal;
/// Name resolution, and the errors for unknown names.
mod names;
/// The calls of a turn that run concurrently.
mod order;
/// Providers that panic.
mod panics;
/// Tools that the operator denies.
mod policy;
/// Concurrency limits, queue order and cancelled waits.
mod queue;
/// Random calls, cancellations, timeouts and panics on a virtual clock, with invariants over all of them.
mod simulation;
/// Stored outputs, and the runs that can read them.
mod stored;
/// Calls that time out, with and without partial output, and the limits that apply.
mod timeout;
/// Searches for hidden tools.
mod tool_search;
/// Calls after a run has read untrusted text.
mod untrusted;

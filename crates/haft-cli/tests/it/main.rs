//! End-to-end tests of the product: the real binary, the real sandbox, real programs inside it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a failed test")]

// Ways out of the sandbox, one test per attempt.
mod escape;
// Ordinary work that must succeed inside the sandbox.
mod ordinary;
// The user's home directory as the workspace.
mod home_workspace;
// The remaining guarantees on a kernel with fewer features.
mod degraded;
// Processes of commands: none outlives its call.
mod processes;
// Limits on the resources of a command.
mod limits;
// `haft call` and the built-in tools.
mod call;
// The file tools with unexpected objects and changing files.
mod files;
// `haft run` and `haft demo`: models, tools, limits and endings.
mod run;
// Standard input together with a request.
mod piped;
// Instruction files of a project, and images.
mod instructions;
// The terminal screen of a run, checked character by character.
mod screen;
// Final reports in every format, submitted in every way.
mod reports;
// Ctrl-C at every point of a run.
mod interrupt;
// Replays of recorded runs.
mod replay;
// Sessions: runs that are killed, resumed and inspected.
mod sessions;
// Compaction: long runs that do not fill the context.
mod compaction;
// Agents that use agents: sub-agents, routers, shared budgets, and the keys of an agent file.
mod agents;
// Budgets that must be enforced: unknown prices, models that never stop, providers that report no usage.
mod spending;
// `haft ask` and the other commands about models.
mod ask;
// Claude Code as a model.
mod claude_code;
// Third-party schemas, converted for every provider.
mod schemas;
// Tools that a run hides behind a search.
mod tool_search;
// `haft tools search`.
mod tools_search;
// `haft serve` and `haft keys`.
mod serve;
// The files of commands in `haft serve`: workspaces, `/tmp` and their limits.
mod serve_workspaces;
// Responses of `haft serve` that end while a command runs.
mod serve_cancel;
// Key limits for the agents that MCP clients call.
mod serve_limits;
// The stored data of `haft serve`: limits, backups, and the data of one principal.
mod serve_storage;
// `haft call --stdin`.
mod stream;
// Tools of MCP servers, both well-behaved and misbehaving.
mod mcp;
// `haft mcp serve`: all tools as one MCP server.
mod gateway;
// `haft.lock`: tools that change after the user accepted them.
mod lock;
// `SKILL.md` files: found, checked, trusted.
mod skills;
// Configuration, trust, rules, stored outputs and usage records, as an operator uses them.
mod governed;
// Texts that tell a model to do harm, and the calls that the model then makes.
mod injection;
// Remembered approvals: given at a terminal, listed, explained and revoked.
mod approvals;
// Observability of calls: operation tree, log lines, usage records.
mod watching;
// Spans, sent to a real collector.
mod telemetry;
// Secrets that must not appear in any output, log or file.
mod canary;
// Secrets that must not appear in the error replies, files and metrics of `haft serve`.
mod serve_canary;
// Compressed replies that would fill the memory, from servers of every kind.
mod bombs;
// Deep, long and invalid JSON from models and servers.
mod hostile_json;
// Other processes of the same user, which must not read the memory of haft.
mod inspection;
// Outputs that are too large or binary: stored, queried, retrieved.
mod outputs;
// Tables of all commands on a narrow terminal.
mod tables;
// The command line itself: help, exit codes, doctor, tools, completions.
mod cli;
// The library, embedded in another program.
mod library;
// The errors on the troubleshooting page, each reproduced.
mod troubleshooting;
// Every command in the documentation.
mod docs;
// HTTP tools: a real server with its own OpenAPI document, and misbehaving servers.
mod rest;

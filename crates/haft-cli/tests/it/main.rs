//! The product as its users meet it: the real binary, the real sandbox, real programs inside it.

// Ways out of the sandbox, one test per attempt.
mod escape;
// What must go on working inside it.
mod ordinary;
// What is promised when the kernel gives less.
mod degraded;
// Processes: nothing outlives its call.
mod processes;
// Limits on what a command uses up.
mod limits;
// `haft call` and the built-in tools.
mod call;
// The file tools at their worst.
mod files;
// `haft run` and `haft demo`: models, tools, limits and endings.
mod run;
// What a person sees of a run: the screen of a terminal, character by character.
mod screen;
// Final reports in every format, however they are given.
mod reports;
// Ctrl-C at every moment of a run.
mod interrupt;
// Recorded runs, seen again.
mod replay;
// Sessions: runs that are killed, go on, and are looked at.
mod sessions;
// Agents that use agents: sub-agents, routers, budgets of the tree, the keys of an agent's file.
mod agents;
// `haft ask` and the other commands about models.
mod ask;
// Claude Code as a model.
mod claude_code;
// Schemas that others wrote, in every provider's grammar.
mod schemas;
// `haft call --stdin`.
mod stream;
// Tools of MCP servers, good ones and bad ones.
mod mcp;
// `SKILL.md` files: found, checked, trusted.
mod skills;
// Configuration, trust, rules, stored outputs and accounting, as an operator meets them.
mod governed;
// What is seen of calls from outside: op tree, log lines, accounting.
mod watching;
// Spans, with a real collector at the other end.
mod telemetry;
// Secrets that must not turn up in any of it.
mod canary;
// Outputs that are too large, or no text: kept, asked about, got back.
mod outputs;
// The command line itself: help, exit codes, doctor, tools, completions.
mod cli;
// The library, embedded in another program.
mod library;
// The headings of the troubleshooting page, each brought about.
mod troubleshooting;
// Every command shown in the documents is run.
mod docs;
// Tools over HTTP: a real server with its own description, and servers at their worst.
mod rest;

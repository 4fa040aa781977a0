//! The defaults of keys that no file sets. The schema, the documentation and the resolved configuration all use this
//! list.

/// The default timeout of a tool call.
pub(super) const TOOL_TIMEOUT_MS: u64 = 300_000;
/// The maximum size of an output that a model gets in full, in bytes. haft stores a larger output and shows a part of
/// it.
pub(super) const TOOL_RESPONSE_BYTES_MAX: u64 = 12_288;
/// The maximum number of concurrent calls in a queue. A queue exists to limit calls, so its default is one.
pub(super) const QUEUE_CONCURRENT: u64 = 1;
pub(super) const QUEUE_WAITING_MAX: u64 = 1000;
/// The maximum number of runs in progress in `haft serve`. Most of the time a run waits for a model, so this is far
/// above the number of processors.
pub(crate) const SERVE_RUNS_MAX: u64 = 256;
pub(crate) const SERVE_WAITING_RUNS_MAX: u64 = 1000;
/// The maximum number of connections that are open in `haft serve` at the same time.
pub(crate) const SERVE_CONNECTIONS_MAX: u64 = 1024;
/// The time without progress after which `haft serve` closes the connection of a client that does not read. nginx has
/// the same default (`send_timeout`).
pub(crate) const SERVE_SEND_TIMEOUT_MS: u64 = 60 * 1000;
/// The time in which an approval request can be answered.
pub(crate) const SERVE_APPROVAL_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1000;
pub(super) const CACHE_ENTRIES_MAX: u64 = 5000;
/// The maximum number of servers that start at the same time. Each start puts load on the machine, so too many starts
/// at once are slower than a few.
pub(super) const MCP_STARTS_MAX: u64 = 16;
/// The maximum time that a run waits for a server whose tools are not known yet. Most local servers start faster.
pub(super) const MCP_READY_WAIT_MS: u64 = 2_000;
/// The maximum time that a request waits for a reply or for progress.
pub(super) const MCP_REQUEST_TIMEOUT_MS: u64 = 60_000;
/// The maximum time until a server is ready, including the download of its package.
pub(super) const MCP_STARTUP_TIMEOUT_MS: u64 = 120_000;
/// The default maximum length of a reply that a model writes for a server, in tokens.
pub(super) const MCP_SAMPLING_OUTPUT_TOKENS_MAX: u32 = 1024;
/// The default maximum number of model requests that a server may make during one call. The operator should review a
/// server that needs more.
pub(super) const MCP_SAMPLING_REQUESTS_MAX: u32 = 8;
pub(super) const CACHE_BYTES_MAX: u64 = 64 << 20;
/// The maximum number of chunks up to which the mode `auto` returns a stored output in full. Of a longer output, `auto`
/// returns only the beginning and the end.
pub(super) const OUTPUT_CHUNKS_MAX: u64 = 1;
pub(super) const OUTPUT_OVERLAP_PERCENT: u64 = 10;
pub(super) const OUTPUT_AVG_LINE_BYTES: u64 = 1000;
pub(super) const STORE_OUTPUT_BYTES_MAX: u64 = 16 << 20;
pub(super) const STORE_TOTAL_BYTES_MAX: u64 = 1 << 30;
pub(super) const STORE_KEEP_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// [`CompactionRules::AT_PERCENT_DEFAULT`](haft_core::compaction::CompactionRules), in the notation of the
/// configuration file.
pub(super) const COMPACTION_AT: &str = "85%";
pub(super) const SESSION_BYTES_MAX: u64 = 256 << 20;
pub(super) const SESSION_KEEP_MS: u64 = 30 * 24 * 60 * 60 * 1000;
/// The maximum size of a workspace of the server, in bytes.
pub(super) const WORKSPACE_BYTES_MAX: u64 = 1 << 30;
pub(super) const WORKSPACE_KEEP_MS: u64 = 30 * 24 * 60 * 60 * 1000;
pub(super) const RETENTION_KEEP_MS: u64 = 30 * 24 * 60 * 60 * 1000;
pub(super) const RETENTION_RESPONSES_MAX: u64 = 100_000;
pub(super) const RETENTION_BYTES_MAX: u64 = 10 << 30;
/// The maximum disk space that the data of a tenant may take, in bytes.
pub(super) const TENANT_BYTES_MAX: u64 = 50 << 30;
/// The percentage of the disk that must stay free.
pub(super) const FREE_DISK_PERCENT_MIN: u64 = 5;

pub(super) const TOOLS_PER_PROVIDER_MAX: u64 = 10_000;
pub(super) const WARMUP_TIMEOUT_MS: u64 = 30_000;
/// The timeouts of model requests. The first byte may take long, because a local model may have to be loaded.
pub(super) const CONNECT_TIMEOUT_MS: u64 = 10_000;
pub(super) const FIRST_BYTE_TIMEOUT_MS: u64 = 300_000;
pub(super) const CHUNK_TIMEOUT_MS: u64 = 120_000;
pub(super) const REQUEST_TIMEOUT_MS: u64 = 3_600_000;
pub(super) const ATTEMPTS_MAX: u32 = 4;
pub(super) const RETRY_AFTER_MAX_MS: u64 = 120_000;

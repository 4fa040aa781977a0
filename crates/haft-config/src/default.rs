//! The defaults of keys that no file sets. The schema, the document and the resolved configuration all read this list.

/// The longest time that a call may take.
pub(super) const TOOL_TIMEOUT_MS: u64 = 300_000;
/// The part of an output that a model sees before the rest is stored, in bytes.
pub(super) const TOOL_RESPONSE_BYTES_MAX: u64 = 12_288;
/// A queue exists to hold calls back, so it runs one at a time by default.
pub(super) const QUEUE_CONCURRENT: u64 = 1;
pub(super) const QUEUE_WAITING_MAX: u64 = 1000;
pub(super) const CACHE_ENTRIES_MAX: u64 = 5000;
/// Starting a server is work for the machine; too many at once are slower than a few.
pub(super) const MCP_STARTS_MAX: u64 = 16;
/// The longest time that a run waits for a server whose tools are not known yet. Most local servers start in less.
pub(super) const MCP_READY_WAIT_MS: u64 = 2_000;
/// The longest time without a reply or progress for a request.
pub(super) const MCP_REQUEST_TIMEOUT_MS: u64 = 60_000;
/// Includes the time to download a package before the server runs.
pub(super) const MCP_STARTUP_TIMEOUT_MS: u64 = 120_000;
/// The longest reply that a model writes for a server by default.
pub(super) const MCP_SAMPLING_OUTPUT_TOKENS_MAX: u32 = 1024;
/// A call that needs a model more often than this deserves a look.
pub(super) const MCP_SAMPLING_REQUESTS_MAX: u32 = 8;
pub(super) const CACHE_BYTES_MAX: u64 = 64 << 20;
/// The number of pieces up to which `auto` returns a stored output whole; beyond it, only the beginning and the end.
pub(super) const OUTPUT_CHUNKS_MAX: u64 = 1;
pub(super) const OUTPUT_OVERLAP_PERCENT: u64 = 10;
pub(super) const OUTPUT_AVG_LINE_BYTES: u64 = 1000;
pub(super) const STORE_OUTPUT_BYTES_MAX: u64 = 16 << 20;
pub(super) const STORE_TOTAL_BYTES_MAX: u64 = 1 << 30;
pub(super) const STORE_KEEP_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// [`CompactionRules::AT_PERCENT_DEFAULT`](haft_core::compaction::CompactionRules), as it is written.
pub(super) const COMPACTION_AT: &str = "85%";
pub(super) const SESSION_BYTES_MAX: u64 = 256 << 20;
pub(super) const SESSION_KEEP_MS: u64 = 30 * 24 * 60 * 60 * 1000;

pub(super) const TOOLS_PER_PROVIDER_MAX: u64 = 10_000;
pub(super) const WARMUP_TIMEOUT_MS: u64 = 30_000;
/// The timeouts of model requests. The first byte may have to wait until a local model is loaded.
pub(super) const CONNECT_TIMEOUT_MS: u64 = 10_000;
pub(super) const FIRST_BYTE_TIMEOUT_MS: u64 = 300_000;
pub(super) const CHUNK_TIMEOUT_MS: u64 = 120_000;
pub(super) const REQUEST_TIMEOUT_MS: u64 = 3_600_000;
pub(super) const ATTEMPTS_MAX: u32 = 4;
pub(super) const RETRY_AFTER_MAX_MS: u64 = 120_000;

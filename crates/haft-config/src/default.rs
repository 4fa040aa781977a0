//! What holds when no file says anything. The schema, the document and the resolved configuration all read this list.

/// How long a call may take.
pub(super) const TOOL_TIMEOUT_MS: u64 = 300_000;
/// What of an output a model is shown before the rest is stored.
pub(super) const TOOL_RESPONSE_BYTES_MAX: u64 = 12_288;
/// A queue exists to hold calls back, so it lets one through at a time until told otherwise.
pub(super) const QUEUE_CONCURRENT: u64 = 1;
pub(super) const QUEUE_WAITING_MAX: u64 = 1000;
pub(super) const CACHE_ENTRIES_MAX: u64 = 5000;
/// Starting a server is work for the machine; too many at once are slower than a few.
pub(super) const MCP_INIT_CONCURRENCY: u64 = 16;
/// How long a server may be silent about a request.
pub(super) const MCP_REQUEST_TIMEOUT_MS: u64 = 60_000;
/// A package may have to be downloaded before a server runs.
pub(super) const MCP_STARTUP_TIMEOUT_MS: u64 = 120_000;
/// What a model writes for a server at most, unless told otherwise.
pub(super) const MCP_SAMPLING_OUTPUT_TOKENS_MAX: u32 = 1024;
/// A call that needs a model more often than this is worth a look.
pub(super) const MCP_SAMPLING_REQUESTS_MAX: u32 = 8;
pub(super) const CACHE_BYTES_MAX: u64 = 64 << 20;
/// As many pieces of a stored output as `auto` gives before it gives only the beginning and the end.
pub(super) const OUTPUT_CHUNKS_MAX: u64 = 1;
pub(super) const OUTPUT_OVERLAP_PERCENT: u64 = 10;
pub(super) const OUTPUT_AVG_LINE_BYTES: u64 = 1000;
pub(super) const STORE_OUTPUT_BYTES_MAX: u64 = 16 << 20;
pub(super) const STORE_TOTAL_BYTES_MAX: u64 = 1 << 30;
pub(super) const STORE_KEEP_MS: u64 = 7 * 24 * 60 * 60 * 1000;
pub(super) const SESSION_BYTES_MAX: u64 = 256 << 20;
pub(super) const SESSION_KEEP_MS: u64 = 30 * 24 * 60 * 60 * 1000;

pub(super) const TOOLS_PER_PROVIDER_MAX: u64 = 10_000;
pub(super) const WARMUP_TIMEOUT_MS: u64 = 30_000;
/// The times of requests to models. The first byte may wait for a local model to be loaded.
pub(super) const CONNECT_TIMEOUT_MS: u64 = 10_000;
pub(super) const FIRST_BYTE_TIMEOUT_MS: u64 = 300_000;
pub(super) const CHUNK_TIMEOUT_MS: u64 = 120_000;
pub(super) const REQUEST_TIMEOUT_MS: u64 = 3_600_000;
pub(super) const ATTEMPTS_MAX: u32 = 4;
pub(super) const RETRY_AFTER_MAX_MS: u64 = 120_000;

//! The trait of stores that hold accounting: calls and requests to models that ended, with their outcome and cost.

use futures_util::future::BoxFuture;

use crate::event_log::EventEnvelope;
use crate::output_store::StoreError;

/// Keeps accounting lines and sums them up. The tenant comes first in every key, so that no query can reach another
/// tenant's lines.
pub trait AccountingStore: Send + Sync {
    /// Appends all lines, or none after an error, so that the caller can append them again. The lines may be lost with
    /// the machine, not with the process.
    fn append<'a>(
        &'a self,
        tenant: &'a str,
        lines: &'a [AccountingLine],
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Sums up the lines of a tenant since a moment, in milliseconds since 1970.
    fn summarize<'a>(
        &'a self,
        tenant: &'a str,
        since_ms: u64,
    ) -> BoxFuture<'a, Result<AccountingSummary, StoreError>>;
}

/// One line of accounting.
#[derive(Debug, Clone, PartialEq)]
pub enum AccountingLine {
    /// `tool_finished` or `model_finished`, with the audit fields and without content.
    Event(Box<EventEnvelope>),
    /// A gap before the next line: more lines waited for a failing store than its writer keeps.
    Lost {
        /// The time at which the gap was found, in milliseconds since 1970.
        at_ms: u64,
        /// The number of lost lines.
        lines: u64,
    },
}

/// Sums over all lines since a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountingSummary {
    /// The most called first.
    pub tools: Vec<ToolStats>,
    /// The dearest first.
    pub models: Vec<ModelStats>,
    /// Lines that are not records, such as one that a crash cut off.
    pub unreadable_lines: u64,
    /// Records that could not be written, for example because the disk was full.
    pub lost_lines: u64,
}

/// The sums of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolStats {
    /// The exposed name.
    pub tool: String,
    /// All calls, also those that were refused.
    pub calls: u64,
    /// The calls that failed.
    pub errors: u64,
    /// The calls that the cache answered.
    pub cache_hits: u64,
    /// The bytes of all outputs.
    pub bytes_out: u64,
    /// The median latency of the calls that reached the tool.
    pub latency_p50_ms: u64,
    /// The latency that one of twenty such calls exceeds.
    pub latency_p95_ms: u64,
}

/// The sums of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelStats {
    /// `provider/model`
    pub model: String,
    /// All requests, also those that failed.
    pub attempts: u64,
    /// The requests that failed.
    pub errors: u64,
    /// The tokens of all requests.
    pub input_tokens: u64,
    /// The tokens of all replies.
    pub output_tokens: u64,
    /// The input tokens that the provider read from its cache.
    pub cache_read_tokens: u64,
    /// Billionths of a US dollar.
    pub cost_nano_usd: u64,
    /// Attempts that used tokens without a known price; the cost is without them.
    pub without_price: u64,
}

//! The trait of stores that hold usage records (accounting): finished tool calls and model requests, with outcome and
//! cost.

use futures_util::future::BoxFuture;

use crate::event_log::EventEnvelope;
use crate::output_store::StoreError;

/// Stores usage records and sums them up. The tenant comes first in every key, so that no query can reach another
/// tenant's records.
pub trait AccountingStore: Send + Sync {
    /// Appends all lines. After an error no line is stored, so the caller can append all of them again. A crash of the
    /// machine may lose stored lines; a crash of the process does not.
    fn append<'a>(
        &'a self,
        tenant: &'a str,
        lines: &'a [AccountingLine],
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Sums up the lines of a tenant since a given time, which is in milliseconds since 1970.
    fn summarize<'a>(
        &'a self,
        tenant: &'a str,
        since_ms: u64,
    ) -> BoxFuture<'a, Result<AccountingSummary, StoreError>>;
}

/// One line of accounting: a usage record, or a note that records were lost.
#[derive(Debug, Clone, PartialEq)]
pub enum AccountingLine {
    /// A `tool_finished` or `model_finished` event, with the audit fields and without content.
    Event(Box<EventEnvelope>),
    /// Records before the next line were lost, because the store failed and the writer keeps only a limited number of
    /// unwritten records in memory.
    Lost {
        /// The time at which the loss was recorded, in milliseconds since 1970.
        at_ms: u64,
        /// The number of usage records that were lost.
        lines: u64,
    },
}

/// The totals of all lines since a given time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountingSummary {
    /// The tools, sorted by the number of calls, most first.
    pub tools: Vec<ToolStats>,
    /// The models, sorted by cost, highest first.
    pub models: Vec<ModelStats>,
    /// The number of lines that are not valid records, such as a line that a crash cut off.
    pub unreadable_lines: u64,
    /// The number of records that could not be written, for example because the disk was full.
    pub lost_lines: u64,
}

/// The summed usage of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolStats {
    /// The exposed name of the tool.
    pub tool: String,
    /// The number of calls, including those that were refused.
    pub calls: u64,
    /// The number of calls that failed.
    pub errors: u64,
    /// The number of calls that were answered from the cache.
    pub cache_hits: u64,
    /// The size of all outputs of the tool together, in bytes.
    pub bytes_out: u64,
    /// The median latency of the calls that reached the tool.
    pub latency_p50_ms: u64,
    /// The 95th percentile of the latency of the calls that reached the tool.
    pub latency_p95_ms: u64,
}

/// The summed usage of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelStats {
    /// The model, as `provider/model`.
    pub model: String,
    /// The number of requests, including those that failed.
    pub attempts: u64,
    /// The number of requests that failed.
    pub errors: u64,
    /// The input tokens of all requests.
    pub input_tokens: u64,
    /// The output tokens of all requests.
    pub output_tokens: u64,
    /// The input tokens that the provider read from its cache.
    pub cache_read_tokens: u64,
    /// The cost, in billionths of a US dollar.
    pub cost_nano_usd: u64,
    /// The number of attempts that used tokens without a known price. The cost does not include them.
    pub without_price: u64,
}

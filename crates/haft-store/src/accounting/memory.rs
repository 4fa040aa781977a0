//! Usage records in memory, for programs that store nothing on disk. They are lost when the process ends.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use haft_core::accounting_store::{AccountingLine, AccountingStore, AccountingSummary};
use haft_core::output_store::StoreError;

use super::line::to_bytes;
use super::summary::{LineFilter, LineOwner, LineSums};

/// The maximum number of lines in memory, over all tenants. At this number, a new line replaces the oldest one.
const LINES_MAX: usize = 10_000;

/// Usage records in memory. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryAccounting(Arc<Mutex<VecDeque<TenantLine>>>);

#[derive(Debug)]
struct TenantLine {
    tenant: String,
    /// The stored form of the line, with its line end.
    bytes: Vec<u8>,
}

impl MemoryAccounting {
    fn append_now(&self, tenant: &str, lines: &[AccountingLine]) -> Result<(), StoreError> {
        let bytes = to_bytes(lines).map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = bytes.split_inclusive(|byte| *byte == b'\n');
        kept.extend(new.map(|line| TenantLine { tenant: tenant.to_owned(), bytes: line.to_vec() }));
        let excess = kept.len().saturating_sub(LINES_MAX);
        kept.drain(..excess);
        Ok(())
    }

    fn summarize_now(&self, tenant: &str, since_ms: u64) -> AccountingSummary {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let filter = LineFilter { since_ms, owner: LineOwner::Anyone };
        let mut sums = LineSums::default();
        for line in kept.iter().filter(|line| line.tenant == tenant) {
            // Pass a copy of the line, because the parser for the format of older versions overwrites a byte.
            sums.add(&mut line.bytes.trim_ascii_end().to_vec(), filter);
        }
        sums.into_summary()
    }
}

impl AccountingStore for MemoryAccounting {
    fn append<'a>(
        &'a self,
        tenant: &'a str,
        lines: &'a [AccountingLine],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let appended = self.append_now(tenant, lines);
        Box::pin(async move { appended })
    }

    fn summarize<'a>(
        &'a self,
        tenant: &'a str,
        since_ms: u64,
    ) -> BoxFuture<'a, Result<AccountingSummary, StoreError>> {
        let summary = self.summarize_now(tenant, since_ms);
        Box::pin(async move { Ok(summary) })
    }
}

//! Usage records in files: one line per call and per model request, one file per tenant.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use haft_core::accounting_store::{AccountingLine, AccountingStore, AccountingSummary};
use haft_core::home::Home;
use haft_core::output_store::StoreError;
use haft_core::principal::Principal;

use super::line::to_bytes;
use super::line_file::{LineFile, LineFileLimits, LinePaths};
use super::summary::{LOCAL_TENANT, LineFilter, LineOwner, LineSums, sum_files};
use crate::sweep;
use crate::tenant::directory_of;

/// The maximum number of files that stay open, one per tenant.
const OPEN_MAX: usize = 16;

/// The usage records of all tenants in haft's data directory. The local tenant has `accounting.jsonl`, to which older
/// versions wrote the lines of all tenants; any other tenant has a file in `accounting/`.
#[derive(Debug)]
pub struct FileAccounting {
    data: PathBuf,
    limits: LineFileLimits,
    /// The files of the tenants that wrote most recently.
    open: Mutex<HashMap<String, LineFile>>,
}

impl FileAccounting {
    pub fn of(home: &Home) -> Self {
        Self::with_limits(home, LineFileLimits::default())
    }

    pub(super) fn with_limits(home: &Home, limits: LineFileLimits) -> Self {
        Self { data: home.data(), limits, open: Mutex::default() }
    }

    /// Checks that haft can write usage records of the local user. Returns an error otherwise.
    pub fn check_writable(&self) -> io::Result<()> {
        self.append_now(LOCAL_TENANT, &[])
    }

    /// Sums up the lines of all tenants since a time, in milliseconds since 1970. Only the operator may see the result.
    pub fn summarize_all(&self, since_ms: u64) -> io::Result<AccountingSummary> {
        let filter = LineFilter { since_ms, owner: LineOwner::Anyone };
        let mut sums = sum_files(&self.shared_paths(), filter)?;
        for entry in sweep::entries(&self.data.join("accounting")) {
            let name = entry.file_name();
            let tenant = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
            // A tenant's file name without its extension has no dot. This check keeps the rotated file (`.1.jsonl`)
            // from being read as another tenant.
            if let Some(tenant) = tenant.filter(|tenant| !tenant.contains('.')) {
                sums.merge(sum_files(&self.paths_in_directory(tenant), filter)?);
            }
        }
        Ok(sums.into_summary())
    }

    fn summarize_now(&self, tenant: &str, since_ms: u64) -> io::Result<AccountingSummary> {
        let own = LineFilter { since_ms, owner: LineOwner::Tenant(tenant) };
        let mut sums: LineSums = sum_files(&self.shared_paths(), own)?;
        if tenant != LOCAL_TENANT {
            let all = LineFilter { since_ms, owner: LineOwner::Anyone };
            sums.merge(sum_files(&self.paths(tenant), all)?);
        }
        Ok(sums.into_summary())
    }

    fn append_now(&self, tenant: &str, lines: &[AccountingLine]) -> io::Result<()> {
        let bytes = to_bytes(lines)?;
        let mut open = self.open();
        if open.len() >= OPEN_MAX && !open.contains_key(tenant) {
            open.clear();
        }
        let new = || LineFile::new(self.paths(tenant), self.limits);
        open.entry(tenant.to_owned()).or_insert_with(new).append(&bytes)
    }

    fn paths(&self, tenant: &str) -> LinePaths {
        match tenant {
            LOCAL_TENANT => self.shared_paths(),
            tenant => self.paths_in_directory(&directory_of(tenant)),
        }
    }

    /// Returns the files that may contain lines of a principal.
    pub(crate) fn paths_of(&self, principal: &Principal) -> Vec<LinePaths> {
        let mut paths = vec![self.shared_paths()];
        if principal.tenant() != LOCAL_TENANT {
            paths.push(self.paths(principal.tenant()));
        }
        paths
    }

    fn shared_paths(&self) -> LinePaths {
        LinePaths { current: self.data.join("accounting.jsonl"), old: self.data.join("accounting.1.jsonl") }
    }

    fn paths_in_directory(&self, name: &str) -> LinePaths {
        let directory = self.data.join("accounting");
        LinePaths {
            current: directory.join(format!("{name}.jsonl")),
            old: directory.join(format!("{name}.1.jsonl")),
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, LineFile>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AccountingStore for FileAccounting {
    fn append<'a>(
        &'a self,
        tenant: &'a str,
        lines: &'a [AccountingLine],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.append_now(tenant, lines).map_err(unavailable) })
    }

    fn summarize<'a>(
        &'a self,
        tenant: &'a str,
        since_ms: u64,
    ) -> BoxFuture<'a, Result<AccountingSummary, StoreError>> {
        Box::pin(async move { self.summarize_now(tenant, since_ms).map_err(unavailable) })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "handed to `map_err`")]
fn unavailable(error: io::Error) -> StoreError {
    StoreError::Unavailable { reason: error.to_string() }
}

//! Refuses new runs and new items of conversations if the disk is almost full, or if a tenant stores too much.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use haft_core::principal::Principal;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_store::retention::{TenantData, free_percent, measured_name};

use crate::error::{ApiError, ApiErrorKind};
use crate::server::ServerState;

/// The seconds after which a client may try again. By then, a sweep may have freed space.
pub(crate) const RETRY_AFTER_S: u64 = 60;

/// The disk space of each tenant at the last measurement, in bytes.
#[derive(Debug, Default)]
pub(crate) struct TenantSizes(Mutex<HashMap<String, u64>>);

impl TenantSizes {
    /// Measures the disk space of all tenants.
    pub(crate) fn update(&self, data: &TenantData, workspace_bytes_max: u64) {
        let measured = data.measure(workspace_bytes_max);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = measured;
    }

    fn of(&self, tenant: &str) -> u64 {
        let sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sizes.get(&measured_name(tenant)).copied().unwrap_or_default()
    }
}

/// The reason why new data has no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StorageRefusal {
    DiskFull { free_percent: u64, percent_min: u64 },
    TenantQuota { bytes: u64, bytes_max: u64 },
}

/// Refuses a new run, or a change to a conversation, that has no space for its data. Runs in progress are not affected,
/// because a run that cannot write its journal loses work that was already paid for.
pub(crate) fn check(state: &ServerState, owner: &Principal) -> Result<(), StorageRefusal> {
    let limits = state.runtime.config().serve.storage;
    let percent_min = limits.free_disk_percent_min;
    // A disk that cannot be measured counts as full.
    let free_percent = free_percent(&state.runtime.home().data()).unwrap_or(0);
    if free_percent < percent_min {
        return Err(StorageRefusal::DiskFull { free_percent, percent_min });
    }
    let (bytes, bytes_max) = (state.tenant_sizes.of(owner.tenant()), limits.tenant_bytes_max);
    if bytes > bytes_max {
        return Err(StorageRefusal::TenantQuota { bytes, bytes_max });
    }
    Ok(())
}

impl fmt::Display for StorageRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DiskFull { free_percent, percent_min } => write!(
                f,
                "the disk of the server is almost full: {free_percent} % is free, and new data needs {percent_min} %"
            ),
            Self::TenantQuota { bytes, bytes_max } => write!(
                f,
                "the data of this tenant occupies {bytes} bytes, and the limit is {bytes_max}; delete responses and \
                 conversations, or ask the operator of the server for more space: sessions, tool outputs and \
                 workspaces of deleted responses stay until they expire"
            ),
        }
    }
}

impl From<StorageRefusal> for ApiError {
    fn from(refusal: StorageRefusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            StorageRefusal::DiskFull { .. } => {
                Self::new(ApiErrorKind::Unavailable, message).with_code("disk_full").after(RETRY_AFTER_S)
            }
            StorageRefusal::TenantQuota { .. } => Self::new(ApiErrorKind::TooManyRequests, message)
                .with_code("tenant_quota_exceeded")
                .not_retryable()
                .after(RETRY_AFTER_S),
        }
    }
}

impl From<StorageRefusal> for ToolError {
    fn from(refusal: StorageRefusal) -> Self {
        let kind = match refusal {
            StorageRefusal::DiskFull { .. } => ToolErrorKind::Unavailable,
            StorageRefusal::TenantQuota { .. } => ToolErrorKind::LimitExceeded,
        };
        Self::new(kind, refusal.to_string())
    }
}

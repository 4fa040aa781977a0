//! Refuses new runs if the disk is almost full, or if a tenant stores too much.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use haft_core::principal::Principal;
use haft_store::retention::{TenantData, free_percent, measured_name};

use crate::error::{ApiError, ApiErrorKind};
use crate::server::ServerState;

/// The seconds after which a client may try again. A sweep may have made space until then.
const RETRY_AFTER_S: u64 = 60;

/// The disk space of each tenant at the last measurement, in bytes.
#[derive(Debug, Default)]
pub(crate) struct TenantSizes(Mutex<HashMap<String, u64>>);

impl TenantSizes {
    /// Measures all tenants.
    pub(crate) fn update(&self, data: &TenantData, workspace_bytes_max: u64) {
        let measured = data.measure(workspace_bytes_max);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = measured;
    }

    fn of(&self, tenant: &str) -> u64 {
        let sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sizes.get(&measured_name(tenant)).copied().unwrap_or_default()
    }
}

/// Refuses a new run that has no space for its data. Runs in progress are not affected, because a run that cannot write
/// its journal loses work that was already paid for.
pub(crate) fn check(state: &ServerState, owner: &Principal) -> Result<(), ApiError> {
    let limits = state.runtime.config().serve.storage;
    let percent_min = limits.free_disk_percent_min;
    // A disk that cannot be measured counts as full.
    let free = free_percent(&state.runtime.home().data()).unwrap_or(0);
    if free < percent_min {
        let message = format!(
            "the disk of the server is almost full: {free} % is free, and new runs need {percent_min} %"
        );
        return Err(ApiError::new(ApiErrorKind::Unavailable, message)
            .with_code("disk_full")
            .after(RETRY_AFTER_S));
    }
    let (bytes, bytes_max) = (state.tenant_sizes.of(owner.tenant()), limits.tenant_bytes_max);
    if bytes > bytes_max {
        let message = format!(
            "the data of this tenant occupies {bytes} bytes, and the limit is {bytes_max}; delete responses or \
             conversations"
        );
        let refused =
            ApiError::new(ApiErrorKind::TooManyRequests, message).with_code("tenant_quota_exceeded");
        return Err(refused.not_retryable().after(RETRY_AFTER_S));
    }
    Ok(())
}

//! The trait of stores that hold idempotency keys: starting a run twice under one key returns the first run.

use futures_util::future::BoxFuture;

use crate::output_store::StoreError;
use crate::position::SessionId;
use crate::principal::Principal;

/// Binds keys of principals to runs.
pub trait IdempotencyStore: Send + Sync {
    /// Binds a key to a run, or returns the run that the key is bound to already. Of two callers at once, one wins.
    fn bind<'a>(
        &'a self,
        principal: &'a Principal,
        key: &'a str,
        run: SessionId,
    ) -> BoxFuture<'a, Result<SessionId, StoreError>>;

    /// Frees a key whose run could not be started. A key that stays bound only makes a later start fail, so there is no
    /// error.
    fn release<'a>(&'a self, principal: &'a Principal, key: &'a str) -> BoxFuture<'a, ()>;
}

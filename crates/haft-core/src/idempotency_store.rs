//! The trait of stores that hold idempotency keys: starting a run twice under one key returns the first run.

use futures_util::future::BoxFuture;

use crate::output_store::StoreError;
use crate::position::SessionId;
use crate::principal::Principal;

/// Binds the idempotency keys of principals to runs.
pub trait IdempotencyStore: Send + Sync {
    /// Binds a key to a run, or returns the run to which the key is already bound. If two callers bind at the same
    /// time, only one of them succeeds.
    fn bind<'a>(
        &'a self,
        principal: &'a Principal,
        key: &'a str,
        run: SessionId,
    ) -> BoxFuture<'a, Result<SessionId, StoreError>>;

    /// Releases a key whose run could not be started or is outdated. Keeps a key that is bound to another run in the
    /// meantime. Returns no error: if the key stays bound, the only effect is that a later start with this key fails.
    fn release<'a>(&'a self, principal: &'a Principal, key: &'a str, run: SessionId) -> BoxFuture<'a, ()>;
}

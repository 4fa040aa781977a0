//! Where a machine keeps the secrets of its user, as far as tokens need it.

use futures_util::future::BoxFuture;
use secrecy::SecretString;

/// A keyring. The product implements it; every wait is bounded there. Errors are sentences for the operator, without secrets.
pub trait Keyring: Send + Sync {
    fn get<'a>(&'a self, account: &'a str) -> BoxFuture<'a, Result<Option<SecretString>, String>>;

    /// Instead of what was there.
    fn put<'a>(&'a self, account: &'a str, secret: SecretString) -> BoxFuture<'a, Result<(), String>>;

    fn remove<'a>(&'a self, account: &'a str) -> BoxFuture<'a, Result<(), String>>;
}

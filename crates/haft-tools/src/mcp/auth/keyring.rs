//! The interface to the keyring of the operating system, with the operations that tokens need.

use futures_util::future::BoxFuture;
use secrecy::SecretString;

/// A keyring. The embedding program implements this trait and limits the time of every operation. Errors are messages
/// for the operator, without secrets.
pub trait Keyring: Send + Sync {
    fn get<'a>(&'a self, account: &'a str) -> BoxFuture<'a, Result<Option<SecretString>, String>>;

    /// Stores a secret, and replaces an earlier secret of the same account.
    fn put<'a>(&'a self, account: &'a str, secret: SecretString) -> BoxFuture<'a, Result<(), String>>;

    fn remove<'a>(&'a self, account: &'a str) -> BoxFuture<'a, Result<(), String>>;
}

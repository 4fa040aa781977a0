//! Encrypts and decrypts ("seals" and "opens") the texts of items that a client keeps for the server.

use super::field::invalid;
use super::stored::blocking;
use crate::auth::{Caller, now_ms};
use crate::error::{ApiError, ApiErrorKind};
use crate::seal::{self, UnsealError};
use crate::server::ServerState;

/// The error code for an item that cannot be decrypted.
pub(super) const INVALID: &str = "invalid_encrypted_content";

/// Encrypts a text for the caller. `text` builds the text and is called on a thread for blocking work.
pub(super) async fn seal(
    state: &ServerState,
    caller: &Caller,
    text: impl FnOnce() -> serde_json::Result<Vec<u8>> + Send + 'static,
) -> Result<String, ApiError> {
    let (keys, owner) = (state.seal_keys.clone(), caller.principal.clone());
    blocking(move || seal::seal(&keys, &owner, &text()?, now_ms())).await
}

/// Decrypts the text of the item at `path`.
pub(super) async fn open(
    state: &ServerState,
    caller: &Caller,
    path: &str,
    encrypted: &str,
) -> Result<Vec<u8>, ApiError> {
    let (keys, owner, text) = (state.seal_keys.clone(), caller.principal.clone(), encrypted.to_owned());
    let opened = blocking(move || Ok(seal::open(&keys, &owner, &text))).await?;
    let refused = |message: &str| invalid(format!("{path}.encrypted_content"), message).with_code(INVALID);
    opened.map_err(|error| match error {
        UnsealError::Invalid => {
            refused("this server did not encrypt this text for you, or the text was changed")
        }
        UnsealError::UnknownKey => {
            refused("the server no longer has the key of this encrypted text; leave the item out")
        }
        UnsealError::Keys => {
            let message =
                "the server cannot read its encryption keys in `data/seal-keys.json`; tell its operator";
            ApiError::new(ApiErrorKind::ServerError, message)
        }
    })
}

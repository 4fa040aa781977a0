//! Looks up an enum value by its stored name. The caller passes the function that also writes the name, so reading and
//! writing cannot differ.

use super::StoredError;

/// Returns the enum value with this stored name.
pub fn find<T: Copy>(
    what: &'static str,
    all: &[T],
    name: fn(T) -> &'static str,
    written: &str,
) -> Result<T, StoredError> {
    let found = all.iter().copied().find(|value| name(*value) == written);
    found.ok_or_else(|| StoredError::UnknownWord { what, found: written.into() })
}

//! Looks up an enum value by its stored name, in the table that also writes the name.

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

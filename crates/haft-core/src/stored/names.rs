//! Words that stand for values, looked up in the table that also writes them.

use super::StoredError;

/// The value of which this is the name.
pub fn find<T: Copy>(
    what: &'static str,
    all: &[T],
    name: fn(T) -> &'static str,
    written: &str,
) -> Result<T, StoredError> {
    let found = all.iter().copied().find(|value| name(*value) == written);
    found.ok_or_else(|| StoredError::UnknownWord { what, found: written.into() })
}

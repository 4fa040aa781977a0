//! Words that stand for values, looked up in the table that also writes them.

use super::SnapshotError;

/// The value of which this is the name.
pub(super) fn find<T: Copy>(
    what: &'static str,
    all: &[T],
    name: fn(T) -> &'static str,
    written: &str,
) -> Result<T, SnapshotError> {
    let found = all.iter().copied().find(|value| name(*value) == written);
    found.ok_or_else(|| SnapshotError::UnknownWord { what, found: written.into() })
}

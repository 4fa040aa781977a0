//! Limits how often this process sweeps a directory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The last sweep of each directory. It belongs to the process and not to a store, because a server opens a store per
/// session and would otherwise sweep at each of them.
static SWEEPS: Mutex<Option<HashMap<PathBuf, Instant>>> = Mutex::new(None);

/// Returns true at most once per interval and directory. The caller sweeps then.
pub(crate) fn is_due(directory: &Path, interval: Duration) -> bool {
    let mut sweeps = SWEEPS.lock().unwrap_or_else(PoisonError::into_inner);
    let sweeps = sweeps.get_or_insert_default();
    let now = Instant::now();
    if sweeps.get(directory).is_some_and(|last| now.duration_since(*last) < interval) {
        return false;
    }
    sweeps.insert(directory.to_owned(), now);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_due_once_per_interval_and_apart_from_others() {
        let hour = Duration::from_hours(1);
        let (one, other) = (Path::new("/sweep-interval/one"), Path::new("/sweep-interval/other"));
        assert!(is_due(one, hour));
        assert!(!is_due(one, hour));
        assert!(is_due(other, hour));
        assert!(is_due(one, Duration::ZERO), "the interval has passed");
    }
}

//! The outputs of one session that this process knows about.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::PART_SUFFIX;

/// The sessions that stores of this process have open, by directory. A sweep of one store removes outputs of all
/// sessions, so it must update all these values.
static OPEN_SESSIONS: Mutex<Option<HashMap<PathBuf, Weak<SessionOutputs>>>> = Mutex::new(None);

/// The outputs of one session. All stores of a process that have the session open share this value.
#[derive(Debug)]
pub(super) struct SessionOutputs {
    directory: PathBuf,
    known: Mutex<KnownOutputs>,
}

#[derive(Debug, Default)]
struct KnownOutputs {
    /// True while outputs of an earlier process may exist.
    earlier: bool,
    /// The names of the outputs that this process stored.
    stored: HashSet<String>,
    newest: Option<String>,
}

impl SessionOutputs {
    /// Opens a session. Stops looking for outputs of earlier processes when it has found one, because a session may
    /// have thousands.
    pub(super) fn open(directory: PathBuf) -> Arc<Self> {
        let mut sessions = OPEN_SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let sessions = sessions.get_or_insert_default();
        if let Some(open) = sessions.get(&directory).and_then(Weak::upgrade) {
            return open;
        }
        let known = KnownOutputs { earlier: has_output(&directory), ..KnownOutputs::default() };
        let session = Arc::new(Self { directory: directory.clone(), known: Mutex::new(known) });
        sessions.insert(directory, Arc::downgrade(&session));
        session
    }

    /// Returns the session of a directory if a store of this process has it open.
    pub(super) fn find_open(directory: &Path) -> Option<Arc<Self>> {
        let sessions = OPEN_SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.as_ref()?.get(directory)?.upgrade()
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn is_empty(&self) -> bool {
        let known = self.known();
        !known.earlier && known.stored.is_empty()
    }

    pub(super) fn is_newest(&self, name: &str) -> bool {
        self.known().newest.as_deref() == Some(name)
    }

    pub(super) fn add(&self, name: &str) {
        let mut known = self.known();
        known.stored.insert(name.to_owned());
        known.newest = Some(name.to_owned());
    }

    pub(super) fn remove(&self, name: &str) {
        let mut known = self.known();
        known.stored.remove(name);
        if known.newest.as_deref() == Some(name) {
            known.newest = None;
        }
    }

    /// Checks again if there are outputs of earlier processes, after a sweep of the directory.
    pub(super) fn refresh(&self) {
        let mut known = self.known();
        known.earlier = known.earlier && has_output(&self.directory);
    }

    fn known(&self) -> MutexGuard<'_, KnownOutputs> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SessionOutputs {
    fn drop(&mut self) {
        let mut sessions = OPEN_SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sessions) = sessions.as_mut()
            // Remove the entry only if it is dead: another store may have opened the session again after the last
            // reference was dropped.
            && sessions.get(&self.directory).is_some_and(|open| open.strong_count() == 0)
        {
            sessions.remove(&self.directory);
        }
    }
}

fn has_output(directory: &Path) -> bool {
    let is_whole = |entry: fs::DirEntry| !entry.file_name().to_string_lossy().ends_with(PART_SUFFIX);
    fs::read_dir(directory).is_ok_and(|entries| entries.flatten().any(is_whole))
}

//! Retention: removes old responses, conversations and event logs of each tenant, and measures the disk space of each
//! tenant.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use haft_core::home::Home;
use haft_core::position::SessionId;
use haft_core::principal::Principal;

use crate::conversations::LOCK_SUFFIX;
use crate::lock_file::LockFile;
use crate::pending_approvals::PendingApprovalStore;
use crate::responses::ResponseStore;
use crate::sessions::{SessionLimits, SessionStore};
use crate::sweep::{self, SweepPace};
use crate::tenant::directory_of;
use crate::workspaces::occupied_bytes;

/// The directories in `data` that have one subdirectory for each tenant and count for the disk space of the tenant. The
/// directories of tool outputs have other names.
const MEASURED: [&str; 5] = ["responses", "conversations", "events", "tenant-sessions", "blobs"];

/// The measured directories with files that a sweep removes.
const SWEPT: [(&str, StoredKind); 3] = [
    ("responses", StoredKind::Response),
    ("conversations", StoredKind::Conversation),
    ("events", StoredKind::Events),
];

/// The minimum time that a file is kept after its last change, even if the tenant exceeds its limits on number and
/// size. A client is likely to continue from a response of the last hour.
const RECENT: Duration = Duration::from_hours(1);

/// The limits for the stored responses, conversations and event logs of each tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionLimits {
    /// The time that a file is kept after its last change.
    pub keep: Duration,
    /// The maximum number of responses.
    pub responses_max: u64,
    /// The maximum size of all these files, in bytes.
    pub bytes_max: u64,
}

/// The stored data of all tenants.
#[derive(Debug, Clone)]
pub struct TenantData {
    home: Home,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoredKind {
    Response,
    Conversation,
    Events,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct StoredFile {
    kind: StoredKind,
    changed: SystemTime,
    bytes: u64,
    path: PathBuf,
}

impl TenantData {
    pub fn of(home: &Home) -> Self {
        Self { home: home.clone() }
    }

    /// Removes the files of each tenant that exceed the limits, the oldest first.
    pub fn sweep(&self, limits: &RetentionLimits, now: SystemTime, pace: &mut SweepPace) {
        let unfinished = self.unfinished();
        let sessions_limits = SessionLimits { bytes_max: u64::MAX, keep: Duration::MAX };
        let sessions = SessionStore::of(&self.home, sessions_limits);
        for tenant in self.tenants() {
            let mut files = self.files(&tenant);
            let sessions = sessions.in_directory(&tenant);
            // Keep the files of responses that are unfinished or wait for an approval: to continue such a response, the
            // server needs its record and the event log of its run.
            files.retain(|file| {
                file.path.file_stem().is_none_or(|name| !unfinished.contains(Path::new(name)))
            });
            self.remove_left_locks(&tenant, now);
            for file in exceeding(files, limits, now) {
                if !(file.kind == StoredKind::Events && is_of_unfinished(&file.path, &sessions)) {
                    // Ignore a failure: the next sweep tries again.
                    let _ = fs::remove_file(file.path);
                }
                pace.step();
            }
        }
    }

    /// Removes the lock files that killed processes left. A lock file in use stays, because two processes could
    /// otherwise hold the lock of one conversation.
    fn remove_left_locks(&self, tenant: &str, now: SystemTime) {
        for entry in sweep::entries(&self.home.data().join("conversations").join(tenant)) {
            let changed = entry.metadata().and_then(|metadata| metadata.modified());
            let is_recent =
                changed.is_ok_and(|changed| now.duration_since(changed).unwrap_or_default() <= RECENT);
            if is_lock(&entry.path()) && !is_recent {
                LockFile::is_held(&entry.path());
            }
        }
    }

    /// Measures the disk space of each tenant, by the name of its directory: responses, conversations, event logs,
    /// sessions, blobs, tool outputs, workspaces with their `/tmp`, and caches of MCP servers.
    ///
    /// A command can make a directory unreadable to hide its size. Such a workspace counts as `workspace_bytes_max`
    /// bytes, the limit that the server enforces for each workspace. If it counted more, one subject could block the
    /// whole tenant.
    pub fn measure(&self, workspace_bytes_max: u64) -> HashMap<String, u64> {
        let measure = |tenant: String| {
            let bytes = self.stored_bytes(&tenant);
            let bytes = bytes.saturating_add(self.workspace_bytes(&tenant, workspace_bytes_max));
            (tenant, bytes)
        };
        self.tenants().into_iter().map(measure).collect()
    }

    /// Measures the directories that only haft writes. A directory that cannot be measured exceeds every limit.
    fn stored_bytes(&self, tenant: &str) -> u64 {
        let data = self.home.data();
        let outputs = data.join("outputs").join(format!("tenant-{tenant}"));
        let directories = MEASURED.map(|name| data.join(name).join(tenant)).into_iter().chain([outputs]);
        let bytes = directories.map(|directory| occupied_bytes(&directory, u64::MAX).unwrap_or(u64::MAX));
        bytes.fold(0, u64::saturating_add)
    }

    fn workspace_bytes(&self, tenant: &str, workspace_bytes_max: u64) -> u64 {
        let workspaces = sweep::list(&self.home.workspace().join(tenant));
        let tmps = sweep::list(&self.home.private_tmps().join(tenant));
        let caches = sweep::list(&self.home.tenant_caches().join(tenant));
        let (Ok(workspaces), Ok(tmps), Ok(caches)) = (workspaces, tmps, caches) else { return u64::MAX };
        let of_subjects =
            tmps.into_iter().chain(caches).flat_map(|directory| sweep::entries(&directory.path()));
        let directories = workspaces.into_iter().chain(of_subjects).map(|entry| entry.path());
        let bytes = directories.map(|path| occupied_bytes(&path, u64::MAX).unwrap_or(workspace_bytes_max));
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns the ids of the responses that are unfinished or wait for an approval, and of their runs.
    fn unfinished(&self) -> HashSet<PathBuf> {
        let responses = ResponseStore::of(&self.home);
        let unfinished = responses.unfinished().into_iter();
        let names = unfinished.flat_map(|one| {
            let run = responses.get(&one.principal(), &one.id).ok().flatten().map(|record| record.run);
            [Some(one.id), run]
        });
        let waiting = PendingApprovalStore::of(&self.home).all().into_iter();
        let waiting = waiting.flat_map(|one| [Some(one.response), Some(one.run)]);
        names.chain(waiting).flatten().map(PathBuf::from).collect()
    }

    fn tenants(&self) -> BTreeSet<String> {
        let data = self.home.data();
        let roots = MEASURED.map(|name| data.join(name)).into_iter();
        let roots = roots.chain([self.home.workspace(), self.home.private_tmps(), self.home.tenant_caches()]);
        let directories = roots.flat_map(|root| sweep::entries(&root)).filter(|entry| entry.path().is_dir());
        directories.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn files(&self, tenant: &str) -> Vec<StoredFile> {
        let in_directory = |(name, kind): (&str, StoredKind)| {
            let entries = sweep::entries(&self.home.data().join(name).join(tenant));
            entries.filter(|entry| !is_lock(&entry.path())).filter_map(move |entry| {
                let metadata = entry.metadata().ok()?;
                let changed = metadata.modified().ok()?;
                Some(StoredFile { kind, changed, bytes: metadata.len(), path: entry.path() })
            })
        };
        let is_local = tenant == directory_of(Principal::local().tenant());
        // The event logs of the local user belong to runs in the terminal. They are removed together with their
        // sessions.
        let swept = SWEPT.into_iter().filter(|(_, kind)| !(is_local && *kind == StoredKind::Events));
        swept.flat_map(in_directory).collect()
    }
}

/// Returns true for the lock file of a conversation.
fn is_lock(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == LOCK_SUFFIX)
}

/// Returns the name of a tenant in the result of [`TenantData::measure`].
pub fn measured_name(tenant: &str) -> String {
    directory_of(tenant)
}

/// Returns the percentage of free space on the file system that contains a directory.
pub fn free_percent(directory: &Path) -> std::io::Result<u64> {
    let stat = rustix::fs::statvfs(directory)?;
    Ok(stat.f_bavail.saturating_mul(100).checked_div(stat.f_blocks).unwrap_or(100))
}

/// Returns true for the event log of an active or suspended run. The run needs its log when it continues.
fn is_of_unfinished(log: &Path, sessions: &SessionStore) -> bool {
    let run = log.file_stem().and_then(|name| uuid::Uuid::parse_str(name.to_str()?).ok());
    run.is_some_and(|run| sessions.is_unfinished(SessionId(run.as_u128())))
}

/// Returns the files to remove, the oldest first.
fn exceeding(mut files: Vec<StoredFile>, limits: &RetentionLimits, now: SystemTime) -> Vec<StoredFile> {
    files.sort_by_key(|file| file.changed);
    let mut responses = files.iter().filter(|file| file.kind == StoredKind::Response).count() as u64;
    let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let mut removed = Vec::new();
    for file in files {
        let age = now.duration_since(file.changed).unwrap_or_default();
        let is_response = file.kind == StoredKind::Response;
        let is_too_much = (is_response && responses > limits.responses_max) || bytes > limits.bytes_max;
        if age > limits.keep || (age > RECENT && is_too_much) {
            responses -= u64::from(is_response);
            bytes -= file.bytes;
            removed.push(file);
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use haft_core::conversation::{Conversation, Message};
    use haft_core::model_request::ModelRequest;
    use haft_core::run::{AgentRun, RunPlan};
    use serde_json::Value;

    use super::*;
    use crate::responses::{self, UnfinishedResponse};
    use crate::sessions::line::{SessionJournalLine, SessionStart};
    use crate::tree::tests::nest_deeply;
    use crate::workspaces::{WorkspaceName, WorkspaceStore, private_tmp};

    const HOUR: Duration = Duration::from_hours(1);
    const ALL: RetentionLimits =
        RetentionLimits { keep: Duration::MAX, responses_max: u64::MAX, bytes_max: u64::MAX };

    #[test]
    fn retention_removes_the_oldest_files_until_the_limits_hold() {
        let now = SystemTime::now();
        let file = |name: &str, kind, hours: u32, bytes| StoredFile {
            kind,
            changed: now - hours * HOUR,
            bytes,
            path: name.into(),
        };
        let files = || {
            use StoredKind::{Conversation, Events, Response};
            vec![
                file("r0", Response, 0, 50),
                file("r2", Response, 2, 10),
                file("e3", Events, 3, 10),
                file("r4", Response, 4, 10),
                file("c9", Conversation, 9, 10),
            ]
        };
        let check = |limits: RetentionLimits, expected: &[&str]| {
            let removed = exceeding(files(), &limits, now).into_iter().map(|file| file.path);
            let removed: Vec<PathBuf> = removed.collect();
            assert_eq!(removed, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{limits:?}");
        };
        check(ALL, &[]);
        check(RetentionLimits { keep: 3 * HOUR + HOUR / 2, ..ALL }, &["c9", "r4"]);
        check(RetentionLimits { responses_max: 2, ..ALL }, &["r4"]);
        check(RetentionLimits { responses_max: 0, ..ALL }, &["r4", "r2"]);
        check(RetentionLimits { bytes_max: 75, ..ALL }, &["c9", "r4"]);
        check(RetentionLimits { bytes_max: 0, ..ALL }, &["c9", "r4", "e3", "r2"]);
    }

    #[test]
    fn sweep_keeps_unfinished_responses_and_their_events() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let (data, responses) = (TenantData::of(&home), ResponseStore::of(&home));
        let anna = Principal::new("acme", "anna", "k");
        for (id, run) in [("resp_old", "run-old"), ("resp_open", "run-open")] {
            responses::tests::put(&responses, &anna, (id, run), 1);
            fs::create_dir_all(home.data().join("events/acme")).unwrap();
            fs::write(home.data().join(format!("events/acme/{run}.jsonl")), vec![b'x'; 10_000]).unwrap();
        }
        let open = UnfinishedResponse {
            id: "resp_open".into(),
            run: "run-open".into(),
            tenant: "acme".into(),
            subject: "anna".into(),
            credential_id: "k".into(),
            scopes: Vec::new(),
        };
        responses.begin(&open).unwrap();
        assert!(data.measure(0)["acme"] > 20_000, "{:?}", data.measure(0));
        data.sweep(&RetentionLimits { bytes_max: 0, ..ALL }, SystemTime::now(), &mut SweepPace::default());
        assert_eq!(
            responses::tests::listed(&responses, &anna).unwrap().len(),
            2,
            "files of the last hour are kept"
        );
        data.sweep(
            &RetentionLimits { bytes_max: 0, ..ALL },
            SystemTime::now() + 2 * HOUR,
            &mut SweepPace::default(),
        );
        let left = responses::tests::listed(&responses, &anna).unwrap();
        assert_eq!(left, ["resp_open"]);
        let events = |run: &str| home.data().join(format!("events/acme/{run}.jsonl")).exists();
        assert!(events("run-open") && !events("run-old"));
    }

    #[test]
    fn sweep_removes_a_lock_file_only_if_no_process_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let path = |name: &str| home.data().join("conversations/acme").join(name);
        let held = LockFile::lock(&path("conv_1.lock")).unwrap();
        fs::write(path("conv_2.lock"), "").unwrap();
        let later = |hours: u32| SystemTime::now() + hours * HOUR;
        let limits = RetentionLimits { keep: Duration::ZERO, ..ALL };
        TenantData::of(&home).sweep(&limits, SystemTime::now(), &mut SweepPace::default());
        assert!(path("conv_2.lock").exists(), "a recent lock file is kept");
        TenantData::of(&home).sweep(&limits, later(2), &mut SweepPace::default());
        assert!(path("conv_1.lock").exists() && !path("conv_2.lock").exists());
        drop(held);
        assert!(!path("conv_1.lock").exists());
    }

    #[test]
    fn unmeasurable_workspace_counts_as_the_maximum_size() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let (data, store) = (TenantData::of(&home), WorkspaceStore::of(&home));
        let anna = Principal::new("acme", "anna", "k");
        let open = |id: &str| store.open(&anna, WorkspaceName::Conversation(id.into())).unwrap();
        let (open_one, hidden) = (open("conv_1"), open("conv_2"));
        fs::write(open_one.directory().join("file"), vec![b'x'; 100_000]).unwrap();
        let tmp = private_tmp(&home, &anna, open_one.directory());
        fs::create_dir_all(&tmp).unwrap();
        fs::write(tmp.join("file"), vec![b'x'; 100_000]).unwrap();
        let before = data.measure(1 << 30)["acme"];
        assert!(
            (200_000..300_000).contains(&before),
            "the size includes the workspace and its /tmp: {before}"
        );
        nest_deeply(hidden.directory());
        let after = data.measure(1 << 30)["acme"];
        assert!((before..before + 20_000).contains(&(after - (1 << 30))), "{after}");
    }

    #[test]
    fn sweep_keeps_the_event_logs_of_unfinished_runs_and_of_the_local_user() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let sessions = SessionStore::of(&home, SessionLimits { bytes_max: u64::MAX, keep: Duration::MAX });
        let sessions = sessions.of_tenant("a b");
        let log = |tenant: &str, id: SessionId| {
            let path = home.data().join("events").join(directory_of(tenant)).join(format!("{id}.jsonl"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            path
        };
        let open = |id: u128| {
            let mut conversation = Conversation::default();
            conversation.push(Message::user("hello")).unwrap();
            let run = AgentRun::new(ModelRequest::new("m", Arc::new(conversation)), RunPlan::default());
            let start = SessionStart::new(SessionId(id), "hello", Value::Null, run.snapshot());
            (sessions.open(SessionId(id), start).unwrap(), log("a b", SessionId(id)))
        };
        let (_busy, of_busy) = open(1);
        let (_, of_suspended) = open(2);
        let (_, of_finished) = open(3);
        let line = serde_json::to_string(&SessionJournalLine::Finished {
            at_ms: 1,
            reason: "done".into(),
            turns: 1,
        });
        let journal = fs::read_to_string(sessions.file(SessionId(3))).unwrap();
        fs::write(sessions.file(SessionId(3)), format!("{journal}{}\n", line.unwrap())).unwrap();
        let (without_session, of_local) = (log("a b", SessionId(4)), log("local", SessionId(5)));
        let limits = RetentionLimits { keep: HOUR, ..ALL };
        TenantData::of(&home).sweep(&limits, SystemTime::now() + 2 * HOUR, &mut SweepPace::default());
        assert!(of_busy.exists() && of_suspended.exists() && of_local.exists());
        assert!(!of_finished.exists() && !without_session.exists());
    }
}

use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use haft_core::output_store::WHOLE_OUTPUT;

use super::*;

const HOUR: Duration = Duration::from_hours(1);

fn limits(output: u64, total: u64) -> StoreLimits {
    StoreLimits { output_bytes_max: output, total_bytes_max: total, keep: Duration::from_mins(1) }
}

fn put(store: &FileStore, text: &str) -> StoreEntry {
    let mut spool = store.begin().unwrap();
    spool.write(text.as_bytes()).unwrap();
    spool.finish().unwrap()
}

impl FileStore {
    fn sweep(&self, now: SystemTime) {
        Sweeper::new(&self.root, self.limits.clone()).run_at(now).unwrap();
    }
}

/// Returns the directories of all sessions.
fn directories(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// Returns the sizes of all files in the session directories.
fn file_bytes(root: &Path) -> Vec<u64> {
    let files = directories(root).into_iter().flat_map(|session| fs::read_dir(session).unwrap());
    files.map(|file| file.unwrap().metadata().unwrap().len()).collect()
}

/// Makes a file look as if it was written some time ago.
fn age(path: &Path, age: Duration) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

/// Stores outputs of ten bytes, several per session. Each output is one minute younger than the one before.
fn fill(root: &Path, sessions: usize, per_session: usize) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for _ in 0..sessions {
        let store = FileStore::open(root, StoreLimits::untouched()).unwrap();
        paths.extend((0..per_session).map(|_| store.path(&put(&store, "0123456789").handle)));
    }
    for (path, minutes) in paths.iter().rev().zip(100..) {
        age(path, Duration::from_mins(minutes));
    }
    paths
}

#[test]
fn output_is_readable_only_by_its_session() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(&dir.path().join("outputs"), StoreLimits::default()).unwrap();
    let stored = put(&store, "one\ntwo\n");
    assert_eq!((stored.bytes, stored.lines, stored.complete), (8, 2, true));
    assert_eq!(store.read_own(&stored.handle, WHOLE_OUTPUT).unwrap(), b"one\ntwo\n");
    let other = FileStore::open(&dir.path().join("outputs"), StoreLimits::default()).unwrap();
    assert_eq!(other.read_own(&stored.handle, WHOLE_OUTPUT), Err(StoreError::NotFound));
    assert_eq!(other.read_any(&stored.handle, WHOLE_OUTPUT).unwrap(), b"one\ntwo\n");
    let mode = fs::metadata(dir.path().join("outputs")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn reopened_session_reads_only_its_earlier_outputs() {
    let dir = tempfile::tempdir().unwrap();
    let open = |id: u128| FileStore::of_session(dir.path(), SessionId(id), StoreLimits::default()).unwrap();
    let store = open(1);
    let stored = put(&store, "one");
    assert_eq!(stored.handle.session(), SessionId(1).to_string());
    drop(store);
    let again = open(1);
    assert!(!again.is_empty());
    assert_eq!(again.read_own(&stored.handle, WHOLE_OUTPUT).unwrap(), b"one");
    let other = open(2);
    assert!(other.is_empty());
    assert_eq!(other.read_own(&stored.handle, WHOLE_OUTPUT), Err(StoreError::NotFound));
    put(&again, "two");
    assert_eq!(again.read_own(&stored.handle, WHOLE_OUTPUT).unwrap(), b"one");
    again.sweep(SystemTime::now() + 1_000 * HOUR);
    assert!(again.is_empty(), "the sweep removed both expired outputs");
}

#[tokio::test]
async fn session_reads_ranges_and_deletes_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let open = || FileStore::open(&dir.path().join("outputs"), StoreLimits::default()).unwrap();
    let (store, other) = (open(), open());
    let handle = put(&store, "0123456789").handle;
    let read = async |range| String::from_utf8(store.read_range(&handle, range).await.unwrap()).unwrap();
    assert_eq!(read(2..5).await, "234");
    assert_eq!(read(8..99).await, "89");
    assert_eq!(read(99..100).await, "");
    assert_eq!(read(WHOLE_OUTPUT).await, "0123456789");
    assert_eq!(other.delete(&handle).await, Err(StoreError::NotFound));
    store.delete(&handle).await.unwrap();
    assert_eq!(store.read_range(&handle, WHOLE_OUTPUT).await, Err(StoreError::NotFound));
    assert_eq!(store.delete(&handle).await, Err(StoreError::NotFound));
    assert!(store.is_empty());
}

#[test]
fn partial_file_left_by_a_crash_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join(Handle::directory(&SessionId(1).to_string()));
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join(format!("{}{PART_SUFFIX}", Uuid::new_v4())), "half").unwrap();
    let store = FileStore::of_session(dir.path(), SessionId(1), limits(10, 100)).unwrap();
    assert!(store.is_empty());
    store.sweep(SystemTime::now() + HOUR);
    assert!(file_bytes(dir.path()).is_empty(), "the sweep removes an old partial file");
}

#[test]
fn stores_of_one_session_see_the_same_outputs() {
    let dir = tempfile::tempdir().unwrap();
    let open = || FileStore::of_session(dir.path(), SessionId(1), limits(10, 100)).unwrap();
    let (one, other) = (open(), open());
    let stored = put(&one, "x");
    assert!(!other.is_empty());
    fs::remove_file(one.path(&stored.handle)).unwrap();
    assert_eq!(other.read_own(&stored.handle, WHOLE_OUTPUT), Err(StoreError::NotFound));
    assert!(one.is_empty(), "a store without its removed output is empty");
}

#[test]
fn output_over_its_limit_is_truncated_and_marked_incomplete() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path(), limits(5, 100)).unwrap();
    let stored = put(&store, "1234567");
    assert_eq!((stored.bytes, stored.complete), (5, false));
    assert_eq!(store.read_own(&stored.handle, WHOLE_OUTPUT).unwrap(), b"12345");
}

#[test]
fn sweep_removes_oldest_outputs_and_expired_ones() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path(), limits(10, 25)).unwrap();
    let handles: Vec<Handle> = (0..4).map(|_| put(&store, "0123456789").handle).collect();
    store.sweep(SystemTime::now());
    let left = handles.iter().filter(|handle| store.read_own(handle, WHOLE_OUTPUT).is_ok()).count();
    assert!((1..=2).contains(&left), "{left}");
    assert!(store.read_own(&handles[3], WHOLE_OUTPUT).is_ok(), "the sweep keeps the newest output");
    store.sweep(SystemTime::now() + HOUR);
    assert!(handles.iter().all(|handle| store.read_own(handle, WHOLE_OUTPUT) == Err(StoreError::NotFound)));
}

#[test]
fn output_store_is_empty_until_an_output_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path(), limits(10, 100)).unwrap();
    assert!(store.is_empty());
    let spool = store.begin().unwrap();
    assert!(store.is_empty(), "an unfinished output does not count");
    spool.finish().unwrap();
    assert!(!store.is_empty());
    assert!(
        FileStore::open(dir.path(), limits(10, 100)).unwrap().is_empty(),
        "the store of another session is empty"
    );
    store.sweep(SystemTime::now() + HOUR);
    assert!(store.is_empty());
}

/// Runs ten writers at the same time on a store that always exceeds its limit and always has an empty directory to
/// remove.
#[test]
fn sweep_keeps_outputs_that_are_being_written() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let store = FileStore::open(dir.path(), limits(10, 50)).unwrap();
                    let mut spool = store.begin().unwrap();
                    spool.write(b"01234").unwrap();
                    store.sweep(SystemTime::now());
                    spool.write(b"56789").unwrap();
                    assert_eq!(spool.finish().unwrap().bytes, 10);
                }
            });
        }
    });
    let last = FileStore::open(dir.path(), limits(10, 50)).unwrap();
    last.sweep(SystemTime::now());
    assert!(file_bytes(dir.path()).iter().sum::<u64>() <= 50);
}

#[test]
fn sweep_removes_empty_directories_once_they_are_old() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path(), limits(10, 100)).unwrap();
    drop(store.begin().unwrap());
    store.sweep(SystemTime::now());
    assert_eq!(directories(dir.path()).len(), 1, "a new empty directory is kept");
    store.sweep(SystemTime::now() + HOUR);
    assert!(directories(dir.path()).is_empty());
}

#[test]
fn unfinished_output_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path(), StoreLimits::default()).unwrap();
    let mut spool = store.begin().unwrap();
    spool.write(b"half").unwrap();
    drop(spool);
    assert!(file_bytes(dir.path()).is_empty());
}

#[test]
fn output_store_fails_to_open_if_its_root_cannot_be_created() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    assert!(FileStore::open(&dir.path().join("file/outputs"), StoreLimits::default()).is_err());
}

#[test]
fn output_store_does_not_follow_symlinks() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path(), StoreLimits::default()).unwrap();
    let stored = put(&store, "x");
    let path = store.path(&stored.handle);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert!(store.read_own(&stored.handle, WHOLE_OUTPUT).is_err());
}

#[test]
fn sweep_removes_oldest_outputs_only_until_total_fits() {
    let dir = tempfile::tempdir().unwrap();
    let paths = fill(dir.path(), 12, 50);
    let kept = StoreLimits { keep: 1_000 * HOUR, ..limits(10, 2_995) };
    FileStore::open(dir.path(), kept).unwrap().sweep(SystemTime::now());
    let left: Vec<bool> = paths.iter().map(|path| path.exists()).collect();
    let removed = left.iter().filter(|left| !**left).count();
    assert_eq!(removed, 301, "299 outputs of ten bytes are below the limit");
    // Ages that differ by less than a percent are treated as equal, so the limit may be off by a few outputs.
    assert!(left[..290].iter().all(|left| !left) && left[310..].iter().all(|left| *left), "{left:?}");
    assert!(!dir.path().join(".sweep").exists(), "a finished sweep removes its state file");
}

#[test]
fn killed_sweep_is_continued_by_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let paths = fill(dir.path(), 12, 50);
    let sweeper = Sweeper::new(dir.path(), StoreLimits { keep: 1_000 * HOUR, ..limits(10, 3_000) });
    let mut processes = 0;
    while sweeper.run_one_step(SystemTime::now()).unwrap() {
        processes += 1;
        assert!(processes < 100, "the sweep ends after less than 100 steps");
        let state = dir.path().join(".sweep");
        let whole = fs::read(&state).unwrap();
        // A crash of the machine may leave any part of the state file. The sweep then starts from the beginning.
        if processes == 2 {
            for cut in (0..whole.len()).step_by(97).chain([whole.len() - 1]) {
                fs::write(&state, &whole[..cut]).unwrap();
                assert!(sweeper.starts_new_pass(SystemTime::now()), "{cut}");
            }
            fs::write(&state, &whole).unwrap();
        }
        assert!(!sweeper.starts_new_pass(SystemTime::now()));
    }
    assert!(processes > 3, "{processes}");
    assert_eq!(paths.iter().filter(|path| path.exists()).count(), 300);
}

#[test]
fn sweep_step_removes_at_most_256_entries() {
    let dir = tempfile::tempdir().unwrap();
    let paths = fill(dir.path(), 1, 600);
    let sweeper = Sweeper::new(dir.path(), StoreLimits { keep: HOUR, ..limits(10, u64::MAX) });
    sweeper.run_one_step(SystemTime::now()).unwrap();
    let removed = paths.iter().filter(|path| !path.exists()).count();
    assert_eq!(removed, 256, "one step removes 256 of 600 old outputs");
}

#[test]
fn newest_output_of_a_running_session_survives_total_limit() {
    let dir = tempfile::tempdir().unwrap();
    let running = FileStore::open(dir.path(), limits(100, 1)).unwrap();
    let other = FileStore::open(dir.path(), limits(100, 1)).unwrap();
    let (older, newest) = (put(&running, "0123456789").handle, put(&running, "0123456789").handle);
    age(&running.path(&older), Duration::from_secs(50));
    age(&running.path(&newest), Duration::from_secs(40));
    other.sweep(SystemTime::now());
    assert_eq!(running.read_own(&older, WHOLE_OUTPUT), Err(StoreError::NotFound));
    assert!(
        running.read_own(&newest, WHOLE_OUTPUT).is_ok(),
        "the sweep of another store keeps the newest output"
    );
}

/// Makes the last sweep of a store look as if it was some time ago.
fn age_sweep(root: &Path, age: Duration) {
    let times = fs::FileTimes::new().set_accessed(SystemTime::now() - age);
    File::open(root).unwrap().set_times(times).unwrap();
}

#[test]
fn opening_a_store_sweeps_once_per_interval() {
    let dir = tempfile::tempdir().unwrap();
    let reader = FileStore::open(dir.path(), StoreLimits::untouched()).unwrap();
    let path = reader.path(&put(&reader, "old").handle);
    age(&path, HOUR);
    assert!(reader.sweep_when_due().is_none(), "a reader starts no sweep");
    age_sweep(dir.path(), HOUR);
    let store = FileStore::open(dir.path(), limits(10, 100)).unwrap();
    assert!(store.sweep_when_due().is_none(), "`open` has already started a sweep");
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while path.exists() {
        assert!(std::time::Instant::now() < deadline, "the sweep of `open` did not remove the old output");
        std::thread::yield_now();
    }
}

#[test]
fn sweep_interval_is_shared_between_processes() {
    let dir = tempfile::tempdir().unwrap();
    let sweeper = Sweeper::new(dir.path(), limits(10, 100));
    let check = |last_sweep: Duration, urgency: Urgency, expected: usize| {
        let path = fill(dir.path(), 1, 1).remove(0);
        age_sweep(dir.path(), last_sweep);
        sweeper.run(urgency);
        assert_eq!(file_bytes(dir.path()).len(), expected, "{last_sweep:?} {urgency:?}");
        let _ = fs::remove_file(path);
    };
    check(Duration::from_secs(30), Urgency::Routine, 1);
    check(Duration::from_secs(30), Urgency::Pressing, 0);
    check(Duration::from_secs(90), Urgency::Routine, 0);
    fill(dir.path(), 1, 1);
    sweeper.run(Urgency::Routine);
    assert_eq!(file_bytes(dir.path()).len(), 1, "a sweep soon after another removes nothing");
    let later = SystemTime::now() + HOUR;
    sweeper.run_at(later).unwrap();
    let last = fs::metadata(dir.path()).unwrap().accessed().unwrap();
    assert!(
        later.duration_since(last).unwrap() < Duration::from_secs(1),
        "the access time of the directory is the end of the sweep"
    );
}

#[test]
fn sweep_is_due_when_over_an_eighth_of_the_total_limit_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path(), limits(100, 800)).unwrap();
    assert_eq!(store.due(), None, "`open` has started a sweep");
    put(&store, &"x".repeat(100));
    assert_eq!(store.due(), None, "an eighth of the total limit starts no sweep");
    put(&store, "x");
    assert_eq!((store.due(), store.due()), (Some(Urgency::Pressing), None));
}

#[test]
fn reopened_output_is_truncated_to_its_recorded_size() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path(), limits(20, 1 << 20)).unwrap();
    let append = |entry: &StoreEntry, text: &str| {
        let mut spool = store.reopen(entry).unwrap();
        spool.write(text.as_bytes()).unwrap();
        spool.finish().unwrap()
    };
    let first = put(&store, "one\ntwo\n");
    // Simulate a writer that died before it recorded this text.
    append(&first, "lost\n");
    let second = append(&first, "three\n");
    assert_eq!((&second.handle, second.bytes, second.lines, second.complete), (&first.handle, 14, 3, true));
    assert_eq!(store.read_own(&first.handle, WHOLE_OUTPUT).unwrap(), b"one\ntwo\nthree\n");
    let full = append(&second, "0123456789");
    assert_eq!((full.bytes, full.complete), (20, false), "the output limit includes the earlier bytes");
    fs::remove_file(store.path(&first.handle)).unwrap();
    assert_eq!(store.reopen(&second).err(), Some(StoreError::NotFound));
    let other = FileStore::open(dir.path(), limits(20, 1 << 20)).unwrap();
    let foreign = put(&store, "x");
    assert_eq!(
        other.reopen(&foreign).err(),
        Some(StoreError::NotFound),
        "an output of another session cannot be reopened"
    );
}

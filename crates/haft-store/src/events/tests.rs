use haft_core::event_log::LogEvent;
use haft_core::position::{RunPosition, SessionId};
use proptest::prelude::*;

use super::*;

fn event(seq: u64) -> Arc<EventEnvelope> {
    let text = LogEvent::TextDelta { text: format!("{seq}") };
    Arc::new(EventEnvelope::new(seq, Some(seq), RunPosition::first(SessionId(1)), text))
}

fn key() -> RunKey {
    RunKey { tenant: "local".into(), run: SessionId(1) }
}

/// Runs a test on every store. `test` gets a function that creates another writer of the same logs, which simulates
/// another process.
async fn on_all(test: impl AsyncFn(&dyn Fn() -> Box<dyn EventStore>)) {
    let directory = tempfile::tempdir().unwrap();
    test(&|| Box::new(FileEvents::of(&Home::at(directory.path())))).await;
    let memory = MemoryEvents::default();
    test(&|| Box::new(memory.clone())).await;
}

async fn numbers(store: &dyn EventStore, from: u64, count: usize) -> Vec<u64> {
    store.read(&key(), from, count).await.unwrap().iter().map(|event| event.seq).collect()
}

#[tokio::test]
async fn events_can_be_read_from_any_sequence_number() {
    on_all(async |writer| {
        let events = writer();
        assert_eq!(events.last(&key()).await.unwrap(), 0);
        let all: Vec<_> = (1..=1_000).map(event).collect();
        for part in all.chunks(7) {
            events.append(&key(), Epoch::FIRST, part).await.unwrap();
        }
        for (from, count) in [(1, 3), (500, 10), (999, 10), (257, 1), (1_001, 5), (1, 2_000), (600, 2)] {
            let expected: Vec<u64> = (from..=1_000).take(count).collect();
            assert_eq!(numbers(&*events, from, count).await, expected, "{from} {count}");
        }
        assert_eq!(events.read(&key(), 5, 1).await.unwrap(), [EventEnvelope::clone(&event(5))]);
        assert_eq!(writer().last(&key()).await.unwrap(), 1_000);
    })
    .await;
}

#[tokio::test]
async fn event_log_writer_is_fenced_after_another_claim() {
    on_all(async |writer| {
        let (old, new) = (writer(), writer());
        old.append(&key(), Epoch::FIRST, &[event(1), event(2)]).await.unwrap();
        assert_eq!(new.claim(&key(), Epoch(2)).await.unwrap(), 2);
        let late = old.append(&key(), Epoch::FIRST, &[event(3), event(4)]).await;
        assert_eq!(late, Err(StoreError::Fenced));
        assert_eq!(old.claim(&key(), Epoch::FIRST).await, Err(StoreError::Fenced));
        new.append(&key(), Epoch(2), &[event(3)]).await.unwrap();
        new.append(&key(), Epoch(2), &[event(4)]).await.unwrap();
        assert_eq!(numbers(&*new, 1, 10).await, [1, 2, 3, 4]);
        assert_eq!(numbers(&*writer(), 3, 10).await, [3, 4]);
        assert_eq!(writer().last(&key()).await.unwrap(), 4);
        let third = writer();
        assert_eq!(third.claim(&key(), Epoch(3)).await.unwrap(), 4);
        third.append(&key(), Epoch(3), &[event(5)]).await.unwrap();
        assert_eq!(new.append(&key(), Epoch(2), &[event(5)]).await, Err(StoreError::Fenced));
        assert_eq!(numbers(&*writer(), 1, 10).await, [1, 2, 3, 4, 5]);
    })
    .await;
}

/// An action of a writer. Process 1 has claim 1. A second process takes over with claim 2, and a third with claim 3.
#[derive(Debug, Clone)]
enum WriterAction {
    /// A writer, which may be fenced or stalled, appends this many events.
    Append {
        writer: usize,
        events: u64,
    },
    Claim,
    /// A writer dies after it has written this many bytes of its events.
    DieInAppend {
        writer: usize,
        events: u64,
        bytes: usize,
    },
    /// A process dies after it has written this many bytes of its claim.
    DieInClaim {
        bytes: usize,
    },
}

fn any_action() -> impl Strategy<Value = WriterAction> {
    let writer = 0_usize..4;
    prop_oneof![
        6 => (writer.clone(), 1_u64..4).prop_map(|(writer, events)| WriterAction::Append { writer, events }),
        2 => Just(WriterAction::Claim),
        1 => (writer, 1_u64..4, 0_usize..400)
            .prop_map(|(writer, events, bytes)| WriterAction::DieInAppend { writer, events, bytes }),
        1 => (0_usize..16).prop_map(|bytes| WriterAction::DieInClaim { bytes }),
    ]
}

struct TestWriter {
    store: Box<dyn EventStore>,
    epoch: Epoch,
    next: u64,
    is_alive: bool,
}

/// The writers of one log, and the events whose append has succeeded, which readers may have seen.
struct WriterModel {
    writers: Vec<TestWriter>,
    confirmed: Vec<EventEnvelope>,
    /// The number of events created so far, which makes each event distinct.
    made: u64,
}

impl WriterModel {
    fn new(store: Box<dyn EventStore>) -> Self {
        let first = TestWriter { store, epoch: Epoch::FIRST, next: 1, is_alive: true };
        Self { writers: vec![first], confirmed: Vec::new(), made: 0 }
    }

    fn newest(&self) -> Epoch {
        self.writers.last().map_or(Epoch::FIRST, |writer| writer.epoch)
    }

    fn events(&mut self, first: u64, count: u64) -> Vec<Arc<EventEnvelope>> {
        let mut make = |seq| {
            self.made += 1;
            let text = LogEvent::TextDelta { text: format!("made {} }}", self.made) };
            Arc::new(EventEnvelope::new(seq, None, RunPosition::first(SessionId(1)), text))
        };
        (first..first + count).map(&mut make).collect()
    }

    async fn append(&mut self, writer: usize, count: u64) {
        let at = writer % self.writers.len();
        let (next, epoch, newest) = (self.writers[at].next, self.writers[at].epoch, self.newest());
        if !self.writers[at].is_alive {
            return;
        }
        let events = self.events(next, count);
        match self.writers[at].store.append(&key(), epoch, &events).await {
            Ok(()) => {
                assert_eq!(epoch, newest, "only the newest writer can append");
                self.writers[at].next += count;
                self.confirmed.extend(events.iter().map(|event| EventEnvelope::clone(event)));
            }
            Err(error) => {
                assert_eq!((&error, epoch < newest), (&StoreError::Fenced, true));
                self.writers[at].is_alive = false;
            }
        }
    }

    async fn claim(&mut self, store: Box<dyn EventStore>) {
        let epoch = self.newest().next();
        let last = store.claim(&key(), epoch).await.unwrap();
        self.writers.push(TestWriter { store, epoch, next: last + 1, is_alive: true });
    }
}

/// Performs the actions. `file` is the log file of a file store; a process that dies leaves its bytes in it.
async fn act(actions: Vec<WriterAction>, writer: &dyn Fn() -> Box<dyn EventStore>, file: Option<PathBuf>) {
    let mut model = WriterModel::new(writer());
    let leave = |bytes: &[u8], count: usize| {
        if let Some(path) = &file {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
            file.write_all(&bytes[..count.min(bytes.len())]).unwrap();
        }
    };
    for action in actions {
        match action {
            WriterAction::Append { writer, events } => model.append(writer, events).await,
            WriterAction::Claim => model.claim(writer()).await,
            WriterAction::DieInAppend { writer, events, bytes } => {
                let at = writer % model.writers.len();
                let (next, epoch) = (model.writers[at].next, model.writers[at].epoch);
                if std::mem::replace(&mut model.writers[at].is_alive, false) {
                    let events = model.events(next, events);
                    leave(&tail::event_lines(epoch, &events).unwrap(), bytes);
                }
            }
            WriterAction::DieInClaim { bytes } => {
                let epoch = model.newest().next();
                let lines = tail::claim_lines(epoch, None);
                leave(&lines, bytes);
                // A journal gives each epoch to only one claimant, so the next claimant has a higher epoch.
                let dead = TestWriter { store: writer(), epoch, next: 1, is_alive: false };
                model.writers.push(dead);
                model.claim(writer()).await;
            }
        }
        check_log(&model, &*writer()).await;
    }
}

/// Checks that the log has every confirmed event with its number, and that no number is missing or used twice.
async fn check_log(model: &WriterModel, reader: &dyn EventStore) {
    let log = reader.read(&key(), 1, usize::MAX).await.unwrap();
    let expected: Vec<u64> = (1..=log.len() as u64).collect();
    assert_eq!(log.iter().map(|event| event.seq).collect::<Vec<_>>(), expected);
    for event in &model.confirmed {
        assert_eq!(log.get(usize::try_from(event.seq).unwrap() - 1), Some(event));
    }
    assert_eq!(reader.last(&key()).await.unwrap(), log.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn event_numbers_have_no_gap_and_are_never_reused(actions in prop::collection::vec(any_action(), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let home = Home::at(directory.path());
            let path = FileEvents::of(&home).path(&key());
            act(actions.clone(), &|| Box::new(FileEvents::of(&home)), Some(path)).await;
            let memory = MemoryEvents::default();
            act(actions, &|| Box::new(memory.clone()), None).await;
        });
    }
}

/// Older versions skipped numbers when they took over a run, and wrote no claims.
#[tokio::test]
async fn event_log_of_an_older_version_is_read_without_its_fenced_events() {
    let directory = tempfile::tempdir().unwrap();
    let events = FileEvents::of(&Home::at(directory.path()));
    for seq in [1, 2, 1_003, 3, 4, 1_004] {
        let line = tail::event_lines(Epoch::FIRST, &[event(seq)]).unwrap();
        private_file::create_parent_dir(&events.path(&key())).unwrap();
        let file = OpenOptions::new().append(true).create(true).open(events.path(&key()));
        file.unwrap().write_all(&line).unwrap();
    }
    assert_eq!(numbers(&events, 1, 10).await, [1, 2, 1_003, 1_004]);
    assert_eq!(events.claim(&key(), Epoch(2)).await.unwrap(), 1_004);
}

#[tokio::test]
async fn events_are_visible_only_to_their_tenant() {
    on_all(async |writer| {
        let events = writer();
        events.append(&key(), Epoch::FIRST, &[event(1)]).await.unwrap();
        for tenant in ["../local", "other", ""] {
            let other = RunKey { tenant: tenant.into(), ..key() };
            assert_eq!(events.read(&other, 1, 10).await.unwrap(), []);
            assert_eq!(events.last(&other).await.unwrap(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn event_log_that_another_process_removed_is_created_again() {
    let directory = tempfile::tempdir().unwrap();
    let events = FileEvents::of(&Home::at(directory.path()));
    let runs: Vec<RunKey> =
        (1..=30).map(|run| RunKey { tenant: "local".into(), run: SessionId(run) }).collect();
    for seq in 1..=3 {
        for run in &runs {
            events.append(run, Epoch::FIRST, &[event(seq)]).await.unwrap();
        }
    }
    for run in &runs {
        assert_eq!(events.read(run, 1, 10).await.unwrap().len(), 3);
    }
    std::fs::remove_dir_all(directory.path().join("data/events")).unwrap();
    let last = runs.last().unwrap();
    events.append(last, Epoch::FIRST, &[event(4)]).await.unwrap();
    events.append(last, Epoch::FIRST, &[event(5)]).await.unwrap();
    let left: Vec<u64> = events.read(last, 4, 10).await.unwrap().iter().map(|event| event.seq).collect();
    assert_eq!(left, [4, 5]);
    events.claim(last, Epoch(2)).await.unwrap();
    events.append(last, Epoch(2), &[event(6)]).await.unwrap();
    std::fs::remove_dir_all(directory.path().join("data/events")).unwrap();
    events.append(last, Epoch(2), &[event(7)]).await.unwrap();
    events.append(last, Epoch(2), &[event(8)]).await.unwrap();
    let left: Vec<u64> = events.read(last, 1, 10).await.unwrap().iter().map(|event| event.seq).collect();
    assert_eq!(left, [7, 8]);
}

#[tokio::test]
async fn incomplete_last_line_of_an_event_log_is_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let events = FileEvents::of(&Home::at(directory.path()));
    events.append(&key(), Epoch::FIRST, &[event(1)]).await.unwrap();
    let mut file = OpenOptions::new().append(true).open(events.path(&key())).unwrap();
    file.write_all(b"{\"seq\":2,\"ru").unwrap();
    assert_eq!(events.read(&key(), 1, 10).await.unwrap().len(), 1);
    assert_eq!(events.last(&key()).await.unwrap(), 1);
    assert_eq!(events.claim(&key(), Epoch(2)).await.unwrap(), 1);
    events.append(&key(), Epoch(2), &[event(2)]).await.unwrap();
    assert_eq!(numbers(&events, 1, 10).await, [1, 2], "the incomplete line does not damage the next one");
}

#[tokio::test]
async fn numbers_of_events_that_could_not_be_stored_are_not_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let home = Home::at(directory.path());
    let first = FileEvents::of(&home);
    first.append(&key(), Epoch::FIRST, &[event(1), event(2)]).await.unwrap();
    let (path, aside) = (first.path(&key()), directory.path().join("aside"));
    std::fs::rename(&path, &aside).unwrap();
    // Every write to this device fails as on a full disk.
    symlink("/dev/full", &path).unwrap();
    let full = FileEvents::of(&home);
    let failed = full.append(&key(), Epoch::FIRST, &[event(3)]).await;
    assert!(matches!(failed, Err(StoreError::Unavailable { .. })), "{failed:?}");
    std::fs::rename(&aside, &path).unwrap();
    let next = FileEvents::of(&home);
    let last = next.claim(&key(), Epoch(2)).await.unwrap();
    assert_eq!((last, FileEvents::of(&home).last(&key()).await), (3 + UNSTORED_MAX, Ok(last)));
    next.append(&key(), Epoch(2), &[event(last + 1)]).await.unwrap();
    assert_eq!(numbers(&next, 1, 10).await, [1, 2, last + 1]);
    assert_eq!(FileEvents::of(&home).claim(&key(), Epoch(3)).await, Ok(last + 1));
    next.remove(&key()).unwrap();
    assert_eq!(FileEvents::of(&home).last(&key()).await, Ok(0));
}

#[test]
fn sweep_by_age_removes_only_logs_of_the_local_user() {
    let directory = tempfile::tempdir().unwrap();
    let events = FileEvents::of(&Home::at(directory.path()));
    let logs = ["local", "acme"].map(|tenant| {
        let path = events.path(&RunKey { tenant: tenant.into(), run: SessionId(1) });
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "x").unwrap();
        path
    });
    let hour = Duration::from_hours(1);
    events.sweep(hour, SystemTime::now());
    assert!(logs.iter().all(|log| log.exists()));
    events.sweep(hour, SystemTime::now() + 2 * hour);
    assert!(!logs[0].exists() && logs[1].exists());
}

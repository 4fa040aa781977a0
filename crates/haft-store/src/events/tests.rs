use haft_core::event_log::LogEvent;
use haft_core::position::{RunPosition, SessionId};

use super::*;

fn event(seq: u64) -> Arc<EventEnvelope> {
    let text = LogEvent::TextDelta { text: format!("{seq}") };
    Arc::new(EventEnvelope::new(seq, Some(seq), RunPosition::first(SessionId(1)), text))
}

fn key() -> RunKey {
    RunKey { tenant: "local".into(), run: SessionId(1) }
}

/// Runs a test on every store. The function makes a further writer of the same logs, such as another process.
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
            events.append(&key(), part).await.unwrap();
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
async fn fenced_writer_cannot_append_events() {
    on_all(async |writer| {
        let (old, new) = (writer(), writer());
        old.append(&key(), &[event(1), event(2)]).await.unwrap();
        assert_eq!(new.last(&key()).await.unwrap(), 2);
        new.append(&key(), &[event(1_003)]).await.unwrap();
        old.append(&key(), &[event(3), event(4)]).await.unwrap_err();
        assert_eq!(numbers(&*new, 1, 10).await, [1, 2, 1_003]);
        assert_eq!(numbers(&*new, 3, 10).await, [1_003]);
        assert_eq!(writer().last(&key()).await.unwrap(), 1_003, "no number is used twice");
    })
    .await;
}

#[tokio::test]
async fn last_events_of_a_fenced_writer_do_not_stop_its_successor() {
    on_all(async |writer| {
        let (old, new) = (writer(), writer());
        old.append(&key(), &[event(1)]).await.unwrap();
        assert_eq!(new.last(&key()).await.unwrap(), 1);
        old.append(&key(), &[event(2)]).await.unwrap();
        new.append(&key(), &[event(1_002)]).await.unwrap();
        new.append(&key(), &[event(1_003)]).await.unwrap();
        old.append(&key(), &[event(3)]).await.unwrap_err();
        new.append(&key(), &[event(1_004)]).await.unwrap();
        assert_eq!(numbers(&*new, 1, 10).await, [1, 2, 1_002, 1_003, 1_004]);
    })
    .await;
}

#[tokio::test]
async fn events_are_visible_only_to_their_tenant() {
    on_all(async |writer| {
        let events = writer();
        events.append(&key(), &[event(1)]).await.unwrap();
        for tenant in ["../local", "other", ""] {
            let other = RunKey { tenant: tenant.into(), ..key() };
            assert_eq!(events.read(&other, 1, 10).await.unwrap(), []);
            assert_eq!(events.last(&other).await.unwrap(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn log_that_another_process_removed_begins_again() {
    let directory = tempfile::tempdir().unwrap();
    let events = FileEvents::of(&Home::at(directory.path()));
    let runs: Vec<RunKey> =
        (1..=30).map(|run| RunKey { tenant: "local".into(), run: SessionId(run) }).collect();
    for seq in 1..=3 {
        for run in &runs {
            events.append(run, &[event(seq)]).await.unwrap();
        }
    }
    for run in &runs {
        assert_eq!(events.read(run, 1, 10).await.unwrap().len(), 3);
    }
    std::fs::remove_dir_all(directory.path().join("data/events")).unwrap();
    let last = runs.last().unwrap();
    events.append(last, &[event(4)]).await.unwrap();
    events.append(last, &[event(5)]).await.unwrap();
    let left: Vec<u64> = events.read(last, 4, 10).await.unwrap().iter().map(|event| event.seq).collect();
    assert_eq!(left, [4, 5]);
}

#[tokio::test]
async fn incomplete_last_line_is_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let events = FileEvents::of(&Home::at(directory.path()));
    events.append(&key(), &[event(1)]).await.unwrap();
    let mut file = OpenOptions::new().append(true).open(events.path(&key())).unwrap();
    file.write_all(b"{\"seq\":2,\"ru").unwrap();
    assert_eq!(events.read(&key(), 1, 10).await.unwrap().len(), 1);
    assert_eq!(events.last(&key()).await.unwrap(), 1);
}

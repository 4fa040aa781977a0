use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use haft_core::model_event::{ModelEvent, PartDelta, PartStart};
use haft_core::output_store::StoreError;
use haft_core::position::SessionId;
use haft_core::run::event::RunEvent;
use proptest::prelude::*;
use tokio::time::{advance, pause};

use super::*;

const PLACE: RunPosition = RunPosition::first(SessionId(1));

/// An event store in memory that can simulate a full disk.
#[derive(Default)]
struct EventsInTest {
    events: Mutex<BTreeMap<u64, EventEnvelope>>,
    fails: AtomicBool,
    epoch: AtomicU64,
}

impl EventStore for EventsInTest {
    fn claim<'a>(&'a self, key: &'a RunKey, epoch: Epoch) -> BoxFuture<'a, Result<u64, StoreError>> {
        self.epoch.store(epoch.0, Ordering::Relaxed);
        self.last(key)
    }

    fn append<'a>(
        &'a self,
        _: &'a RunKey,
        epoch: Epoch,
        events: &'a [Arc<EventEnvelope>],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            if epoch.0 < self.epoch.load(Ordering::Relaxed) {
                return Err(StoreError::Fenced);
            }
            if self.fails.load(Ordering::Relaxed) {
                return Err(StoreError::Unavailable { reason: "no space left on device".into() });
            }
            let mut stored = self.events.lock().unwrap();
            stored.extend(events.iter().map(|event| (event.seq, EventEnvelope::clone(event))));
            Ok(())
        })
    }

    fn last<'a>(&'a self, _: &'a RunKey) -> BoxFuture<'a, Result<u64, StoreError>> {
        let last = self.events.lock().unwrap().keys().next_back().copied().unwrap_or(0);
        Box::pin(async move { Ok(last) })
    }

    fn read<'a>(
        &'a self,
        _: &'a RunKey,
        from: u64,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<EventEnvelope>, StoreError>> {
        let stored = self.events.lock().unwrap();
        let found = stored.range(from..).take(count).map(|(_, event)| event.clone()).collect();
        Box::pin(async move { Ok(found) })
    }
}

fn key() -> RunKey {
    RunKey { tenant: "local".into(), run: SessionId(1) }
}

fn said(event: ModelEvent) -> Event {
    Event::Run { place: PLACE, event: Arc::new(RunEvent::Model(event)) }
}

fn start_text(log: &EventLog) {
    log.emit(said(ModelEvent::PartStarted { index: 0, part: PartStart::Text, mark: None }));
}

fn delta(log: &EventLog, text: &str) {
    log.emit(said(ModelEvent::PartDelta { index: 0, delta: PartDelta::Text(text.into()) }));
}

fn note(log: &EventLog, number: usize) {
    log.append(
        PLACE,
        LogEvent::Note { kind: "n".into(), text: number.to_string(), status: None, reply: None },
    );
}

/// Returns the numbers of all events until the log ends.
async fn numbers(mut events: RunEvents) -> Vec<u64> {
    let mut found = Vec::new();
    while let Some(event) = events.next().await {
        found.push(event.unwrap().seq);
    }
    found
}

fn texts(log: &EventLog) -> Vec<String> {
    let state = log.shared.state();
    let text = |event: &Arc<EventEnvelope>| match &event.event.kind {
        LogEvent::TextDelta { text } => text.clone(),
        other => format!("{other:?}"),
    };
    state.events.iter().map(text).collect()
}

#[tokio::test]
async fn deltas_after_the_first_are_merged_during_the_interval() {
    pause();
    let log = EventLog::in_memory();
    start_text(&log);
    for piece in ["a", "b", "c"] {
        delta(&log, piece);
    }
    assert_eq!(texts(&log), ["a"], "later deltas wait for the interval");
    advance(DELTA_INTERVAL).await;
    delta(&log, "d");
    assert_eq!(texts(&log), ["a", "bcd"]);
    advance(DELTA_INTERVAL).await;
    delta(&log, "e");
    assert_eq!(texts(&log), ["a", "bcd", "e"], "a delta after the interval is immediate");
}

#[tokio::test]
async fn pending_delta_is_emitted_after_the_interval() {
    pause();
    let log = EventLog::in_memory();
    let mut events = log.events(EventSeq::START);
    start_text(&log);
    delta(&log, "a");
    delta(&log, "b");
    assert_eq!(events.next().await.unwrap().unwrap().seq, 1);
    // The clock is paused. tokio advances it while every task waits, so this call does not take any real time.
    let second = events.next().await.unwrap().unwrap();
    assert_eq!(second.event.kind, LogEvent::TextDelta { text: "b".into() });
}

#[tokio::test]
async fn pending_delta_is_emitted_before_the_next_event() {
    let log = EventLog::in_memory();
    start_text(&log);
    delta(&log, "a");
    delta(&log, "b");
    log.emit(Event::Run { place: PLACE, event: Arc::new(RunEvent::Asked) });
    assert_eq!(texts(&log), ["a", "b", "TurnStarted"]);
}

#[tokio::test]
async fn event_after_a_pending_delta_does_not_wait_for_more_deltas() {
    pause();
    for log in [EventLog::in_memory(), EventLog::stored(key(), Arc::new(EventsInTest::default()), 1)] {
        let (began, mut events) = (Instant::now(), log.events(EventSeq::START));
        start_text(&log);
        for piece in ["a", "b"] {
            delta(&log, piece);
            // Let the pump see the pending delta.
            tokio::task::yield_now().await;
        }
        log.emit(Event::Run { place: PLACE, event: Arc::new(RunEvent::Asked) });
        for _ in 0..3 {
            events.next().await.unwrap().unwrap();
        }
        delta(&log, "c");
        delta(&log, "d");
        tokio::task::yield_now().await;
        log.close();
        while events.next().await.is_some() {}
        // The paused clock moves only while all tasks sleep, so zero shows that no event waited for the interval.
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

#[tokio::test]
async fn slow_reader_of_an_unstored_run_gets_a_gap_error() {
    let log = EventLog::in_memory();
    let mut events = log.events(EventSeq::START);
    (0..EVENTS_MAX + 10).for_each(|number| note(&log, number));
    log.close();
    let gap = events.next().await.unwrap().unwrap_err();
    assert_eq!(gap, EventGap { first: 1, last: 10 });
    assert_eq!(events.next().await.unwrap().unwrap().seq, 11);
}

#[tokio::test]
async fn slow_reader_of_a_stored_run_gets_every_event() {
    let store = Arc::new(EventsInTest::default());
    let log = EventLog::stored(key(), store, 1);
    let slow = log.events(EventSeq::START);
    for number in 0..3 * EVENTS_MAX {
        note(&log, number);
        if number % 1000 == 0 {
            tokio::task::yield_now().await;
        }
    }
    log.flushed().await;
    assert!(
        log.shared.state().events.len() <= EVENTS_MAX,
        "the log keeps more than EVENTS_MAX events in memory"
    );
    log.close();
    assert_eq!(numbers(slow).await, (1..=3 * EVENTS_MAX as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn stored_events_are_dropped_from_memory_if_there_is_no_reader() {
    pause();
    let store = Arc::new(EventsInTest::default());
    let log = EventLog::stored(key(), Arc::clone(&store) as _, 1);
    (0..100).for_each(|number| note(&log, number));
    tokio::task::yield_now().await;
    assert_eq!(store.events.lock().unwrap().len(), 0, "the log stores events only after STORE_INTERVAL");
    tokio::time::sleep(2 * STORE_INTERVAL).await;
    assert_eq!(store.events.lock().unwrap().len(), 100);
    assert_eq!(log.shared.state().events.len(), UNREAD_EVENTS_MAX);
    let events = log.events(EventSeq::START);
    (100..103).for_each(|number| note(&log, number));
    log.close();
    assert_eq!(numbers(events).await, (1..=103).collect::<Vec<u64>>(), "a later reader gets every event");
}

#[tokio::test]
async fn failing_event_store_loses_no_event_in_memory() {
    let store = Arc::new(EventsInTest::default());
    let log = EventLog::stored(key(), Arc::clone(&store) as _, 1);
    note(&log, 0);
    log.flushed().await;
    store.fails.store(true, Ordering::Relaxed);
    (1..5).for_each(|number| note(&log, number));
    log.flushed().await;
    log.close();
    assert_eq!(numbers(log.events(EventSeq::START)).await, [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn idle_reader_does_not_block_10000_other_readers() {
    let log = EventLog::in_memory();
    let _never_reads = log.events(EventSeq::START);
    let readers: Vec<_> = (0..10_000).map(|_| numbers(log.events(EventSeq::START))).collect();
    let mut reading = Box::pin(join_all(readers));
    assert!((&mut reading).now_or_never().is_none(), "every reader waits for the first event");
    (0..3).for_each(|number| note(&log, number));
    log.close();
    assert!(reading.await.iter().all(|found| found == &[1, 2, 3]));
}

#[tokio::test]
async fn sequence_numbers_continue_after_resume() {
    let store = Arc::new(EventsInTest::default());
    let first = EventLog::stored(key(), Arc::clone(&store) as _, 1);
    note(&first, 0);
    note(&first, 1);
    first.flushed().await;
    drop(first);
    let second = EventLog::unclaimed(key(), store, 3);
    second.claim(Epoch(2)).await;
    note(&second, 2);
    second.close();
    assert_eq!(numbers(second.events(EventSeq::START)).await, [1, 2, 3]);
}

/// If this process ends, the next process gives the numbers of unstored events to other events.
#[tokio::test]
async fn readers_see_no_event_before_it_is_stored() {
    let log = EventLog::stored(key(), Arc::new(EventsInTest::default()), 1);
    let mut events = log.events(EventSeq::START);
    note(&log, 0);
    assert_eq!(events.next().await.unwrap().unwrap().seq, 1);
    note(&log, 1);
    assert!(events.next().now_or_never().is_none(), "the event is visible before it is stored");
    assert_eq!(events.next().await.unwrap().unwrap().seq, 2);
}

#[tokio::test]
async fn claimed_log_continues_the_numbers_of_the_fenced_log() {
    let store = Arc::new(EventsInTest::default());
    let old = EventLog::stored(key(), Arc::clone(&store) as _, 1);
    note(&old, 0);
    old.flushed().await;
    let new = EventLog::unclaimed(key(), Arc::clone(&store) as _, 2);
    note(&new, 10);
    note(&old, 1);
    old.flushed().await;
    assert_eq!(store.events.lock().unwrap().len(), 2, "the new log stores no event before its claim");
    new.claim(Epoch(2)).await;
    assert_eq!(new.first_of_process(), EventSeq(3));
    note(&old, 2);
    note(&new, 11);
    new.close();
    assert_eq!(numbers(new.events(EventSeq::START)).await, [1, 2, 3, 4]);
    assert_eq!(numbers(old.events(EventSeq::START)).await, [1, 2]);
    let text = |seq: u64| format!("{:?}", store.events.lock().unwrap()[&seq].event.kind);
    assert!(text(2).contains("\"1\"") && text(3).contains("\"10\"") && text(4).contains("\"11\""));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Readers that start at any event and pause at any time see every event once and in order.
    #[test]
    fn readers_see_every_event_once(
        steps in prop::collection::vec((0_usize..5, 0_u64..40), 1..60),
        stored in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let log = if stored {
                EventLog::stored(key(), Arc::new(EventsInTest::default()), 1)
            } else {
                EventLog::in_memory()
            };
            let mut readers: Vec<(u64, RunEvents, Vec<u64>)> = Vec::new();
            for (step, number) in steps {
                match step {
                    0 | 1 => (0..number).for_each(|at| note(&log, usize::try_from(at).unwrap())),
                    2 => readers.push((number.max(1), log.events(EventSeq(number)), Vec::new())),
                    3 => tokio::task::yield_now().await,
                    _ => {
                        for (_, events, found) in &mut readers {
                            while let Some(Some(event)) = events.next().now_or_never() {
                                found.push(event.unwrap().seq);
                            }
                        }
                    }
                }
            }
            let last = log.shared.state().next;
            log.close();
            for (from, events, mut found) in readers {
                found.extend(numbers(events).await);
                assert_eq!(found, (from..last).collect::<Vec<_>>());
            }
        });
    }
}

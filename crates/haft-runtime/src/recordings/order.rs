//! The order in which watchers saw concurrent events.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haft_core::event::{Event, EventSink};
use haft_core::position::RunPosition;
use haft_core::run::event::RunEvent;
use haft_models::cassette::{Recording, RecordingError, Tape};
use serde::{Deserialize, Serialize};

use super::line::{TYPE_END, TYPE_ORDER};

/// A source of events whose order is the same in every replay: a run itself, or one of its calls.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct EventLane {
    session: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<(u32, String)>,
}

impl EventLane {
    pub(super) fn of(event: &Event) -> Self {
        match event {
            Event::ToolStarted { operation, .. }
            | Event::ToolProgress { operation, .. }
            | Event::ToolFinished { operation, .. } => Self::of_call(operation.place, &operation.call.0),
            Event::ModelStarted { place, .. } | Event::ModelFinished { place, .. } => Self::of_run(*place),
            Event::Run { place, event } => match &**event {
                RunEvent::Answered(answered) => Self::of_call(*place, &answered.call.0),
                RunEvent::Began(_)
                | RunEvent::Asked
                | RunEvent::Model(_)
                | RunEvent::Called(_)
                | RunEvent::Noted(_)
                | RunEvent::Finished { .. } => Self::of_run(*place),
            },
        }
    }

    fn of_run(place: RunPosition) -> Self {
        Self { session: place.session.to_string(), call: None }
    }

    fn of_call(place: RunPosition, call: &str) -> Self {
        Self { call: Some((place.turn, call.to_owned())), ..Self::of_run(place) }
    }
}

/// Several consecutive events of one lane. The first span of a lane describes the lane; later spans refer to it by
/// number.
#[derive(Debug, Serialize, Deserialize)]
struct LaneSpan {
    lane: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<EventLane>,
    events: u64,
}

/// Records the order of events: one line for each change of the lane.
#[derive(Debug, Default)]
pub(super) struct OrderWriter {
    lanes: HashMap<EventLane, usize>,
    /// The current lane, and the number of its consecutive events so far.
    open: Option<LaneSpan>,
}

impl OrderWriter {
    pub(super) fn see(&mut self, event: &Event, tape: &Tape) {
        let lane = EventLane::of(event);
        let known = self.lanes.get(&lane).copied();
        match &mut self.open {
            Some(open) if known == Some(open.lane) => open.events += 1,
            Some(_) | None => {
                self.end(tape);
                let number = known.unwrap_or(self.lanes.len());
                let of = known.is_none().then(|| lane.clone());
                self.lanes.insert(lane, number);
                self.open = Some(LaneSpan { lane: number, of, events: 1 });
            }
        }
    }

    pub(super) fn end(&mut self, tape: &Tape) {
        if let Some(stretch) = self.open.take() {
            tape.write(TYPE_ORDER, &stretch);
        }
    }
}

/// Forwards events in the order of a recording, independent of the order in which they arrive.
pub(super) struct RecordedOrderSink {
    left: Mutex<RemainingOrder>,
    /// True if the recording has an end line. The sink then drops events that the recorded order does not contain,
    /// because the recorded run was aborted before watchers saw them.
    is_whole: bool,
    next: Arc<dyn EventSink>,
}

struct RemainingOrder {
    order: VecDeque<(EventLane, u64)>,
    /// Events that arrived before the recorded order needs them, by lane.
    early: HashMap<EventLane, VecDeque<Event>>,
    /// The number of events that arrived so far.
    seen: u64,
}

impl RecordedOrderSink {
    pub(super) fn new(recording: &Recording, next: Arc<dyn EventSink>) -> Result<Self, RecordingError> {
        let mut lanes: Vec<EventLane> = Vec::new();
        let mut order = VecDeque::new();
        for line in recording.of_type(TYPE_ORDER) {
            let LaneSpan { lane, of, events } = recording.parse(line)?;
            lanes.extend(of);
            let unknown = || {
                RecordingError::line(
                    recording.path(),
                    line.number,
                    "the recording refers to an event source that it does not define",
                )
            };
            order.push_back((lanes.get(lane).cloned().ok_or_else(unknown)?, events));
        }
        let left = Mutex::new(RemainingOrder { order, early: HashMap::new(), seen: 0 });
        Ok(Self { left, is_whole: recording.of_type(TYPE_END).next().is_some(), next })
    }

    /// Returns the number of events that arrived so far.
    pub(super) fn seen(&self) -> u64 {
        self.left().seen
    }

    /// Ends the input. Forwards the events that still wait for an earlier event, because that event will never arrive.
    pub(super) fn end(&self) {
        let mut left = self.left();
        while let Some((lane, _)) = left.order.pop_front() {
            left.early.remove(&lane).into_iter().flatten().for_each(|event| self.next.emit(event));
        }
        let early = std::mem::take(&mut left.early);
        early.into_values().flatten().for_each(|event| self.beyond(event));
    }

    /// Handles an event that the recorded order does not contain: forwards it only if the recording is incomplete.
    fn beyond(&self, event: Event) {
        if !self.is_whole {
            self.next.emit(event);
        }
    }

    fn left(&self) -> MutexGuard<'_, RemainingOrder> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RemainingOrder {
    /// Returns the next event of the recorded order, if it has arrived.
    fn next(&mut self) -> Option<Event> {
        let (lane, events) = self.order.front_mut()?;
        let event = self.early.get_mut(lane)?.pop_front()?;
        *events = events.saturating_sub(1);
        if *events == 0 {
            self.order.pop_front();
        }
        Some(event)
    }
}

impl EventSink for RecordedOrderSink {
    /// Forwards events under the lock, so that no other thread can change their order.
    fn emit(&self, event: Event) {
        let mut left = self.left();
        left.seen += 1;
        if left.order.is_empty() {
            return self.beyond(event);
        }
        left.early.entry(EventLane::of(&event)).or_default().push_back(event);
        while let Some(event) = left.next() {
            self.next.emit(event);
        }
    }
}

impl std::fmt::Debug for RecordedOrderSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordedOrderSink").field("seen", &self.seen()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use haft_core::position::SessionId;
    use haft_core::run::event::RunEvent;

    use super::*;

    #[derive(Default)]
    struct OrderedEventCollector(Mutex<Vec<Event>>);

    impl EventSink for OrderedEventCollector {
        fn emit(&self, event: Event) {
            self.0.lock().unwrap().push(event);
        }
    }

    /// Returns an event that can be identified by its session and turn.
    fn event(session: u128, turn: u32) -> Event {
        let place = RunPosition { turn, ..RunPosition::first(SessionId(session)) };
        Event::Run { place, event: Arc::new(RunEvent::Asked) }
    }

    #[test]
    fn events_are_emitted_in_the_recorded_order() {
        let was = [(1, 1), (2, 1), (2, 2), (1, 2), (3, 1), (1, 3)];
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.jsonl");
        let tape = Tape::create(&path, []).unwrap();
        let mut writer = OrderWriter::default();
        for (session, turn) in was {
            writer.see(&event(session, turn), &tape);
        }
        writer.end(&tape);
        let recording = Recording::read(&path).unwrap();
        let expected = was.map(|(session, turn)| event(session, turn)).to_vec();
        for comes in [
            was,
            [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)],
            [(3, 1), (2, 1), (2, 2), (1, 1), (1, 2), (1, 3)],
        ] {
            let seen = Arc::new(OrderedEventCollector::default());
            let conductor = RecordedOrderSink::new(&recording, Arc::clone(&seen) as _).unwrap();
            for (session, turn) in comes {
                conductor.emit(event(session, turn));
            }
            conductor.end();
            assert_eq!(*seen.0.lock().unwrap(), expected, "{comes:?}");
        }
    }

    #[test]
    fn unrecorded_events_of_a_finished_recording_are_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let seen_of = |ended: bool| {
            let path = directory.path().join(format!("{ended}.jsonl"));
            let tape = Tape::create(&path, []).unwrap();
            let mut writer = OrderWriter::default();
            writer.see(&event(1, 1), &tape);
            writer.end(&tape);
            if ended {
                tape.write(TYPE_END, &serde_json::json!({}));
            }
            let seen = Arc::new(OrderedEventCollector::default());
            let conductor =
                RecordedOrderSink::new(&Recording::read(&path).unwrap(), Arc::clone(&seen) as _).unwrap();
            for event in [event(2, 1), event(1, 1), event(1, 2)] {
                conductor.emit(event);
            }
            conductor.end();
            seen.0.lock().unwrap().clone()
        };
        assert_eq!(seen_of(true), [event(1, 1)]);
        // A truncated recording does not show which further events watchers saw, so all of them are forwarded.
        assert_eq!(seen_of(false), [event(1, 1), event(1, 2), event(2, 1)]);
    }

    #[test]
    fn events_waiting_for_a_missing_event_are_emitted_at_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.jsonl");
        let tape = Tape::create(&path, []).unwrap();
        let mut writer = OrderWriter::default();
        for event in [event(1, 1), event(2, 1)] {
            writer.see(&event, &tape);
        }
        writer.end(&tape);
        let seen = Arc::new(OrderedEventCollector::default());
        let conductor =
            RecordedOrderSink::new(&Recording::read(&path).unwrap(), Arc::clone(&seen) as _).unwrap();
        for event in [event(2, 1), event(3, 1)] {
            conductor.emit(event);
        }
        assert!(seen.0.lock().unwrap().is_empty());
        conductor.end();
        assert_eq!(*seen.0.lock().unwrap(), [event(2, 1), event(3, 1)]);
    }
}

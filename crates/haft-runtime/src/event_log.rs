//! The event log of one root run: numbers events, keeps the newest in memory, and delivers them to any number of
//! readers.
//!
//! The run only appends under a short lock. A separate task (`pump`) wakes readers and writes to the store, so that
//! neither 10,000 readers nor a slow disk can slow the run. A log in memory with few readers wakes them itself: a short
//! run would otherwise spend a large part of its time on switches between tasks.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haft_core::event::{Event, EventSink};
use haft_core::event_log::{EventEnvelope, EventReader, LogCitation, LogEvent};
use haft_core::event_store::{EventStore, RunKey};
use haft_core::output_store::StoreError;
use haft_core::position::RunPosition;
use haft_core::run::journal::Epoch;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

/// Deltas of one part that arrive faster than this are joined into one event.
const DELTA_INTERVAL: Duration = Duration::from_millis(30);

/// The time for which the pump collects events for one write to the store while the run has no reader. One write for
/// each event takes 15 % of the CPU time of a short turn. With a reader, the pump stores events at once.
const STORE_INTERVAL: Duration = Duration::from_millis(20);

/// The maximum number of events that are kept in memory. A reader that is further behind reads from the store, or
/// misses events.
const EVENTS_MAX: usize = 4096;

/// The maximum number of stored events that are kept in memory while the run has no reader. A later reader reads the
/// older events from the store, so a thousand long runs without readers take little memory.
const UNREAD_EVENTS_MAX: usize = 16;

/// The maximum total text of the events in memory, in bytes.
const BYTES_MAX: usize = 8 << 20;

/// The maximum number of events that one read of the store returns.
const READ_MAX: usize = 512;

/// The maximum number of readers that a log without a store wakes directly from `append`. With more readers, the pump
/// task wakes them.
const READERS_WOKEN_MAX: usize = 16;

/// The number of an event; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventSeq(pub u64);

impl EventSeq {
    /// The number of the first event.
    pub const START: EventSeq = EventSeq(1);
}

/// Receives the events of a run. Clones share the log.
#[derive(Clone)]
pub struct EventLog {
    shared: Arc<EventLogShared>,
}

struct EventLogShared {
    state: Mutex<EventLogState>,
    /// The tokio runtime that runs the pump.
    runtime: Handle,
    /// True after the pump has started. A log in memory starts it only when it is needed.
    has_pump: AtomicBool,
    /// Wakes the pump, the task that wakes the readers. An append only wakes the pump, so its cost does not depend on
    /// the number of readers.
    changed: Arc<Notify>,
    /// Ends the interval between two writes to the store early, because a reader has connected or the log must be
    /// complete now.
    hurried: Arc<Notify>,
    /// The number of the next event, as the log publishes it to readers.
    next: watch::Sender<u64>,
    store: Option<(RunKey, Arc<dyn EventStore>)>,
}

struct EventLogState {
    reader: EventReader,
    events: VecDeque<Arc<EventEnvelope>>,
    bytes: usize,
    /// The number that the next event gets.
    next: u64,
    /// The number of the first event that this process appends.
    first_of_process: u64,
    /// All events with a lower number are in the store.
    stored: u64,
    access: StoreAccess,
    delta: Option<PendingDelta>,
    /// The part whose delta was appended last, and the time of this delta.
    last_delta: Option<(RunPosition, DeltaKind, Instant)>,
    closed: bool,
}

/// The right of this process to write the stored log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreAccess {
    /// This process has not claimed the log yet, and another process may still write it. Readers see no new event of
    /// this process.
    Unclaimed,
    /// This process writes the log. Readers see an event only after it is stored: if another process takes over the
    /// run, it must not give the same number to another event.
    Writer(Epoch),
    /// Another process continues the run. Readers end after the last event that is stored.
    Fenced,
    /// Nothing is stored, or the store failed. Readers see all events that are in memory.
    MemoryOnly,
}

/// A delta that waits for more deltas of the same part.
struct PendingDelta {
    place: RunPosition,
    kind: DeltaKind,
    text: String,
    due: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeltaKind {
    Text,
    Reasoning,
    /// A paragraph of a reasoning summary, by its number.
    Summary(u32),
    Refusal,
}

impl DeltaKind {
    fn event(self, text: String) -> LogEvent {
        match self {
            Self::Text => LogEvent::TextDelta { text },
            Self::Reasoning => LogEvent::ReasoningDelta { text },
            Self::Summary(part) => LogEvent::ReasoningSummaryDelta { part, text },
            Self::Refusal => LogEvent::RefusalDelta { text },
        }
    }
}

impl EventLog {
    /// Creates a log in memory. Must be called inside a tokio runtime.
    pub fn in_memory() -> Self {
        Self::new(None, 1, StoreAccess::MemoryOnly)
    }

    /// Creates the log of a new run, and stores the log too. The first event has the number `next`.
    pub fn stored(key: RunKey, store: Arc<dyn EventStore>, next: u64) -> Self {
        Self::new(Some((key, store)), next, StoreAccess::Writer(Epoch::FIRST))
    }

    /// Opens the event log of a stored run. Readers can read the log, but the log stores nothing before
    /// [`claim`](Self::claim).
    pub fn unclaimed(key: RunKey, store: Arc<dyn EventStore>, next: u64) -> Self {
        Self::new(Some((key, store)), next, StoreAccess::Unclaimed)
    }

    /// Makes this process the writer of the log, after it has claimed the journal of the run with this epoch. The
    /// numbers continue after the last event of the previous process. If the store fails, the log is in memory only.
    pub async fn claim(&self, epoch: Epoch) {
        let Some((key, store)) = &self.shared.store else { return };
        let claimed = store.claim(key, epoch).await;
        let mut state = self.shared.state();
        match claimed {
            Ok(last) => state.continue_after(last, epoch),
            Err(_) => state.access = StoreAccess::MemoryOnly,
        }
        let next = state.stored;
        drop(state);
        self.shared.next.send_replace(next);
        self.wake_pump();
    }

    fn new(store: Option<(RunKey, Arc<dyn EventStore>)>, next: u64, access: StoreAccess) -> Self {
        let state = EventLogState {
            reader: EventReader::default(),
            events: VecDeque::new(),
            bytes: 0,
            next,
            first_of_process: next,
            stored: next,
            access,
            delta: None,
            last_delta: None,
            closed: false,
        };
        Self {
            shared: Arc::new(EventLogShared {
                state: Mutex::new(state),
                runtime: Handle::current(),
                has_pump: AtomicBool::new(false),
                changed: Arc::default(),
                hurried: Arc::default(),
                next: watch::Sender::new(next),
                store,
            }),
        }
    }

    /// Wakes the pump, and starts it if it does not run yet.
    fn wake_pump(&self) {
        let EventLogShared { runtime, has_pump, changed, hurried, .. } = &*self.shared;
        if !has_pump.swap(true, Ordering::AcqRel) {
            runtime.spawn(pump(Arc::downgrade(&self.shared), Arc::clone(changed), Arc::clone(hurried)));
        }
        changed.notify_one();
    }

    /// Makes new events visible to readers, or lets the pump do it.
    fn announce(&self, state: MutexGuard<'_, EventLogState>) {
        let (next, waits_for_more) = (state.next, state.delta.is_some());
        drop(state);
        if !self.shared.wakes_readers() {
            return self.wake_pump();
        }
        self.shared.publish(next);
        if waits_for_more {
            self.wake_pump();
        }
    }

    /// Appends an event in the form of the log. Events of the engine and the models come through `EventSink::emit`,
    /// which converts them.
    pub fn append(&self, place: RunPosition, event: LogEvent) {
        let mut state = self.shared.state();
        state.append(place, event);
        self.announce(state);
    }

    /// Closes the log. Readers end after the last event.
    pub fn close(&self) {
        let mut state = self.shared.state();
        state.flush();
        state.closed = true;
        self.announce(state);
        // Wake the pump, if there is one, so that it stores the last events and ends.
        self.shared.changed.notify_one();
        self.shared.hurried.notify_one();
    }

    /// Waits until all events so far are stored, or the store has failed.
    pub async fn flushed(&self) {
        let target = self.shared.state().next;
        let mut next = self.shared.next.subscribe();
        self.shared.hurried.notify_one();
        // Ignore the error: the channel closes only together with the log.
        let _ = next.wait_for(|position| *position >= target).await;
    }

    /// Returns the number of the first event that this process appends.
    pub fn first_of_process(&self) -> EventSeq {
        EventSeq(self.shared.state().first_of_process)
    }

    /// Returns the events starting at this number: first the past ones, then the new ones, without gaps or repetitions.
    pub fn events(&self, from: EventSeq) -> RunEvents {
        let from = from.0.max(1);
        let position = self.shared.next.subscribe();
        self.shared.hurried.notify_one();
        RunEvents { shared: Arc::clone(&self.shared), next: from, position, read: VecDeque::new() }
    }
}

impl EventSink for EventLog {
    fn emit(&self, event: Event) {
        let mut state = self.shared.state();
        if let Some((place, event)) = state.reader.read(&event) {
            let had_delta = state.delta.is_some();
            state.take(place, event, Instant::now());
            let has_flushed = had_delta && state.delta.is_none();
            self.announce(state);
            if has_flushed {
                // Tell the pump not to wait for more deltas.
                self.shared.hurried.notify_one();
            }
        }
    }
}

impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog").field("next", &self.shared.state().next).finish_non_exhaustive()
    }
}

impl EventLogShared {
    /// Returns true if the pump may collect events before it writes them to the store: no reader is connected, and the
    /// log is not closed.
    fn may_wait(&self) -> bool {
        self.store.is_some() && self.next.receiver_count() == 0 && !self.state().closed
    }

    /// Returns true if the task that changes the log wakes the readers itself. This holds for a small number of
    /// readers without a store; with a store, readers must wait for a write.
    fn wakes_readers(&self) -> bool {
        self.store.is_none() && self.next.receiver_count() <= READERS_WOKEN_MAX
    }

    /// Wakes all readers. The published position never moves back, even if the pump is slower than the run.
    fn publish(&self, next: u64) {
        self.next.send_modify(|position| *position = next.max(*position));
    }

    fn state(&self) -> MutexGuard<'_, EventLogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventLogState {
    /// Appends an event. Appends the first delta of a part at once, and joins the deltas that follow within
    /// [`DELTA_INTERVAL`] into one event.
    fn take(&mut self, place: RunPosition, event: LogEvent, now: Instant) {
        let (kind, text) = match event {
            LogEvent::TextDelta { text } => (DeltaKind::Text, text),
            LogEvent::ReasoningDelta { text } => (DeltaKind::Reasoning, text),
            LogEvent::ReasoningSummaryDelta { part, text } => (DeltaKind::Summary(part), text),
            LogEvent::RefusalDelta { text } => (DeltaKind::Refusal, text),
            other => {
                self.flush();
                self.last_delta = None;
                return self.append(place, other);
            }
        };
        match &mut self.delta {
            Some(pending) if pending.place == place && pending.kind == kind => {
                pending.text.push_str(&text);
                if pending.due <= now {
                    self.flush();
                }
                return;
            }
            Some(_) => self.flush(),
            None => {}
        }
        let recent = self.last_delta.filter(|(last, of, at)| {
            *last == place && *of == kind && now.duration_since(*at) < DELTA_INTERVAL
        });
        if let Some((.., at)) = recent {
            self.delta = Some(PendingDelta { place, kind, text, due: at + DELTA_INTERVAL });
        } else {
            self.last_delta = Some((place, kind, now));
            self.append(place, kind.event(text));
        }
    }

    fn flush(&mut self) {
        if let Some(PendingDelta { place, kind, text, .. }) = self.delta.take() {
            self.last_delta = Some((place, kind, Instant::now()));
            self.append(place, kind.event(text));
        }
    }

    fn append(&mut self, place: RunPosition, event: LogEvent) {
        let envelope = EventEnvelope::new(self.next, Some(now_ms()), place, event);
        self.bytes += size(&envelope);
        self.events.push_back(Arc::new(envelope));
        self.next += 1;
        self.evict();
    }

    /// Drops the oldest events beyond the limits. Keeps events that are not stored yet while the store works, because
    /// the pump is about to write them.
    fn evict(&mut self) {
        let first = |state: &Self| state.next - state.events.len() as u64;
        while (self.events.len() > EVENTS_MAX || self.bytes > BYTES_MAX)
            && (!self.is_stored_later() || first(self) < self.stored)
        {
            if let Some(event) = self.events.pop_front() {
                self.bytes -= size(&event);
            }
        }
    }

    fn is_stored_later(&self) -> bool {
        match self.access {
            StoreAccess::Unclaimed | StoreAccess::Writer(_) => true,
            StoreAccess::Fenced | StoreAccess::MemoryOnly => false,
        }
    }

    /// Returns the number of the first event that readers do not see yet.
    fn readable(&self) -> u64 {
        match self.access {
            StoreAccess::Unclaimed | StoreAccess::Writer(_) | StoreAccess::Fenced => self.stored,
            StoreAccess::MemoryOnly => self.next,
        }
    }

    /// Returns true if the log has no further event for a reader at the number `next`.
    fn has_ended(&self, next: u64) -> bool {
        self.access == StoreAccess::Fenced || (self.closed && self.delta.is_none() && next >= self.next)
    }

    /// Makes this process the writer of the log. Renumbers the events in memory, because the previous process may have
    /// stored more events since this process opened the log.
    fn continue_after(&mut self, last: u64, epoch: Epoch) {
        self.access = StoreAccess::Writer(epoch);
        (self.first_of_process, self.stored, self.next) = (last + 1, last + 1, last + 1);
        for event in &mut self.events {
            Arc::make_mut(event).seq = self.next;
            self.next += 1;
        }
    }

    /// Drops stored events from memory, except the newest [`UNREAD_EVENTS_MAX`]. A later reader reads the older events
    /// from the store.
    fn forget_stored(&mut self) {
        let stored = self.stored.saturating_sub(self.first());
        let stored = usize::try_from(stored).unwrap_or(usize::MAX).min(self.events.len());
        for event in self.events.drain(..stored.saturating_sub(UNREAD_EVENTS_MAX)) {
            self.bytes -= size(&event);
        }
        self.events.shrink_to(UNREAD_EVENTS_MAX);
    }

    fn first(&self) -> u64 {
        self.next - self.events.len() as u64
    }

    fn from(&self, seq: u64) -> impl Iterator<Item = &Arc<EventEnvelope>> {
        let skipped = usize::try_from(seq.saturating_sub(self.first())).unwrap_or(usize::MAX);
        self.events.iter().skip(skipped)
    }
}

/// Stores new events and wakes readers, until the log is closed or dropped.
async fn pump(log: Weak<EventLogShared>, changed: Arc<Notify>, hurried: Arc<Notify>) {
    loop {
        changed.notified().await;
        let Some(may_wait) = log.upgrade().map(|shared| shared.may_wait()) else { return };
        if may_wait {
            // Wait for the end of the interval, for a new reader, or for the end of the log.
            let _ = timeout(STORE_INTERVAL, hurried.notified()).await;
        }
        loop {
            let Some(shared) = log.upgrade() else { return };
            let due = shared.state().delta.as_ref().map(|pending| pending.due);
            let closed = step(&shared).await;
            if closed {
                return;
            }
            drop(shared);
            let Some(due) = due else { break };
            // If another event or the end of the log appends the pending delta early, stop waiting for `due`. Otherwise
            // a response would end up to 30 ms late.
            let is_due = tokio::select! {
                () = sleep_until(due) => true,
                () = hurried.notified() => false,
            };
            let Some(shared) = log.upgrade() else { return };
            if is_due {
                shared.state().flush();
            }
        }
    }
}

/// Runs one round. Returns true when the log is closed and every event is stored.
async fn step(shared: &EventLogShared) -> bool {
    let (next, closed, access, unstored) = {
        let state = shared.state();
        let unstored: Vec<Arc<EventEnvelope>> = match state.access {
            StoreAccess::Writer(_) => state.from(state.stored).cloned().collect(),
            StoreAccess::Unclaimed | StoreAccess::Fenced | StoreAccess::MemoryOnly => Vec::new(),
        };
        (state.next, state.closed, state.access, unstored)
    };
    if let (Some((key, store)), StoreAccess::Writer(epoch), false) =
        (&shared.store, access, unstored.is_empty())
    {
        let stored = store.append(key, epoch, &unstored).await;
        let mut state = shared.state();
        match stored {
            Ok(()) => {
                state.stored = next;
                if shared.next.receiver_count() == 0 {
                    state.forget_stored();
                }
            }
            Err(StoreError::Fenced) => state.access = StoreAccess::Fenced,
            // A full disk must not end the run: readers still get the events in memory.
            Err(StoreError::NotFound | StoreError::Unavailable { .. }) => {
                state.access = StoreAccess::MemoryOnly;
            }
        }
        state.evict();
    }
    shared.publish(next);
    closed && shared.state().next == next
}

/// Reads the events of a run. A reader never blocks the run: a reader that falls too far behind reads from the store,
/// or gets an [`EventGap`] if nothing is stored.
pub struct RunEvents {
    shared: Arc<EventLogShared>,
    next: u64,
    position: watch::Receiver<u64>,
    /// Events that were read from the store and not returned yet.
    read: VecDeque<Arc<EventEnvelope>>,
}

/// Events that a slow reader has missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "events {first} to {last} are not available any more: the run stores no events, and this reader started too late or read too slowly"
)]
pub struct EventGap {
    /// The number of the first missed event.
    pub first: u64,
    /// The number of the last missed event, inclusive.
    pub last: u64,
}

/// The source of the next event.
enum NextEvent {
    Event(Arc<EventEnvelope>),
    InStore { before: u64 },
    Gap(EventGap),
    NotYet,
    Ended,
}

impl RunEvents {
    /// Returns the next event; `None` after the last one of a finished run.
    pub async fn next(&mut self) -> Option<Result<Arc<EventEnvelope>, EventGap>> {
        loop {
            if let Some(event) = self.read.pop_front() {
                self.next = event.seq + 1;
                return Some(Ok(event));
            }
            match self.find() {
                NextEvent::Event(event) => {
                    self.next += 1;
                    return Some(Ok(event));
                }
                NextEvent::Ended => return None,
                NextEvent::Gap(gap) => {
                    self.next = gap.last + 1;
                    return Some(Err(gap));
                }
                NextEvent::InStore { before } => {
                    if let Some(gap) = self.read_store(before).await {
                        self.next = gap.last + 1;
                        return Some(Err(gap));
                    }
                }
                NextEvent::NotYet => {
                    if self.position.changed().await.is_err() {
                        return None;
                    }
                }
            }
        }
    }

    fn find(&self) -> NextEvent {
        let state = self.shared.state();
        let first = state.first();
        if self.next < first {
            let gap = EventGap { first: self.next, last: first - 1 };
            return if self.shared.store.is_some() {
                NextEvent::InStore { before: first }
            } else {
                NextEvent::Gap(gap)
            };
        }
        let readable = state.readable();
        match state.from(self.next).next().filter(|event| event.seq < readable) {
            Some(event) => NextEvent::Event(Arc::clone(event)),
            None if state.has_ended(self.next) => NextEvent::Ended,
            None => NextEvent::NotYet,
        }
    }

    /// Fills the buffer from the store. Returns the gap if the store lacks the events too.
    async fn read_store(&mut self, before: u64) -> Option<EventGap> {
        let gap = EventGap { first: self.next, last: before - 1 };
        let Some((key, store)) = &self.shared.store else { return Some(gap) };
        let events = store.read(key, self.next, READ_MAX).await.unwrap_or_default();
        let earlier = events.into_iter().filter(|event| event.seq < before);
        self.read = earlier.map(Arc::new).collect();
        match self.read.front() {
            Some(event) if event.seq == self.next => None,
            Some(event) => Some(EventGap { last: event.seq - 1, ..gap }),
            None => Some(gap),
        }
    }
}

impl fmt::Debug for RunEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunEvents").field("next", &self.next).finish_non_exhaustive()
    }
}

/// Estimates the memory that an event takes.
fn size(envelope: &EventEnvelope) -> usize {
    const OVERHEAD: usize = 128;
    OVERHEAD
        + match &envelope.event.kind {
            LogEvent::TextDelta { text }
            | LogEvent::ReasoningDelta { text }
            | LogEvent::ReasoningSummaryDelta { text, .. }
            | LogEvent::RefusalDelta { text }
            | LogEvent::ToolProgress { text, .. }
            | LogEvent::ToolResult { text, .. }
            | LogEvent::Note { text, .. } => text.len(),
            LogEvent::Citations { citations } => citations.iter().map(citation_size).sum(),
            LogEvent::ToolCall { arguments, .. } => arguments.len(),
            LogEvent::RunFinished { answer, .. } => answer.as_ref().map_or(0, String::len),
            LogEvent::RunStarted { tools, .. } => tools.iter().map(String::len).sum(),
            LogEvent::TurnStarted
            | LogEvent::ModelFinished { .. }
            | LogEvent::ToolStarted { .. }
            | LogEvent::ToolFinished { .. }
            | LogEvent::ApprovalRequested { .. }
            | LogEvent::ApprovalDecided { .. }
            | LogEvent::ContextCompacted { .. } => 0,
        }
}

fn citation_size(citation: &LogCitation) -> usize {
    size_of::<LogCitation>() + citation.url.len() + citation.title.as_ref().map_or(0, String::len)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

//! Creates usage records from events, and appends them to a store that may fail for some time.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use haft_core::accounting_store::{AccountingLine, AccountingStore};
use haft_core::event::{Event, EventSink};
use haft_core::event_log::{EventEnvelope, EventReader};
use haft_core::output_store::StoreError;
use haft_core::principal::Principal;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::record::now_ms;

/// The pause after a failed write, so that calls do not all try to write to a full disk.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The maximum number of lines that wait for a failing or slow store. Further lines are lost and counted.
const LINES_WAITING_MAX: usize = 1_000;

/// Appends a line for every call and every model request that ends.
///
/// With a store that answers at once, such as files, the line is stored when `emit` returns. A write to any other store
/// continues in a task of the tokio runtime.
pub struct AccountingSink {
    shared: Arc<SinkShared>,
}

struct SinkShared {
    store: Arc<dyn AccountingStore>,
    retry_pause: Duration,
    state: Mutex<SinkState>,
    /// Wakes callers of [`AccountingSink::flush`] when a write ends.
    idle: Notify,
}

#[derive(Default)]
struct SinkState {
    seq: u64,
    waiting: VecDeque<(String, AccountingLine)>,
    /// The number of lost lines of each tenant, because too many lines were waiting.
    lost: BTreeMap<String, u64>,
    failed_at: Option<Instant>,
    is_writing: bool,
}

/// Waiting lines of one tenant.
struct LineBatch {
    tenant: String,
    lines: Vec<AccountingLine>,
}

impl AccountingSink {
    pub fn new(store: Arc<dyn AccountingStore>) -> Self {
        Self::with_pause(store, RETRY_PAUSE)
    }

    pub(super) fn with_pause(store: Arc<dyn AccountingStore>, retry_pause: Duration) -> Self {
        let (state, idle) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(SinkShared { store, retry_pause, state, idle }) }
    }

    /// Returns once all lines so far are stored, or the store has failed again.
    pub async fn flush(&self) {
        loop {
            let idle = self.shared.idle.notified();
            if self.shared.state().begin(Attempt::Now, self.shared.retry_pause) {
                return Arc::clone(&self.shared).write_waiting().await;
            }
            if !self.shared.state().is_writing {
                return;
            }
            idle.await;
        }
    }
}

impl EventSink for AccountingSink {
    fn emit(&self, event: Event) {
        let (Event::ToolFinished { .. } | Event::ModelFinished { .. }) = &event else { return };
        let mut state = self.shared.state();
        state.add(&event);
        if !state.begin(Attempt::AfterPause, self.shared.retry_pause) {
            return;
        }
        drop(state);
        let mut writing = Box::pin(Arc::clone(&self.shared).write_waiting());
        if (&mut writing).now_or_never().is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(writing);
        }
    }
}

impl Drop for AccountingSink {
    /// Tries to write one last time, because the process may end now.
    fn drop(&mut self) {
        if self.shared.state().begin(Attempt::Now, self.shared.retry_pause) {
            // A store that does not answer at once writes nothing here; its callers must use `flush`.
            let _ = Arc::clone(&self.shared).write_waiting().now_or_never();
        }
    }
}

impl SinkShared {
    /// Appends the waiting lines, until there are none or the store fails.
    async fn write_waiting(self: Arc<Self>) {
        while let Some(batch) = { self.state().next_batch() } {
            let stored = self.store.append(&batch.tenant, &batch.lines).await;
            self.state().settle(batch, &stored);
        }
        self.idle.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, SinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Selects whether the first write after a failure waits until the pause has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Now,
    AfterPause,
}

impl SinkState {
    /// Adds the record of an event. Removes the content of a call even if the operator enables content capture, which
    /// is only for log lines and telemetry.
    fn add(&mut self, event: &Event) {
        let Some((place, kind)) = EventReader::with_audit().read(event) else { return };
        let (Some(kind), Some(principal)) = (kind.without_content(), principal_of(event)) else { return };
        let tenant = principal.tenant().to_owned();
        self.seq += 1;
        if self.waiting.len() >= LINES_WAITING_MAX {
            *self.lost.entry(tenant).or_default() += 1;
            return;
        }
        let envelope = EventEnvelope::new(self.seq, Some(now_ms()), place, kind);
        self.waiting.push_back((tenant, AccountingLine::Event(Box::new(envelope))));
    }

    /// Returns true if the caller must write. Returns false while another caller writes, so that lines keep their
    /// order.
    fn begin(&mut self, attempt: Attempt, retry_pause: Duration) -> bool {
        let is_paused = attempt == Attempt::AfterPause
            && self.failed_at.is_some_and(|failed_at| failed_at.elapsed() < retry_pause);
        if self.is_writing || is_paused || (self.waiting.is_empty() && self.lost.is_empty()) {
            return false;
        }
        (self.is_writing, self.failed_at) = (true, None);
        true
    }

    /// Returns the next lines of one tenant; `None` when none wait.
    fn next_batch(&mut self) -> Option<LineBatch> {
        let first = self.waiting.front().map(|(tenant, _)| tenant).or_else(|| self.lost.keys().next());
        let Some(tenant) = first.cloned().filter(|_| self.failed_at.is_none()) else {
            self.is_writing = false;
            return None;
        };
        let mut lines = Vec::new();
        while let Some((_, line)) = self.waiting.pop_front_if(|(of, _)| *of == tenant) {
            lines.push(line);
        }
        // Lines are lost only while too many wait, so the record of the loss comes after the waiting lines.
        let lost = self.lost.remove(&tenant);
        lines.extend(lost.map(|lines| AccountingLine::Lost { at_ms: now_ms(), lines }));
        Some(LineBatch { tenant, lines })
    }

    /// Puts the lines back into the queue if the store failed.
    fn settle(&mut self, batch: LineBatch, stored: &Result<(), StoreError>) {
        if stored.is_ok() {
            return;
        }
        self.failed_at = Some(Instant::now());
        let LineBatch { tenant, lines } = batch;
        for line in lines.into_iter().rev() {
            match line {
                AccountingLine::Event(_) => self.waiting.push_front((tenant.clone(), line)),
                AccountingLine::Lost { lines, .. } => *self.lost.entry(tenant.clone()).or_default() += lines,
            }
        }
    }
}

fn principal_of(event: &Event) -> Option<&Principal> {
    match event {
        Event::ToolFinished { account, .. } => Some(&account.principal),
        Event::ModelFinished { principal, .. } => Some(principal),
        Event::ToolStarted { .. }
        | Event::ToolProgress { .. }
        | Event::ModelStarted { .. }
        | Event::Run { .. } => None,
    }
}

impl fmt::Debug for AccountingSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountingSink").field("lines", &self.shared.state().seq).finish_non_exhaustive()
    }
}

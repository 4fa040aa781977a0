//! Adds up what a run costs, as a fold over the events that pass through it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haft_core::event::{Event, EventSink};
use haft_core::run::event::Bill;

/// Passes every event on and keeps the bill. A run and all its descendants share one, so nothing is counted twice.
pub struct Meter {
    next: Arc<dyn EventSink>,
    bill: Mutex<Bill>,
}

impl Meter {
    pub fn new(next: Arc<dyn EventSink>) -> Arc<Self> {
        Arc::new(Self { next, bill: Mutex::default() })
    }

    pub fn bill(&self) -> Bill {
        *self.bill_mut()
    }

    fn bill_mut(&self) -> MutexGuard<'_, Bill> {
        self.bill.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for Meter {
    fn emit(&self, event: Event) {
        match &event {
            Event::ModelFinished { account, .. } => self.bill_mut().add_request(account.usage, account.cost),
            Event::ToolFinished { .. } => self.bill_mut().calls += 1,
            Event::ToolStarted { .. }
            | Event::ToolProgress { .. }
            | Event::ModelStarted { .. }
            | Event::Run { .. } => {}
        }
        self.next.emit(event);
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("bill", &self.bill()).finish_non_exhaustive()
    }
}

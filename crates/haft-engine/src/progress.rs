//! The rate and size limits for the progress events of a call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haft_core::event::{Event, EventSink};
use tokio::time::Instant;

/// The maximum number of progress events that one call may emit within [`WINDOW`].
const EVENTS_PER_WINDOW_MAX: u32 = 100;

const WINDOW: Duration = Duration::from_secs(1);

/// The maximum size of the text in all progress events of one call, in bytes.
const BYTES_PER_CALL_MAX: usize = 4 << 20;

/// Forwards the progress events of one call within the limits, and counts the dropped events. The call's result is not
/// affected.
pub(crate) struct BoundedProgress {
    events: Arc<dyn EventSink>,
    meter: Mutex<ProgressMeter>,
}

impl BoundedProgress {
    pub(crate) fn before(events: Arc<dyn EventSink>) -> Self {
        Self { events, meter: Mutex::default() }
    }

    /// Returns the number of dropped events.
    pub(crate) fn left_out(&self) -> u64 {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner).left_out
    }

    fn takes(&self, bytes: usize) -> bool {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner).takes(bytes, Instant::now())
    }
}

impl EventSink for BoundedProgress {
    fn emit(&self, event: Event) {
        let passes = match &event {
            Event::ToolProgress { progress, .. } => self.takes(progress.bytes()),
            Event::ToolStarted { .. }
            | Event::ToolFinished { .. }
            | Event::ModelStarted { .. }
            | Event::ModelFinished { .. }
            | Event::Run { .. } => true,
        };
        if passes {
            self.events.emit(event);
        }
    }
}

#[derive(Debug, Default)]
struct ProgressMeter {
    window_began: Option<Instant>,
    events: u32,
    bytes: usize,
    left_out: u64,
}

impl ProgressMeter {
    fn takes(&mut self, bytes: usize, now: Instant) -> bool {
        if self.window_began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            (self.window_began, self.events) = (Some(now), 0);
        }
        let takes = self.events < EVENTS_PER_WINDOW_MAX && bytes <= BYTES_PER_CALL_MAX - self.bytes;
        if takes {
            self.events += 1;
            self.bytes += bytes;
        } else {
            self.left_out += 1;
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_rate_limited_per_second() {
        let mut meter = ProgressMeter::default();
        let began = Instant::now();
        let taken = |meter: &mut ProgressMeter, at: Duration| {
            (0..1_000).filter(|_| meter.takes(1, began + at)).count()
        };
        assert_eq!(taken(&mut meter, Duration::ZERO), 100);
        assert_eq!(taken(&mut meter, Duration::from_millis(999)), 0);
        assert_eq!(taken(&mut meter, Duration::from_secs(1)), 100);
        assert_eq!(meter.left_out, 2_800);
    }

    #[test]
    fn progress_text_is_limited_per_call() {
        let mut meter = ProgressMeter::default();
        let now = Instant::now();
        assert!(meter.takes(BYTES_PER_CALL_MAX - 1, now));
        assert!(!meter.takes(2, now));
        assert!(meter.takes(1, now));
        assert!(!meter.takes(1, now + WINDOW));
        assert!(meter.takes(0, now + WINDOW), "progress without text is not limited");
    }
}

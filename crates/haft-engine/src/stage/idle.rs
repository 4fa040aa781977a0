//! Idle: stops a call that reports no progress for too long, before its deadline.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haft_core::duration_text;
use haft_core::event::{Event, EventSink};
use haft_core::name::ToolName;
use haft_core::output::ToolOutput;
use haft_core::result::{ToolError, ToolErrorKind};
use tokio::time::{Instant, sleep_until};

use super::timeout::TIMEOUT_MAX;

/// Watches the progress of one call if its policy sets an idle timeout. Progress restarts the idle timeout but does not
/// move the deadline.
pub(crate) enum IdleWatch<'a> {
    Unwatched { events: Arc<dyn EventSink> },
    Watched { tool: &'a ToolName, timeout: Duration, pulse: Arc<ActivitySink> },
}

impl<'a> IdleWatch<'a> {
    pub(crate) fn watch(tool: &'a ToolName, timeout: Option<Duration>, events: Arc<dyn EventSink>) -> Self {
        match timeout {
            None => Self::Unwatched { events },
            Some(timeout) => {
                let pulse = Arc::new(ActivitySink { events, last: Mutex::new(Instant::now()) });
                Self::Watched { tool, timeout: timeout.min(TIMEOUT_MAX), pulse }
            }
        }
    }

    /// Returns the sink that must receive the call's events.
    pub(crate) fn sink(&self) -> Arc<dyn EventSink> {
        match self {
            Self::Unwatched { events } => Arc::clone(events),
            Self::Watched { pulse, .. } => Arc::clone(pulse) as _,
        }
    }

    pub(crate) async fn bound(
        &self,
        call: impl Future<Output = Result<ToolOutput, ToolError>>,
    ) -> Result<ToolOutput, ToolError> {
        match self {
            Self::Unwatched { .. } => call.await,
            Self::Watched { tool, timeout, pulse } => tokio::select! {
                biased;
                outcome = call => outcome,
                () = pulse.silence(*timeout) => Err(timed_out(tool, *timeout)),
            },
        }
    }
}

fn timed_out(tool: &ToolName, timeout: Duration) -> ToolError {
    let limit = duration_text::in_words(timeout);
    let message = format!("Tool `{tool}` timed out after {limit} without progress (idle timeout)");
    ToolError::new(ToolErrorKind::Timeout, message)
}

/// Forwards events, and remembers the time of the last one.
pub(crate) struct ActivitySink {
    events: Arc<dyn EventSink>,
    last: Mutex<Instant>,
}

impl ActivitySink {
    /// Returns when there was no event for `timeout`.
    async fn silence(&self, timeout: Duration) {
        loop {
            let until = *self.last.lock().unwrap_or_else(PoisonError::into_inner) + timeout;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

impl EventSink for ActivitySink {
    fn emit(&self, event: Event) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.events.emit(event);
    }
}

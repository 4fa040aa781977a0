//! The state of one call during execution. Guarantees that exactly one `ToolFinished` event is emitted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haft_core::digest::Digest;
use haft_core::event::{
    ApprovalOutcome, CallAccount, CallProgress, CapturedContent, Event, EventSink, KnownTool, PolicyDecision,
    ToolReference,
};
use haft_core::name::QueueName;
use haft_core::output::ToolOutput;
use haft_core::position::{CallOperation, OperationId, RunPosition};
use haft_core::provider::{CallContext, Principal};
use haft_core::result::{Receipt, ToolError, ToolErrorKind, ToolResult};
use haft_core::run::context::RunContext;
use haft_core::time_limit::TimeLimit;
use haft_core::tool::{CallId, OutputPolicy, ToolCall};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::orchestrator::ContentCapture;
use crate::progress::BoundedProgress;
use crate::size::content_bytes;

/// The maximum length of an unknown tool name or of a call id in events, in characters.
const WRITTEN_CHARS_MAX: usize = 64;

/// The maximum length of the arguments and of the result in events with content capture, in bytes.
const SAID_BYTES_MAX: usize = 16 << 10;

/// A call in progress. The stages fill in its receipt.
pub(crate) struct CallRecord {
    pub(crate) call: ToolCall,
    pub(crate) receipt: Receipt,
    capture: ContentCapture,
    /// The policy for outputs that are too large. It is replaced by the tool's own policy when the tool is known.
    pub(crate) output: OutputPolicy,
    /// The source that is named in the delimiters around the output; `None` if the output gets no delimiters.
    pub(crate) source: Option<String>,
    end: EndGuard,
}

impl CallRecord {
    pub(crate) fn begin(
        call: ToolCall,
        place: RunPosition,
        principal: Principal,
        events: Arc<dyn EventSink>,
        capture: ContentCapture,
    ) -> Self {
        let arguments = call.arguments.as_text();
        let account = CallAccount {
            principal,
            executed: false,
            cached: false,
            untrusted: false,
            bytes_in: arguments.len(),
            bytes_out: 0,
            arguments: Digest::of_text(arguments),
            verdict: None,
            queue: None,
            handle: None,
        };
        let id = CallId(beginning(&call.id.0).to_owned());
        let end = EndGuard {
            account,
            operation: Arc::new(CallOperation { id: next_operation(), call: id, place }),
            tool: ToolReference::Written(beginning(&call.name).to_owned()),
            began: Instant::now(),
            failure: Some(ToolErrorKind::Cancelled),
            content: None,
            events,
        };
        let output = OutputPolicy::Truncate { chars_max: usize::MAX };
        Self { call, receipt: Receipt::default(), capture, output, source: None, end }
    }

    /// Restarts the latency clock. Otherwise, the latency of the call would include its wait for the calls before it.
    pub(crate) fn after_waiting(mut self) -> Self {
        self.end.began = Instant::now();
        self
    }

    pub(crate) fn operation(&self) -> &CallOperation {
        &self.end.operation
    }

    /// Uses the resolved tool in all further events, instead of the name that the model wrote.
    pub(crate) fn set_resolved_tool(&mut self, tool: Arc<KnownTool>) {
        self.end.tool = ToolReference::Known(tool);
    }

    pub(crate) fn note(&mut self, topic: &'static str, value: Value) {
        self.receipt.notes.insert(topic, value);
    }

    /// Records the queue in which the call took a slot.
    pub(crate) fn set_queue(&mut self, queue: &QueueName) {
        self.end.account.queue = Some(queue.clone());
    }

    /// Records the permission decision about the call.
    pub(crate) fn judge(&mut self, verdict: PolicyDecision) {
        self.end.account.verdict = Some(verdict);
    }

    /// Records that the output may contain text from untrusted sources.
    pub(crate) fn read_untrusted(&mut self) {
        self.end.account.untrusted = true;
    }

    pub(crate) fn consent(&mut self, consent: ApprovalOutcome) {
        if let Some(verdict) = &mut self.end.account.verdict {
            verdict.consent = Some(consent);
        }
    }

    /// Marks the call as executed, emits `ToolStarted`, and creates the provider's context. `progress` receives the
    /// provider's events.
    pub(crate) fn reach_provider(
        &mut self,
        run: Arc<RunContext>,
        limit: TimeLimit,
        progress: Arc<dyn EventSink>,
    ) -> CallContext {
        self.receipt.executed = true;
        self.end.account.executed = true;
        let EndGuard { operation, tool, events, began, .. } = &self.end;
        let operation = Arc::clone(operation);
        events.emit(Event::ToolStarted {
            operation: Arc::clone(&operation),
            tool: tool.clone(),
            waited: began.elapsed(),
        });
        CallContext::of(self.call.id.clone(), operation, run, Some(limit), progress)
    }

    /// Marks the call as executed and emits `ToolStarted`, for a call that the engine answers itself.
    pub(crate) fn reach_engine(&mut self) {
        self.receipt.executed = true;
        self.end.account.executed = true;
        let EndGuard { operation, tool, events, began, .. } = &self.end;
        let (operation, tool) = (Arc::clone(operation), tool.clone());
        events.emit(Event::ToolStarted { operation, tool, waited: began.elapsed() });
    }

    /// Returns a sender of progress for the wait before the call reaches its provider.
    pub(crate) fn progress_sender(&self) -> ProgressSender {
        let EndGuard { operation, events, .. } = &self.end;
        ProgressSender { operation: Arc::clone(operation), events: Arc::clone(events) }
    }

    /// Returns the rate-limited sink for the provider's progress events.
    pub(crate) fn bounded_progress(&self) -> Arc<BoundedProgress> {
        Arc::new(BoundedProgress::before(Arc::clone(&self.end.events)))
    }

    pub(crate) fn record_notes(&mut self, context: &CallContext, progress: &BoundedProgress) {
        self.receipt.notes.extend(context.take_notes());
        let left_out = progress.left_out();
        if left_out > 0 {
            self.note("progress", json!({ "left_out": left_out }));
        }
    }

    pub(crate) fn finish(mut self, outcome: Result<ToolOutput, ToolError>) -> ToolResult {
        self.receipt.latency = self.end.began.elapsed();
        self.receipt.output_bytes = size_bytes(&outcome);
        self.end.account.bytes_out = self.receipt.output_bytes;
        self.end.account.cached = self.receipt.notes.contains_key("cache");
        self.end.account.handle = self.receipt.notes.get("stored").and_then(first_handle);
        self.end.failure = outcome.as_ref().err().map(|error| error.kind);
        self.end.content = match self.capture {
            ContentCapture::Nothing => None,
            ContentCapture::Content => Some(Arc::new(captured_content(&self.call, &outcome))),
        };
        ToolResult { call: self.call, outcome, receipt: self.receipt }
    }
}

/// Emits the progress of a call that has not reached its provider.
pub(crate) struct ProgressSender {
    operation: Arc<CallOperation>,
    events: Arc<dyn EventSink>,
}

impl ProgressSender {
    /// Emits progress, cut to the size of one event.
    pub(crate) fn send(&self, progress: CallProgress) {
        if let Some(progress) = progress.bounded() {
            self.events.emit(Event::ToolProgress { operation: Arc::clone(&self.operation), progress });
        }
    }
}

/// Emits `ToolFinished` when dropped. The failure is `Cancelled` until the call has an outcome, so a dropped future
/// reports a cancellation.
struct EndGuard {
    account: CallAccount,
    operation: Arc<CallOperation>,
    tool: ToolReference,
    began: Instant,
    failure: Option<ToolErrorKind>,
    content: Option<Arc<CapturedContent>>,
    events: Arc<dyn EventSink>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.events.emit(Event::ToolFinished {
            operation: Arc::clone(&self.operation),
            tool: self.tool.clone(),
            failure: self.failure,
            latency: self.began.elapsed(),
            account: self.account.clone(),
            content: self.content.take(),
        });
    }
}

/// Returns a new operation id. Uses one counter for the whole process, because several orchestrators may emit to the
/// same sink.
fn next_operation() -> OperationId {
    static LAST: AtomicU64 = AtomicU64::new(0);
    OperationId(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Returns the handle in the note about stored parts. If there are several, returns the first one.
fn first_handle(note: &Value) -> Option<Arc<str>> {
    let first = note.as_array().and_then(|all| all.first()).unwrap_or(note);
    first["handle"].as_str().map(Into::into)
}

fn beginning(written: &str) -> &str {
    written.char_indices().nth(WRITTEN_CHARS_MAX).map_or(written, |(end, _)| &written[..end])
}

fn captured_content(call: &ToolCall, outcome: &Result<ToolOutput, ToolError>) -> CapturedContent {
    let result = match outcome {
        Ok(output) => output.as_text(),
        Err(error) => error.message.clone(),
    };
    CapturedContent {
        arguments: truncate_for_event(call.arguments.as_text()),
        result: truncate_for_event(&result),
    }
}

fn truncate_for_event(text: &str) -> String {
    text[..text.floor_char_boundary(SAID_BYTES_MAX)].to_owned()
}

fn size_bytes(outcome: &Result<ToolOutput, ToolError>) -> usize {
    match outcome {
        Ok(output) => content_bytes(output),
        Err(error) => error.message.len(),
    }
}

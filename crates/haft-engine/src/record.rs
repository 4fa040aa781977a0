//! What is known of one call while it is carried out, and the promise that its end is told exactly once.

use std::sync::Arc;

use haft_core::digest::Digest;
use haft_core::event::{Account, Event, EventSink};
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, Principal};
use haft_core::result::{Receipt, ToolError, ToolErrorKind, ToolResult};
use haft_core::time_limit::TimeLimit;
use haft_core::tool::{CallId, OutputPolicy, ToolCall};
use serde_json::Value;
use tokio::time::Instant;

use crate::size::content_bytes;

/// How much of a name that means no tool is repeated to those who watch.
const WRITTEN_NAME_CHARS_MAX: usize = 64;

/// A call under way. The stages fill its receipt.
pub(crate) struct CallRecord {
    pub(crate) call: ToolCall,
    pub(crate) receipt: Receipt,
    /// What is done with an output that is too large, once the tool is known.
    pub(crate) output: OutputPolicy,
    end: EndGuard,
}

impl CallRecord {
    pub(crate) fn begin(call: ToolCall, principal: Principal, events: Arc<dyn EventSink>) -> Self {
        let arguments = call.arguments.as_text();
        let account = Account {
            principal,
            executed: false,
            cached: false,
            bytes_in: arguments.len(),
            bytes_out: 0,
            arguments: Digest::of_text(arguments),
        };
        let end = EndGuard {
            account,
            id: call.id.clone(),
            tool: beginning(&call.name).to_owned(),
            began: Instant::now(),
            failure: Some(ToolErrorKind::Cancelled),
            events,
        };
        Self {
            call,
            receipt: Receipt::default(),
            output: OutputPolicy::Truncate { chars_max: usize::MAX },
            end,
        }
    }

    /// The time a call waits for its turn is not its own.
    pub(crate) fn after_waiting(mut self) -> Self {
        self.end.began = Instant::now();
        self
    }

    /// From now on the call is told under the name of its tool.
    pub(crate) fn name_tool(&mut self, exposed: &str) {
        exposed.clone_into(&mut self.end.tool);
    }

    pub(crate) fn note(&mut self, topic: &'static str, value: Value) {
        self.receipt.notes.insert(topic, value);
    }

    /// Marks the call as executed, tells so, and makes what the provider is told about it. `progress` is where the
    /// provider's own events go.
    pub(crate) fn reach_provider(
        &mut self,
        principal: Principal,
        limit: TimeLimit,
        progress: Arc<dyn EventSink>,
    ) -> CallContext {
        self.receipt.executed = true;
        self.end.account.executed = true;
        let EndGuard { id, tool, events, .. } = &self.end;
        events.emit(Event::ToolStarted { id: id.clone(), tool: tool.clone() });
        CallContext::new(id.clone(), principal, Some(limit), progress)
    }

    pub(crate) fn events(&self) -> Arc<dyn EventSink> {
        Arc::clone(&self.end.events)
    }

    pub(crate) fn keep_notes(&mut self, context: &CallContext) {
        self.receipt.notes.extend(context.take_notes());
    }

    pub(crate) fn finish(mut self, outcome: Result<ToolOutput, ToolError>) -> ToolResult {
        self.receipt.latency = self.end.began.elapsed();
        self.receipt.output_bytes = size_bytes(&outcome);
        self.end.account.bytes_out = self.receipt.output_bytes;
        self.end.account.cached = self.receipt.notes.contains_key("cache");
        self.end.failure = outcome.as_ref().err().map(|error| error.kind);
        ToolResult { call: self.call, outcome, receipt: self.receipt }
    }
}

/// Tells the end of the call when it is dropped. Until the call has an outcome, that end is a cancellation.
struct EndGuard {
    account: Account,
    id: CallId,
    tool: String,
    began: Instant,
    failure: Option<ToolErrorKind>,
    events: Arc<dyn EventSink>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.events.emit(Event::ToolFinished {
            id: self.id.clone(),
            tool: std::mem::take(&mut self.tool),
            failure: self.failure,
            latency: self.began.elapsed(),
            account: self.account.clone(),
        });
    }
}

fn beginning(name: &str) -> &str {
    name.char_indices().nth(WRITTEN_NAME_CHARS_MAX).map_or(name, |(end, _)| &name[..end])
}

fn size_bytes(outcome: &Result<ToolOutput, ToolError>) -> usize {
    match outcome {
        Ok(output) => content_bytes(output),
        Err(error) => error.message.len(),
    }
}

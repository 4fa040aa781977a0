//! A hook for the external inputs of a run that are not in its journal. A recorder records these inputs, and a replayer
//! replaces them with recorded ones.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::model_request::ModelTool;
use haft_core::position::RunPosition;
use haft_core::result::ToolResult;
use haft_core::run::DriverReadings;
use haft_core::run::input::ArchiveOutcome;
use haft_core::tool::ToolCall;

use crate::options::CallOptions;

/// A change to the tools of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolListChange {
    /// The model now sees only these tools. Only recordings of older versions have this change.
    Replaced(Arc<[ModelTool]>),
    /// The model sees these tools in addition.
    Appended(Arc<[ModelTool]>),
    /// The model does not see the tools with these names, but a search finds them.
    Found(Vec<String>),
}

/// Receives every external input of a run and may replace it. A recorder returns each input unchanged; a replayer
/// returns the recorded input.
pub trait RunObserver: fmt::Debug + Send + Sync {
    /// Reports a change to the tools before the next step. The driver uses the returned value.
    fn tools(&self, place: RunPosition, live: Option<ToolListChange>) -> Option<ToolListChange>;

    /// Reports the time and the budget that the driver measured for a step. The driver uses the returned values.
    fn readings(&self, place: RunPosition, live: DriverReadings) -> DriverReadings;

    /// Returns the recorded result of the call; `None` if the driver must execute the call.
    fn instead(&self, call: &ToolCall, options: &CallOptions) -> Option<BoxFuture<'_, ToolResult>>;

    /// Returns the recorded outcome of an archive step; `None` if the driver must store the text.
    fn archived(&self, place: RunPosition) -> Option<ArchiveOutcome>;

    /// Reports the result of a call.
    fn ended(&self, place: RunPosition, result: &ToolResult);
}

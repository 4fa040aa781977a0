//! Who sees what a run cannot know by itself, and may say it in place of the world: recordings, and what plays them.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::model_request::ModelTool;
use haft_core::place::Place;
use haft_core::result::ToolResult;
use haft_core::run::{Abort, Readings};
use haft_core::tool::ToolCall;

use crate::options::CallOptions;

/// Stands between a driver and the world. One that records passes everything on; one that plays gives what was recorded.
pub trait Witness: fmt::Debug + Send + Sync {
    /// The tools that the model is shown from the next step on, where they have changed; the driver goes by what is given back.
    fn tools(&self, place: Place, live: Option<Arc<[ModelTool]>>) -> Option<Arc<[ModelTool]>>;

    /// What clock and meters read at a step; the driver goes by what is given back.
    fn readings(&self, place: Place, live: Readings) -> Readings;

    /// What the call gives, where it is not to be made.
    fn instead(&self, call: &ToolCall, options: &CallOptions) -> Option<BoxFuture<'_, ToolResult>>;

    /// A call has ended.
    fn ended(&self, place: Place, result: &ToolResult);

    /// The run is ended from outside.
    fn aborted(&self, place: Place, why: &Abort);
}

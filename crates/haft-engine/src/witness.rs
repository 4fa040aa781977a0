//! Who sees what a run cannot know by itself, and may say it in place of the world: recordings, and what plays them.

use std::fmt;

use futures_util::future::BoxFuture;
use haft_core::place::Place;
use haft_core::result::ToolResult;
use haft_core::run::Readings;
use haft_core::tool::ToolCall;

use crate::options::CallOptions;

/// Stands between a driver and the world. One that records passes everything on; one that plays gives what was recorded.
pub trait Witness: fmt::Debug + Send + Sync {
    /// What clock and meters read; the driver goes by what is given back.
    fn readings(&self, live: Readings) -> Readings;

    /// What the call gives, where it is not to be made.
    fn instead(&self, call: &ToolCall, options: &CallOptions) -> Option<BoxFuture<'_, ToolResult>>;

    /// A call has ended.
    fn ended(&self, place: Place, result: &ToolResult);
}

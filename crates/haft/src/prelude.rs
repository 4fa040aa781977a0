//! The types that most programs need: `use haft::prelude::*`.

pub use std::sync::Arc;

pub use haft_core::conversation::ToolReply;
pub use haft_core::name::{Namespace, ToolName};
pub use haft_core::naming::NamingScheme;
pub use haft_core::output::ToolOutput;
pub use haft_core::priority::Priority;
pub use haft_core::provider::{CallContext, ToolProvider};
pub use haft_core::result::{ToolError, ToolErrorKind, ToolResult};
pub use haft_core::tool::{Effects, ToolCall, ToolDefinition};
pub use haft_core::validate::ValidArguments;
pub use haft_engine::{
    CallOptions, Catalog, Orchestrator, OrchestratorConfig, RunContext, ToolFilter, ToolFilterItem,
};
pub use haft_tools::registry::{Registry, Tool};

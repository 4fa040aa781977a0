//! Computes how much of a model's context window a run uses before its first turn.

use std::sync::Arc;

use haft_core::budget::{ContextLimits, ContextWindow};
use haft_core::model_request::ModelRequest;
use haft_core::run::limits::RunContextLimit;
use haft_core::tokens::TokenCounter;

/// Returns the context budget that is left after the tools, the system text and the request.
pub(super) fn budget(
    limit: RunContextLimit,
    request: &ModelRequest,
    asked: &str,
    counter: &Arc<dyn TokenCounter>,
) -> Arc<ContextWindow> {
    let limits = ContextLimits {
        window_tokens: limit.window_tokens,
        buffer_tokens: limit.buffer_tokens,
        output_tokens_max: limit.output_tokens,
    };
    let budget = ContextWindow::new(limits, Arc::clone(counter));
    budget.set_tools(&request.tools);
    budget.add(request.system.to_string());
    budget.add(asked.to_owned());
    budget
}

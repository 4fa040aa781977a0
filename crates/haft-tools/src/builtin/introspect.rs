//! `introspect`: shows a repository as text.

use haft_core::output::ToolOutput;
use haft_core::provider::CallContext;
use haft_core::result::ToolError;
use haft_core::tool::{Effects, OutputFact, ToolDefinition, ToolFacts};
use haft_sandbox::WorkerPool;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file::{FileToolAccess, admit, ask, whole};
use crate::files::{FileRequest, IntrospectLevel};

/// Look at a whole repository at once: `overview` lists its files and shows the readme, `all` gives the content of
/// every text file. Ignored files, lock files, binaries and secrets are left out, and the size is capped.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct IntrospectInput {
    /// How much to show.
    level: IntrospectInputLevel,
    /// Directory to look at; the workspace when left out.
    #[serde(default)]
    path: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum IntrospectInputLevel {
    Overview,
    All,
}

pub(super) fn definition() -> Option<ToolDefinition> {
    let definition = super::define::<IntrospectInput>("introspect", Effects::ReadOnly)?;
    let facts = ToolFacts { output: OutputFact::CapsItself, ..definition.facts.clone() };
    Some(definition.with_facts(facts))
}

pub(super) async fn call(
    input: IntrospectInput,
    files: &WorkerPool,
    cx: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let path = admit(input.path.as_deref().unwrap_or("."), FileToolAccess::Read, files.policy()).await?;
    let level = match input.level {
        IntrospectInputLevel::Overview => IntrospectLevel::Overview,
        IntrospectInputLevel::All => IntrospectLevel::All,
    };
    ask(&FileRequest::Introspect { path, level }, files, cx).await.map(whole)
}

//! `tool_output`: a question about an output that was stored.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::store::{Handle, OutputStore, StoreError};
use haft_core::text::truncate_chars;
use haft_core::tool::{Effects, ToolDefinition};
use haft_core::validate::ValidArguments;
use haft_sandbox::{Policy, Workers};
use schemars::JsonSchema;
use serde::Deserialize;

use super::extract::{ANSWER_CHARS_MAX, Extract};
use super::worker::{EXTRACT_WORKER, ask};
use crate::builtin::define;

/// Ask about a tool output that was too large to show. `extract` understands: `lines 10-40`, `first 50 lines`,
/// `last 50 lines`, `bytes 0-4096`, `grep [-i] [-B n] [-A n] PATTERN`, `jq FILTER`, `schema` (the shape of JSON) and
/// `stats`. Answers are capped; ask further on for the rest.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OutputInput {
    /// The handle that stood in place of the output.
    #[schemars(length(min = 1))]
    handle: String,
    /// What to extract; the beginning and the end when left out.
    #[serde(default)]
    extract: Option<String>,
}

/// Gives `tool_output` over one store.
pub struct OutputTools {
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
    store: Arc<dyn OutputStore>,
    workers: Workers,
}

impl OutputTools {
    pub fn new(store: Arc<dyn OutputStore>, policy: Policy) -> Self {
        Self {
            namespace: Namespace::sanitize("output"),
            tools: define::<OutputInput>("tool_output", Effects::ReadOnly).into_iter().collect(),
            store,
            workers: Workers::new(EXTRACT_WORKER, policy),
        }
    }

    async fn answer(&self, input: OutputInput) -> Result<ToolOutput, ToolError> {
        let content = match Handle::parse(&input.handle)
            .ok_or(StoreError::NotFound)
            .and_then(|handle| self.store.read(&handle))
        {
            Ok(content) => content,
            Err(error) => {
                return Err(ToolError::new(ToolErrorKind::Failed, format!("{error}: {}", input.handle)));
            }
        };
        let question = input.extract.unwrap_or_default();
        let invalid = |error: &dyn fmt::Display| {
            ToolError::new(ToolErrorKind::InvalidArguments, format!("Error: {error}"))
        };
        match Extract::parse(&question).map_err(|error| invalid(&error))? {
            Some(_) => ask(&self.workers, &question, &content)
                .await
                .map(ToolOutput::text)
                .map_err(|error| invalid(&error)),
            None => Ok(ToolOutput::text(without_model(&question, &content))),
        }
    }
}

/// A question in free words wants a model; without one the output is cut, and that is said.
fn without_model(question: &str, content: &[u8]) -> String {
    let text = String::from_utf8_lossy(content);
    let note = if question.is_empty() {
        ""
    } else {
        "No model is at hand to answer in free words; this is the beginning.\n"
    };
    format!("{note}{}", truncate_chars(&text, ANSWER_CHARS_MAX))
}

impl ToolProvider for OutputTools {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Builtin
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        self.tools.clone()
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolName,
        arguments: &'a ValidArguments,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move { self.answer(arguments.to()?).await })
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.workers.stop())
    }
}

impl fmt::Debug for OutputTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputTools").field("policy", self.workers.policy()).finish_non_exhaustive()
    }
}

//! `tool_output`: answers queries about a stored output.

use std::fmt;
use std::sync::{Arc, LazyLock};

use futures_util::future::BoxFuture;
use haft_core::media;
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::output_store::{Handle, StoreError, WHOLE_OUTPUT};
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::run::context::RunContext;
use haft_core::shorten::shorten;
use haft_core::tool::{Effects, OutputFact, ToolDefinition, ToolFacts};
use haft_core::validate::ValidArguments;
use haft_sandbox::{SandboxPolicy, WorkerPool};
use schemars::JsonSchema;
use serde::Deserialize;

use super::answer::{OutputReadMode, page, requested_page, without_model};
use super::extract::{ExtractError, HOW_TO_ASK, OutputQuery, PAGE_BYTES_MAX, about_binary};
use super::reader::{FreeQuestion, OutputReader, strategy};
use super::worker::{EXTRACT_WORKER, ask};
use crate::builtin::define;
use haft_core::settings::outputs::OutputReadSettings;

/// The name of the tool that reads stored outputs.
pub const OUTPUT_TOOL: &str = "tool_output";

/// Ask about a tool output that was too large to show. `extract` understands: `lines 10-40`, `first 50 lines`,
/// `last 50 lines`, `bytes 0-4096`, `grep [-i] [-B n] [-A n] PATTERN`, `jq FILTER`, `schema` (the shape of JSON) and
/// `stats`. Long answers come in pages: `page 2 of lines 1-9000`; `page 2` alone is a piece of the whole output. Any other
/// words are a question that a model answers, where one is available.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OutputInput {
    /// The handle that was shown in place of the output.
    #[schemars(length(min = 1))]
    handle: String,
    /// The part to extract; without it you get the whole output, as far as `mode` allows.
    #[serde(default)]
    extract: Option<String>,
    /// The way to answer a question in your own words: `full-chunked` reads the whole output in pieces, `read-grep` searches
    /// it, `truncate` reads its beginning and end, `auto` chooses by size.
    #[serde(default)]
    mode: OutputReadMode,
}

/// The number of characters of an invalid handle that the error repeats.
const HANDLE_CHARS_MAX: usize = 100;

/// Provides `tool_output`, which reads the output store of the run that calls it.
pub struct OutputTools {
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
    workers: WorkerPool,
    reading: OutputReadSettings,
    reader: Option<Arc<dyn OutputReader>>,
}

/// The maximum length of an answer, in characters: a page of an output, and the text around it.
const ANSWER_CHARS_MAX: usize = PAGE_BYTES_MAX + 1_000;

/// Defines the tool. It has no timeout, because a model may have to answer the question.
fn definition() -> Option<ToolDefinition> {
    let definition = define::<OutputInput>(OUTPUT_TOOL, Effects::ReadOnly)?;
    let output = OutputFact::Pages { chars_max: ANSWER_CHARS_MAX };
    Some(definition.with_facts(ToolFacts { output, ..ToolFacts::default() }))
}

/// All runs share the definition.
static DEFINITIONS: LazyLock<Arc<[ToolDefinition]>> = LazyLock::new(|| definition().into_iter().collect());

impl OutputTools {
    pub fn new(policy: SandboxPolicy, reading: OutputReadSettings) -> Self {
        Self {
            namespace: Namespace::sanitize("output"),
            tools: Arc::clone(&DEFINITIONS),
            workers: WorkerPool::new(EXTRACT_WORKER, policy),
            reading,
            reader: None,
        }
    }

    /// Sets the reader that answers questions in free text.
    #[must_use]
    pub fn with_reader(mut self, reader: Option<Arc<dyn OutputReader>>) -> Self {
        self.reader = reader;
        self
    }

    async fn answer(&self, input: OutputInput, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        let content = content(&input.handle, cx).await?;
        let question = input.extract.unwrap_or_default();
        let query = OutputQuery::parse(&question).map_err(invalid)?;
        let answer = match query {
            // haft answers a query about binary content in this process, because such a query is always fast.
            Some(query) if media::is_binary(&content) => query.answer(&content),
            Some(_) => ask(&self.workers, &question, &content).await,
            None if media::is_binary(&content) => Ok(format!("{}\n({HOW_TO_ASK})", about_binary(&content))),
            None => {
                let text = String::from_utf8_lossy(&content);
                match self.read(&input.handle, &question, &text, input.mode, cx).await {
                    Some(Ok(answer)) => Ok(answer),
                    Some(Err(reason)) => self.whole("", &text, OutputReadMode::Truncate).map(|cut| {
                        format!("(no model could answer: {reason}; this is the truncated output)\n{cut}")
                    }),
                    None => self.whole(&question, &text, input.mode),
                }
            }
        };
        answer.map(ToolOutput::text).map_err(invalid)
    }

    /// Returns the answer of a model; `None` if there is no reader or the question needs no model.
    async fn read(
        &self,
        handle: &str,
        question: &str,
        text: &str,
        mode: OutputReadMode,
        cx: &CallContext,
    ) -> Option<Result<String, String>> {
        let is_free = !question.trim().is_empty() && requested_page(question).is_none();
        let reader = self.reader.as_ref().filter(|_| is_free)?;
        let strategy = strategy(mode, text, &self.reading, reader.piece_bytes(text))?;
        let handle = Handle::parse(handle)?;
        let free_question = FreeQuestion { handle: &handle, text, question, strategy, reading: self.reading };
        let answer = reader.read(free_question, cx).await;
        Some(answer.map(|answer| {
            format!("(answer of a model, mode {})\n{}", strategy.name(), shorten(&answer, PAGE_BYTES_MAX))
        }))
    }

    fn whole(&self, question: &str, text: &str, mode: OutputReadMode) -> Result<String, ExtractError> {
        match requested_page(question) {
            Some(number) => page(text, number, &self.reading),
            None => without_model(question, text, mode, &self.reading),
        }
    }
}

/// Reads a stored output of the calling run.
async fn content(handle: &str, cx: &CallContext) -> Result<Vec<u8>, ToolError> {
    let found = match (Handle::parse(handle), &cx.run.outputs) {
        (Some(handle), Some(outputs)) => outputs.read_range(&handle, WHOLE_OUTPUT).await,
        (None, _) | (_, None) => Err(StoreError::NotFound),
    };
    found.map_err(|error| {
        let written: String = handle.chars().take(HANDLE_CHARS_MAX).flat_map(char::escape_debug).collect();
        ToolError::new(ToolErrorKind::Failed, format!("{error}: {written}"))
    })
}

#[allow(clippy::needless_pass_by_value, reason = "`map_err` passes the error by value")]
fn invalid(error: ExtractError) -> ToolError {
    ToolError::new(ToolErrorKind::InvalidArguments, format!("Error: {error}"))
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

    fn is_shown(&self, run: &RunContext) -> bool {
        // Offer the tool from the start of a run, even if no output is stored yet, because adding a tool in the middle
        // of a run invalidates the whole prompt cache.
        run.outputs.is_some()
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move { self.answer(arguments.to()?, cx).await })
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

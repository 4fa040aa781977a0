//! Answers the tool searches of runs from the catalog.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use haft_core::internal_tools::tool_search::{ToolSearchQuery, compact_definition};
use haft_core::output::{OutputContent, ToolOutput};
use haft_core::provider_instructions;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::rules::PermissionDecision;
use haft_core::tool::ApprovalPolicy;
use serde_json::json;

use crate::call_record::CallRecord;
use crate::catalog::{CatalogEntry, ResolvedTool, Snapshot};
use crate::options::{CallOptions, InstructionPolicy, SearchScope};
use crate::orchestrator::Orchestrator;
use crate::search::answer::{FoundTool, answer, selected};
use crate::search::{SearchedTool, ToolSearchIndex};

/// The maximum size of a schema that an error shows as JSON, in bytes. A larger schema is shown as compact text of this
/// size.
const SCHEMA_BYTES_MAX: usize = 1_500;

/// The index over the current snapshot of a catalog. The first search builds it. The first search after a change builds
/// it again, but reads only the changed lists.
#[derive(Default)]
pub(crate) struct ToolFinder(Mutex<Option<Arc<IndexedSnapshot>>>);

/// A snapshot with its index. The index refers to tools by their indexes in the snapshot.
struct IndexedSnapshot {
    snapshot: Arc<Snapshot>,
    tools: Vec<Arc<CatalogEntry>>,
    index: ToolSearchIndex,
}

impl IndexedSnapshot {
    fn new(snapshot: Arc<Snapshot>, before: Option<Arc<Self>>) -> Self {
        let tools: Vec<Arc<CatalogEntry>> = snapshot.tools().cloned().collect();
        // The old snapshot lives until the new index is built, so no new definition can have the address of an old one.
        let (previous, index) = match before.map(Arc::try_unwrap) {
            Some(Ok(before)) => (Some(before.snapshot), before.index),
            // Another run is still searching with the old index, so build a new one.
            Some(Err(_)) | None => (None, ToolSearchIndex::default()),
        };
        let index = index.renewed(tools.iter().map(|tool| searched(tool)));
        drop(previous);
        Self { snapshot, tools, index }
    }
}

fn searched(tool: &CatalogEntry) -> SearchedTool<'_> {
    let definition = tool.definition();
    SearchedTool {
        name: tool.exposed().as_str(),
        description: &definition.description,
        schema: &definition.input_schema,
    }
}

impl ToolFinder {
    /// Answers a call of `tool_search`.
    pub(crate) fn answer(
        &self,
        record: &mut CallRecord,
        orchestrator: &Orchestrator,
        (scope, options): (&SearchScope, &CallOptions),
    ) -> Result<ToolOutput, ToolError> {
        let query = ToolSearchQuery::read(&record.call.arguments)
            .map_err(|why| ToolError::new(ToolErrorKind::InvalidArguments, format!("Error: {why}")))?;
        record.reach_engine();
        let indexed = self.indexed(orchestrator.catalog().named_snapshot());
        let may_call = |tool: usize| is_callable(&indexed.tools[tool], orchestrator, scope, options);
        let hits: Vec<(usize, f32)> = if let Some(names) = selected(&query.query) {
            let chosen = names.iter().filter_map(|name| named(&indexed, name));
            chosen.filter(|tool| may_call(*tool)).take(query.hits_max()).map(|tool| (tool, 1.0)).collect()
        } else {
            let hits = indexed.index.search_where(&query.query, query.hits_max(), may_call);
            hits.into_iter().map(|hit| (hit.tool, hit.coverage)).collect()
        };
        let found: Vec<FoundTool> =
            hits.into_iter().map(|(tool, coverage)| found(&indexed.tools[tool], coverage, scope)).collect();
        let sources = if found.first().is_some_and(|best| best.coverage >= 1.0) {
            BTreeMap::new()
        } else {
            sources(&indexed, may_call)
        };
        let mut answer = answer(&found, &sources, orchestrator.counter(options));
        record.note("found", json!(answer.defined));
        for text in instructions(&indexed, &answer.defined, orchestrator, (scope, options)) {
            answer.append(&text);
        }
        let content = vec![OutputContent::FoundTools(Box::new(answer))];
        Ok(ToolOutput { content, ..ToolOutput::default() })
    }

    fn indexed(&self, snapshot: Arc<Snapshot>) -> Arc<IndexedSnapshot> {
        let mut previous = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(indexed) = previous.as_ref().filter(|indexed| Arc::ptr_eq(&indexed.snapshot, &snapshot)) {
            return Arc::clone(indexed);
        }
        let indexed = Arc::new(IndexedSnapshot::new(snapshot, previous.take()));
        *previous = Some(Arc::clone(&indexed));
        indexed
    }
}

/// Returns the instructions of the sources from which this result shows a tool for the first time. The system text
/// contains only the instructions of sources whose tools the model always sees.
fn instructions(
    indexed: &IndexedSnapshot,
    defined: &[String],
    orchestrator: &Orchestrator,
    (scope, options): (&SearchScope, &CallOptions),
) -> Vec<String> {
    let InstructionPolicy::Given(lock) = &options.instructions else { return Vec::new() };
    let source = |name: &String| Some(indexed.tools[indexed.index.named(name)?].source());
    let mut instructed = scope.instructed.lock().unwrap_or_else(PoisonError::into_inner);
    instructed.extend(scope.shown.iter().chain(&scope.defined).filter_map(source).map(str::to_owned));
    let providers = orchestrator.catalog().providers();
    let mut texts = Vec::new();
    for source in defined.iter().filter_map(source) {
        let provider = providers.iter().find(|provider| provider.namespace().as_str() == source);
        if let Some(provider) = provider.filter(|_| instructed.insert(source.to_owned())) {
            let agreed = provider_instructions::agreed(&**provider, lock.as_deref());
            texts.extend(agreed.map(|text| provider_instructions::labelled(&**provider, &text)));
        }
    }
    texts
}

/// Finds a tool by any name that a call may use.
fn named(indexed: &IndexedSnapshot, name: &str) -> Option<usize> {
    indexed.index.named(name).or_else(|| {
        let tool = indexed.snapshot.find(name).ok()?;
        indexed.index.named(tool.exposed().as_str())
    })
}

/// Returns true unless the rules deny every call to the tool in this run.
fn is_callable(
    tool: &CatalogEntry,
    orchestrator: &Orchestrator,
    scope: &SearchScope,
    options: &CallOptions,
) -> bool {
    let config = orchestrator.config();
    let governed = tool.governed(&config.policies);
    let name = tool.exposed();
    config.inactivity(tool).is_none()
        && governed.policy.approval != ApprovalPolicy::Deny
        && options.selection.covers(name, tool.identity(), &governed.groups, governed.effects)
        && scope.allowed.as_ref().is_none_or(|names| names.contains(name.as_str()))
        && tool.provider().is_shown(&options.context)
        && config.rules.admit(name.as_str()).decision != PermissionDecision::Deny
}

fn found(tool: &CatalogEntry, coverage: f32, scope: &SearchScope) -> FoundTool {
    FoundTool {
        tool: tool.model_tool(),
        source: tool.source().to_owned(),
        is_shown: scope.shown.contains(tool.exposed().as_str()),
        coverage,
    }
}

fn sources(indexed: &IndexedSnapshot, may_call: impl Fn(usize) -> bool) -> BTreeMap<String, usize> {
    let mut sources = BTreeMap::new();
    for (_, tool) in indexed.tools.iter().enumerate().filter(|(at, _)| may_call(*at)) {
        *sources.entry(tool.source().to_owned()).or_default() += 1;
    }
    sources
}

/// Adds the schema to the error about wrong arguments for a tool that the model does not see, because the model may
/// never have seen its definition.
pub(crate) fn with_definition(
    mut error: ToolError,
    tool: &ResolvedTool<'_>,
    scope: Option<&SearchScope>,
) -> ToolError {
    let tool = tool.entry();
    let is_hidden = scope.is_some_and(|scope| !scope.shown.contains(tool.exposed().as_str()));
    if is_hidden && error.kind == ToolErrorKind::InvalidArguments {
        let schema = tool.definition().input_schema.to_string();
        let shown = if schema.len() <= SCHEMA_BYTES_MAX {
            format!("\nThe schema of `{}`: {schema}", tool.exposed())
        } else {
            format!("\nThe tool: {}", compact_definition(&tool.model_tool(), SCHEMA_BYTES_MAX))
        };
        error.message.push_str(&shown);
    }
    error
}

impl fmt::Debug for ToolFinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolFinder").finish_non_exhaustive()
    }
}

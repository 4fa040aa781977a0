use std::ops::Range;
use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, join};
use haft_core::name::{Namespace, ToolName};
use haft_core::naming::NamingScheme;
use haft_core::output::ToolOutput;
use haft_core::output_store::{Handle, OutputStore, Spool, StoreEntry, StoreError, WHOLE_OUTPUT};
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::{Effects, OutputPolicy, ToolDefinition};
use haft_core::validate::ValidArguments;
use haft_engine::{Catalog, Orchestrator, RunContext, ToolFilter};
use serde_json::json;

use crate::fake::{
    FakeProvider, SharedLog, TestRig, call, config, definition, orchestrator_for, said, schema,
};

const NAME: &str = "0a1b2c3d-0000-4000-8000-000000000000";

/// An in-memory store that can fail like a full disk.
#[derive(Clone, Default)]
pub(crate) struct FakeOutputStore {
    pub(crate) kept: Arc<Mutex<Vec<u8>>>,
    full: bool,
}

impl OutputStore for FakeOutputStore {
    fn begin(&self) -> Result<Box<dyn Spool>, StoreError> {
        if self.full {
            return Err(StoreError::Unavailable { reason: "no space left on device".into() });
        }
        Ok(Box::new(self.clone()))
    }

    fn reopen(&self, entry: &StoreEntry) -> Result<Box<dyn Spool>, StoreError> {
        let length = usize::try_from(entry.bytes).unwrap();
        self.kept.lock().unwrap().truncate(length);
        self.begin()
    }

    /// Reads the output without checking the handle, so a handle from another store reads the output of this one.
    fn read_range<'a>(&'a self, _: &'a Handle, _: Range<u64>) -> BoxFuture<'a, Result<Vec<u8>, StoreError>> {
        let kept = self.kept.lock().unwrap().clone();
        Box::pin(async move { if kept.is_empty() { Err(StoreError::NotFound) } else { Ok(kept) } })
    }

    fn delete<'a>(&'a self, _: &'a Handle) -> BoxFuture<'a, Result<(), StoreError>> {
        self.kept.lock().unwrap().clear();
        Box::pin(async { Ok(()) })
    }

    fn is_empty(&self) -> bool {
        self.kept.lock().unwrap().is_empty()
    }
}

impl Spool for FakeOutputStore {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.kept.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<StoreEntry, StoreError> {
        let bytes = self.kept.lock().unwrap().len() as u64;
        Ok(StoreEntry { handle: Handle::new(NAME, NAME).unwrap(), bytes, lines: 0, complete: true })
    }
}

/// Returns a run with this store.
fn run(store: Option<FakeOutputStore>) -> RunContext {
    let outputs = store.map(|shelf| Arc::new(shelf) as Arc<dyn OutputStore>);
    RunContext { outputs, ..RunContext::default() }
}

fn storing(store: Option<FakeOutputStore>, bytes_max: usize) -> TestRig {
    orchestrator_for(run(store), config(|policy| policy.output = OutputPolicy::Store { bytes_max })).0
}

#[tokio::test]
async fn oversized_output_is_stored_and_replaced_by_a_handle() {
    let shelf = FakeOutputStore::default();
    let orchestrator = storing(Some(shelf.clone()), 11);
    let result = orchestrator.execute(call("echo", r#"{"text": "too much to say"}"#)).await;
    assert_eq!(shelf.kept.lock().unwrap().as_slice(), b"echo: too much to say");
    let text = said(&result);
    assert!(text.contains("size_cap") && text.contains(&format!("session-{NAME}/{NAME}")), "{text}");
    assert!(text.ends_with("echo: too much to say"), "the answer shows the beginning of the output: {text}");
    assert!(result.receipt.notes.contains_key("stored"));
}

#[tokio::test]
async fn output_within_the_limit_is_not_stored() {
    let shelf = FakeOutputStore::default();
    let orchestrator = storing(Some(shelf.clone()), 11);
    assert_eq!(said(&orchestrator.execute(call("echo", r#"{"text": "short"}"#)).await), "echo: short");
    assert!(shelf.kept.lock().unwrap().is_empty());
}

#[tokio::test]
async fn output_is_truncated_when_it_cannot_be_stored() {
    for shelf in [Some(FakeOutputStore { full: true, ..FakeOutputStore::default() }), None] {
        let orchestrator = storing(shelf, 11);
        let result = orchestrator.execute(call("echo", r#"{"text": "too much"}"#)).await;
        assert_eq!(
            said(&result),
            "echo: \n... (output truncated: 14 total chars, showing first 6 and last 5)\n much"
        );
    }
}

#[tokio::test]
async fn large_images_and_binary_output_are_stored_and_described() {
    let shelf = FakeOutputStore::default();
    let orchestrator = storing(Some(shelf.clone()), 12_288);
    let result = orchestrator.execute(call("picture", "{}")).await;
    let text = said(&result);
    assert!(text.starts_with("pictures\n[image: image/gif, 5x7 pixels, 11 bytes]\n[image: image/gif, 5x7 pixels, 6291466 bytes, sha256 "), "{text}");
    assert!(text.contains("\n[binary: application/octet-stream, 5 bytes, sha256 "), "{text}");
    assert_eq!(shelf.kept.lock().unwrap().len(), 6_291_466 + 5, "the store has all bytes");
    assert!(!text.contains('\0'), "the answer contains no binary data");
    assert_eq!(result.receipt.notes["stored"].as_array().unwrap().len(), 2);
    let orchestrator = storing(None, 12_288);
    let text = said(&orchestrator.execute(call("picture", "{}")).await);
    assert!(text.contains("left out: images and audio may take at most 5242880 bytes in total"), "{text}");
    assert!(text.contains("left out: the content is not text, and haft could not store it"), "{text}");
}

#[tokio::test]
async fn large_text_is_stored_apart_from_the_images_of_an_output() {
    let shelf = FakeOutputStore::default();
    let orchestrator = storing(Some(shelf.clone()), 5);
    let result = orchestrator.execute(call("picture", "{}")).await;
    let text = said(&result);
    assert!(
        text.starts_with("Tool output is too large (") && text.contains("It begins:\npictures\n"),
        "{text}"
    );
    assert!(
        text.contains("[image: image/gif, 5x7 pixels, 11 bytes]"),
        "the answer keeps the small image: {text}"
    );
    assert_eq!(text.matches(", sha256 ").count(), 2, "{text}");
    assert_eq!(result.receipt.notes["stored"].as_array().unwrap().len(), 3);
}

/// A provider of the tool `recall`, which reads a stored output of the calling run. It is shown only to runs with a
/// stored output.
struct RecallProvider {
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
}

impl RecallProvider {
    fn new() -> Self {
        let tools = Arc::new([definition("recall", Effects::ReadOnly, schema(&["handle"]))]);
        Self { namespace: Namespace::new("reader").unwrap(), tools }
    }
}

impl ToolProvider for RecallProvider {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Builtin
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.tools)
    }

    fn is_shown(&self, run: &RunContext) -> bool {
        run.outputs.as_ref().is_some_and(|outputs| !outputs.is_empty())
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let handle = Handle::parse(arguments.value()["handle"].as_str().unwrap()).unwrap();
        Box::pin(async move {
            let read = match &cx.run.outputs {
                Some(outputs) => outputs.read_range(&handle, WHOLE_OUTPUT).await,
                None => Err(StoreError::NotFound),
            };
            let bytes = read.map_err(|error| ToolError::new(ToolErrorKind::Failed, error.to_string()))?;
            Ok(ToolOutput::text(String::from_utf8(bytes).unwrap()))
        })
    }
}

/// Returns one orchestrator for two runs that each have their own store. It stores long outputs of `echo` and reads
/// them with `recall`.
fn two_runs() -> (TestRig, TestRig) {
    let providers: Vec<Arc<dyn ToolProvider>> =
        vec![Arc::new(FakeProvider::builtins(SharedLog::default())), Arc::new(RecallProvider::new())];
    let mut config = config(|policy| policy.output = OutputPolicy::Pass);
    let mut storing = config.policies.default.clone();
    storing.output = OutputPolicy::Store { bytes_max: 11 };
    config.policies.by_tool.insert(ToolName::new("echo").unwrap(), storing);
    let orchestrator = Orchestrator::try_new(Catalog::new(providers, NamingScheme::Double), config).unwrap();
    let anna = TestRig::new(orchestrator, run(Some(FakeOutputStore::default())));
    let bert = anna.with(run(Some(FakeOutputStore::default())));
    (anna, bert)
}

async fn store(run: &TestRig, text: &str) -> String {
    let result = run.execute(call("echo", &json!({ "text": text }).to_string())).await;
    result.receipt.notes["stored"]["handle"].as_str().unwrap().to_owned()
}

async fn recall(run: &TestRig, handle: &str) -> String {
    said(&run.execute(call("recall", &json!({ "handle": handle }).to_string())).await)
}

#[tokio::test]
async fn stored_output_cannot_be_read_from_another_run() {
    let (anna, bert) = two_runs();
    let handle = store(&anna, "the words of anna").await;
    assert_eq!(recall(&anna, &handle).await, "echo: the words of anna");
    assert_eq!(recall(&bert, &handle).await, "failed: no stored output has this handle; it may have expired");
    let without_store = bert.with(run(None));
    assert_eq!(
        recall(&without_store, &handle).await,
        "failed: no stored output has this handle; it may have expired"
    );
}

#[tokio::test]
async fn concurrent_runs_read_only_their_own_stored_outputs() {
    let (anna, bert) = two_runs();
    let (of_anna, of_bert) = join(store(&anna, "the words of anna"), store(&bert, "the words of bert")).await;
    assert_eq!(of_anna, of_bert, "outputs of different runs may have equal handles");
    let read = join(recall(&anna, &of_anna), recall(&bert, &of_bert)).await;
    assert_eq!(read, ("echo: the words of anna".into(), "echo: the words of bert".into()));
}

#[tokio::test]
async fn recall_tool_is_listed_only_for_a_run_with_stored_output() {
    let (anna, bert) = two_runs();
    let is_shown = |run: &TestRig| {
        let tools = run.model_tools(&ToolFilter::All, run.context());
        tools.iter().any(|tool| tool.name == "recall")
    };
    assert!(!is_shown(&anna) && !is_shown(&bert));
    store(&anna, "the words of anna").await;
    assert!(is_shown(&anna) && !is_shown(&bert));
}

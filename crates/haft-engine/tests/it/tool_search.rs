use std::sync::Arc;

use haft_core::naming::NamingScheme;
use haft_core::output::{FoundTools, OutputContent};
use haft_core::provider::ToolProvider;
use haft_engine::{CallOptions, Catalog, InstructionPolicy, Orchestrator, OrchestratorConfig, SearchScope};
use serde_json::json;

use crate::fake::{ChangingProvider, call};

fn orchestrator(providers: &[Arc<ChangingProvider>]) -> Orchestrator {
    let all = providers.iter().map(|provider| Arc::clone(provider) as Arc<dyn ToolProvider>).collect();
    Orchestrator::new(Catalog::new(all, NamingScheme::Double), OrchestratorConfig::default())
}

async fn search(orchestrator: &Orchestrator, query: &str, options: CallOptions) -> FoundTools {
    let arguments = json!({ "query": query }).to_string();
    let result = orchestrator.execute_with(call("tool_search", &arguments), options).await;
    match result.outcome.unwrap().content.as_slice() {
        [OutputContent::FoundTools(found)] => FoundTools::clone(found),
        other => panic!("not the answer of a search: {other:?}"),
    }
}

fn options(scope: SearchScope) -> CallOptions {
    CallOptions {
        search: Some(Arc::new(scope)),
        instructions: InstructionPolicy::Given(None),
        ..CallOptions::default()
    }
}

#[tokio::test]
async fn catalog_that_changes_during_a_search_is_searched_as_it_was() {
    let server = ChangingProvider::new("s", &["shy", "water_lawn", "water_plants"]);
    let orchestrator = orchestrator(&[Arc::clone(&server)]);
    let found = search(&orchestrator, "water", options(SearchScope::default())).await;
    assert_eq!(server.tools().len(), 1, "the list changed meanwhile");
    assert_eq!(found.defined, ["s__water_lawn", "s__water_plants"]);
    let found = search(&orchestrator, "water", options(SearchScope::default())).await;
    assert!(found.text.contains("No good match"), "{}", found.text);
    let found = search(&orchestrator, "shifted", options(SearchScope::default())).await;
    assert_eq!(found.defined, ["s__shifted"]);
}

/// The number of searches, and of list changes at the same time.
const ROUNDS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_during_list_changes_sees_one_consistent_tool_list() {
    let server = ChangingProvider::new("s", &["a_red", "a_blue", "a_green"]);
    let orchestrator = Arc::new(orchestrator(&[Arc::clone(&server)]));
    let changes = tokio::spawn(async move {
        for round in 0..ROUNDS {
            let letter = if round % 2 == 0 { "b" } else { "a" };
            let names = ["red", "blue", "green"].map(|name| format!("{letter}_{name}"));
            server.list(&names.each_ref().map(String::as_str));
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..ROUNDS {
        let mut names =
            search(&orchestrator, "red blue green", options(SearchScope::default())).await.defined;
        names.sort();
        let expected = |letter: &str| ["blue", "green", "red"].map(|name| format!("s__{letter}_{name}"));
        assert!(names == expected("a") || names == expected("b"), "{names:?}");
    }
    changes.await.unwrap();
}

#[tokio::test]
async fn instructions_of_a_source_come_with_its_first_tool() {
    let providers = [ChangingProvider::new("garden", &["water_lawn"]), ChangingProvider::new("s", &["mow"])];
    let orchestrator = orchestrator(&providers);
    let words = "Water in the evening. Never at noon.";
    let check = async |query: &str, options: &CallOptions, is_given: bool| {
        let FoundTools { text, rest, .. } = search(&orchestrator, query, options.clone()).await;
        assert_eq!(text.contains(words) && rest.contains(words), is_given, "{query}: {text}");
        assert_eq!(text.contains("written by the server"), is_given, "{query}: {text}");
    };
    let turn = options(SearchScope::default());
    check("mow", &turn, false).await;
    check("water", &turn, true).await;
    check("water", &turn, false).await;
    let names = || ["garden__water_lawn".to_owned()].into();
    check("water", &options(SearchScope { defined: names(), ..SearchScope::default() }), false).await;
    check("water", &options(SearchScope { shown: names(), ..SearchScope::default() }), false).await;
    let withheld =
        CallOptions { instructions: InstructionPolicy::Withheld, ..options(SearchScope::default()) };
    check("water", &withheld, false).await;
}

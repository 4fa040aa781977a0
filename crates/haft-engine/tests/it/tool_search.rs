use std::sync::Arc;
use std::time::{Duration, Instant};

use haft_core::naming::NamingScheme;
use haft_core::output::{FoundTools, OutputContent};
use haft_core::provider::{ProviderKind, ToolProvider};
use haft_core::run::exposure::ToolExposure;
use haft_core::settings::tool_search::ToolSearchSettings;
use haft_core::tool::Effects;
use haft_engine::exposure::{ExposureRequest, ModelToolLimits, SHOWN_TOKENS_MAX, SHOWN_TOOLS_MAX};
use haft_engine::{
    CallOptions, Catalog, InstructionPolicy, Orchestrator, OrchestratorConfig, RunContext, SearchScope,
    ToolFilter,
};
use serde_json::json;

use crate::fake::{ChangingProvider, FakeProvider, SharedLog, call};

fn orchestrator(providers: &[Arc<ChangingProvider>]) -> Orchestrator {
    let all = providers.iter().map(|provider| Arc::clone(provider) as Arc<dyn ToolProvider>).collect();
    Orchestrator::new(Catalog::new(all, NamingScheme::Double), OrchestratorConfig::default())
}

async fn search(orchestrator: &Orchestrator, query: &str, options: CallOptions) -> FoundTools {
    let arguments = json!({ "query": query }).to_string();
    let result = orchestrator.execute_with(call("tool_search", &arguments), options).await;
    match result.outcome.unwrap().content.as_slice() {
        [OutputContent::FoundTools(found)] => FoundTools::clone(found),
        other => panic!("expected the result of a search, found {other:?}"),
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
async fn search_uses_the_tool_list_from_its_start_if_the_list_changes() {
    let server = ChangingProvider::new("s", &["shy", "water_lawn", "water_plants"]);
    let orchestrator = orchestrator(&[Arc::clone(&server)]);
    let found = search(&orchestrator, "water", options(SearchScope::default())).await;
    assert_eq!(server.tools().len(), 1, "the tool list changed during the search");
    assert_eq!(found.defined, ["s__water_lawn", "s__water_plants"]);
    let found = search(&orchestrator, "water", options(SearchScope::default())).await;
    assert!(found.text.contains("No good match"), "{}", found.text);
    let found = search(&orchestrator, "shifted", options(SearchScope::default())).await;
    assert_eq!(found.defined, ["s__shifted"]);
}

/// The number of searches that must find each of the two tool lists.
const ROUNDS: usize = 100;

/// The maximum time for all searches of the test together.
const SEARCHES_TIME_MAX: Duration = Duration::from_secs(30);

/// Two lists with different tools at each position, so that mixing the index of one list with the tools of the other
/// gives wrong names. Both lists have one tool with the same name.
const LISTS: [&[&str]; 2] = [
    &["a_blue", "a_green", "a_red", "fence", "gate", "shed"],
    &["arbour", "b_blue", "b_green", "b_red", "bench", "gate"],
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_during_list_changes_sees_one_consistent_tool_list() {
    let server = ChangingProvider::new("s", LISTS[0]);
    let orchestrator = Arc::new(orchestrator(&[Arc::clone(&server)]));
    let changing = Arc::clone(&server);
    let changes = tokio::spawn(async move {
        for round in 1.. {
            changing.list(LISTS[round % LISTS.len()]);
            tokio::task::yield_now().await;
        }
    });
    let colours = async || {
        let mut names =
            search(&orchestrator, "red blue green", options(SearchScope::default())).await.defined;
        names.sort();
        names
    };
    let expected = |letter: &str| ["blue", "green", "red"].map(|name| format!("s__{letter}_{name}")).to_vec();
    let (begun, mut seen) = (Instant::now(), [0; LISTS.len()]);
    while seen.iter().any(|times| *times < ROUNDS) {
        let names = colours().await;
        let list = ["a", "b"].iter().position(|letter| names == expected(letter));
        seen[list.unwrap_or_else(|| panic!("{names:?}"))] += 1;
        assert!(begun.elapsed() < SEARCHES_TIME_MAX, "the search found too few lists in time: {seen:?}");
    }
    changes.abort();
    assert!(changes.await.unwrap_err().is_cancelled());
    for (letter, list) in ["a", "b"].iter().zip(LISTS) {
        server.list(list);
        assert_eq!(colours().await, expected(letter), "the search uses the newest list");
    }
}

#[tokio::test]
async fn search_shows_the_instructions_of_a_source_with_its_first_tool() {
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

/// Returns the tools that a run shows with `auto`, for a model without its own limits.
fn exposed(orchestrator: &Orchestrator) -> ToolExposure {
    let request = ExposureRequest {
        settings: &ToolSearchSettings::default(),
        limits: ModelToolLimits::default(),
        pinned: None,
        own_tools: 0,
        lock: None,
    };
    orchestrator.expose(&ToolFilter::default(), &RunContext::default(), &request)
}

#[test]
fn tool_search_mode_auto_hides_tools_above_either_limit() {
    let check = |tools: usize, bytes: usize, is_hidden: bool| {
        let names: Vec<String> = (0..tools).map(|number| format!("t{number:02}")).collect();
        let schema = json!({"type": "object", "title": "x".repeat(bytes)});
        let listed: Vec<_> =
            names.iter().map(|name| (name.as_str(), Effects::ReadOnly, schema.clone())).collect();
        let server = FakeProvider::new(ProviderKind::Mcp, "s", &listed, SharedLog::default());
        let orchestrator = Orchestrator::new(
            Catalog::new(vec![Arc::new(server)], NamingScheme::Double),
            OrchestratorConfig::default(),
        );
        let exposure = exposed(&orchestrator);
        assert_eq!(exposure.search.is_some(), is_hidden, "{tools} tools with {bytes} bytes each");
        assert_eq!(exposure.shown.len(), if is_hidden { 0 } else { tools }, "{tools} tools");
    };
    check(SHOWN_TOOLS_MAX, 10, false);
    check(SHOWN_TOOLS_MAX + 1, 10, true);
    // Four bytes are one token. A definition has about 40 bytes in addition to its title.
    let most = usize::try_from(SHOWN_TOKENS_MAX).unwrap() * 4;
    check(5, most / 5 - 100, false);
    check(5, most / 5, true);
}

#[test]
fn roster_lists_24_sources_and_counts_the_others() {
    // Use two digits each, so that the names have the same order as the numbers.
    let mut sources: Vec<_> =
        (10..40).map(|number| ChangingProvider::new(&format!("s{number}"), &["one", "two"])).collect();
    sources.reverse();
    let search = exposed(&orchestrator(&sources)).search.unwrap();
    let expected: Vec<String> = (10..34).map(|number| format!("- s{number}: 2 tools")).collect();
    let expected = format!("Sources:\n{}\n- 6 more sources", expected.join("\n"));
    assert_eq!(search.roster, expected);
}

use std::sync::Arc;

use futures_util::FutureExt;
use haft_core::name::{Namespace, ToolName};
use haft_core::naming::NamingScheme;
use haft_core::provider::ToolProvider;
use haft_core::tool::ToolPolicy;
use haft_engine::{
    Catalog, CatalogEntry, GovernedTool, Governor, Orchestrator, OrchestratorConfig, ToolPolicies,
};

use crate::fake::{ChangingProvider, FakeProvider, SharedLog, call, said};

fn orchestrator(providers: &[Arc<ChangingProvider>], scheme: NamingScheme) -> Orchestrator {
    let mut all: Vec<Arc<dyn ToolProvider>> = vec![Arc::new(FakeProvider::builtins(SharedLog::default()))];
    all.extend(providers.iter().map(|provider| Arc::clone(provider) as Arc<dyn ToolProvider>));
    Orchestrator::new(Catalog::new(all, scheme), OrchestratorConfig::default())
}

/// Returns the names of the servers' tools.
fn names(orchestrator: &Orchestrator) -> Vec<String> {
    let tools = orchestrator.catalog().tools();
    let of_servers = tools.filter(|tool| tool.identity().namespace.as_str() != "fake");
    of_servers.map(|tool| tool.exposed().to_string()).collect()
}

#[tokio::test]
async fn next_call_sees_an_announced_tool_list_change() {
    let server = ChangingProvider::new("s", &["one"]);
    let orchestrator = orchestrator(&[Arc::clone(&server)], NamingScheme::Double);
    assert_eq!(said(&orchestrator.execute(call("s__one", "{}")).await), "s/one");
    server.list(&["two"]);
    assert_eq!(said(&orchestrator.execute(call("s__two", "{}")).await), "s/two");
    let gone = orchestrator.execute(call("s__one", "{}")).await;
    assert_eq!(said(&gone), "unknown_tool: Unknown tool: s__one");
    assert_eq!(names(&orchestrator), ["s__two"]);
}

#[tokio::test]
async fn unannounced_tool_list_change_is_seen_only_after_warm_up() {
    let server = ChangingProvider::new("s", &["one"]);
    let orchestrator = orchestrator(&[Arc::clone(&server)], NamingScheme::Double);
    let before = orchestrator.catalog().snapshot();
    server.list_quietly(&["two"]);
    assert!(Arc::ptr_eq(&before, &orchestrator.catalog().snapshot()));
    assert!(orchestrator.catalog().warm_up().await.is_empty());
    assert_eq!(names(&orchestrator), ["s__two"], "warm-up reads every list again");
}

#[tokio::test(start_paused = true)]
async fn tool_list_change_does_not_affect_a_call_in_flight() {
    let server = ChangingProvider::new("s", &["shift", "other"]);
    let orchestrator = orchestrator(&[server], NamingScheme::Double);
    let mut shifting = orchestrator.execute(call("s__shift", "{}")).boxed();
    assert!(shifting.as_mut().now_or_never().is_none(), "the call is in flight");
    assert_eq!(said(&orchestrator.execute(call("s__shifted", "{}")).await), "s/shifted");
    assert!(orchestrator.execute(call("s__other", "{}")).await.outcome.is_err());
    assert_eq!(said(&shifting.await), "s/shift");
}

#[tokio::test]
async fn tools_keep_their_exposed_names_after_list_changes() {
    let (left, right) = (ChangingProvider::new("l", &["x"]), ChangingProvider::new("r", &[]));
    let orchestrator = orchestrator(&[Arc::clone(&left), Arc::clone(&right)], NamingScheme::Bare);
    assert_eq!(names(&orchestrator), ["x"]);
    right.list(&["x"]);
    let [_, of_right] = &names(&orchestrator)[..] else { panic!("expected two tools") };
    left.list(&[]);
    assert_eq!(names(&orchestrator), [of_right.as_str()]);
    assert_eq!(said(&orchestrator.execute(call(of_right, "{}")).await), "r/x");
    left.list(&["x"]);
    assert_eq!(said(&orchestrator.execute(call("x", "{}")).await), "l/x");
}

/// Returns the name of each tool after the servers became ready in this order. The servers in `cached` have their list
/// at once.
async fn names_after(scheme: NamingScheme, order: &[usize], cached: &[usize]) -> Vec<(String, String)> {
    const LISTS: [(&str, &[&str]); 4] =
        [("a", &["count", "b_x"]), ("a_b", &["x", "count"]), ("rest", &["count"]), ("z", &["only", "read"])];
    let servers: Vec<Arc<ChangingProvider>> = LISTS
        .iter()
        .enumerate()
        .map(|(at, (name, tools))| {
            ChangingProvider::new(name, if cached.contains(&at) { tools } else { &[] })
        })
        .collect();
    let orchestrator = orchestrator(&servers, scheme);
    for &at in order {
        servers[at].list(LISTS[at].1);
        // Take a snapshot in between, as the warm-up of other servers would.
        orchestrator.catalog().snapshot();
    }
    orchestrator.catalog().warm_up().await;
    let mut named: Vec<(String, String)> = orchestrator
        .catalog()
        .tools()
        .map(|tool| {
            (format!("{}/{}", tool.identity().namespace, tool.identity().tool), tool.exposed().to_string())
        })
        .collect();
    named.sort();
    named
}

#[tokio::test]
async fn names_do_not_depend_on_the_order_in_which_servers_become_ready() {
    for scheme in NamingScheme::ALL {
        let expected = names_after(scheme, &[0, 1, 2, 3], &[]).await;
        for first in 0..4 {
            for second in (0..4).filter(|second| *second != first) {
                let mut order = vec![first, second];
                order.extend((0..4).filter(|at| *at != first && *at != second));
                for cached in [vec![], vec![first], vec![second], vec![first, second], vec![0, 1, 2, 3]] {
                    let found = names_after(scheme, &order, &cached).await;
                    assert_eq!(found, expected, "{scheme:?} {order:?} {cached:?}");
                }
            }
        }
    }
}

#[test]
fn catalog_entries_are_reused_while_their_list_is_unchanged() {
    let (left, right) = (ChangingProvider::new("l", &["x"]), ChangingProvider::new("r", &["x"]));
    let orchestrator = orchestrator(&[Arc::clone(&left), right], NamingScheme::Double);
    let find = |name: &str| orchestrator.catalog().resolve(name).unwrap();
    let (old_left, old_right) = (find("l__x"), find("r__x"));
    left.list(&["x", "y"]);
    assert!(!Arc::ptr_eq(&old_left, &find("l__x")), "a changed list has new entries");
    assert!(Arc::ptr_eq(&old_right, &find("r__x")));
}

/// A governor that allows only `s__later`.
struct LaterOnlyGovernor;

impl Governor for LaterOnlyGovernor {
    fn govern(&self, tool: &CatalogEntry, undecided: GovernedTool) -> GovernedTool {
        let denied =
            ToolPolicy { approval: haft_core::tool::ApprovalPolicy::Deny, ..undecided.policy.clone() };
        match tool.exposed().as_str() {
            "s__later" => undecided,
            _ => GovernedTool { policy: denied, ..undecided },
        }
    }

    fn exclusion(&self, _: &str) -> Option<String> {
        None
    }
}

#[tokio::test]
async fn governor_applies_to_tools_added_later() {
    let server = ChangingProvider::new("s", &["first"]);
    let policies = ToolPolicies { governor: Some(Arc::new(LaterOnlyGovernor)), ..ToolPolicies::default() };
    let config = OrchestratorConfig { policies, ..OrchestratorConfig::default() };
    let catalog = Catalog::new(vec![Arc::clone(&server) as _], NamingScheme::Double);
    let orchestrator = Orchestrator::try_new(catalog, config).unwrap();
    server.list(&["later", "latest"]);
    assert_eq!(said(&orchestrator.execute(call("s__later", "{}")).await), "s/later");
    let denied = orchestrator.execute(call("s__latest", "{}")).await;
    assert_eq!(said(&denied), "denied: tool `s__latest` is denied by the operator");
}

#[test]
fn concurrent_readers_see_a_consistent_tool_list() {
    let server = ChangingProvider::new("s", &["t0"]);
    let orchestrator = orchestrator(&[Arc::clone(&server)], NamingScheme::Double);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..200).for_each(|_| assert_eq!(names(&orchestrator).len(), 1)));
        }
        for number in 1..50 {
            let name = format!("t{number}");
            server.list(&[&name]);
            let exposed = ToolName::new(&format!("s__{name}")).unwrap();
            assert_eq!(orchestrator.catalog().resolve(exposed.as_str()).unwrap().exposed(), &exposed);
        }
    });
}

#[test]
fn adding_or_removing_a_provider_renames_no_other_tool() {
    let [one, two, three] = ["one", "two", "three"].map(|name| ChangingProvider::new(name, &["a", "b"]));
    let orchestrator = orchestrator(&[one, two], NamingScheme::Double);
    let catalog = orchestrator.catalog();
    let before = names(&orchestrator);
    let kept = catalog.resolve("one__a").unwrap();
    catalog.add(three);
    assert_eq!(names(&orchestrator), ["one__a", "one__b", "three__a", "three__b", "two__a", "two__b"]);
    assert!(
        Arc::ptr_eq(&kept, &catalog.resolve("one__a").unwrap()),
        "the entry is reused with its compiled schemas"
    );
    let removed = catalog.remove(&Namespace::new("three").unwrap());
    assert_eq!((removed.len(), names(&orchestrator)), (1, before));
    assert!(catalog.remove(&Namespace::new("three").unwrap()).is_empty());
}

#[tokio::test]
async fn catalog_changed_resolves_on_every_kind_of_change() {
    let server = ChangingProvider::new("s", &["one"]);
    let orchestrator = orchestrator(&[Arc::clone(&server)], NamingScheme::Double);
    let catalog = orchestrator.catalog();
    let check = async |change: &dyn Fn()| {
        let seen = catalog.snapshot();
        let mut changed = Box::pin(catalog.changed(&seen));
        assert!((&mut changed).now_or_never().is_none(), "the catalog has not changed yet");
        change();
        assert!(!Arc::ptr_eq(&seen, &changed.await));
    };
    check(&|| server.list(&["two"])).await;
    check(&|| catalog.add(ChangingProvider::new("t", &["three"]))).await;
    check(&|| drop(catalog.remove(&Namespace::new("t").unwrap()))).await;
}

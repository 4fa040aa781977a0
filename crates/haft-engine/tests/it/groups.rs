use std::sync::Arc;

use haft_core::glob::ToolGlob;
use haft_core::name::GroupName;
use haft_core::naming::NamingScheme;
use haft_core::provider::ToolProvider;
use haft_engine::{
    CallOptions, Catalog, CatalogEntry, GovernedTool, Governor, InactiveReason, Orchestrator,
    OrchestratorConfig, RunContext, ToolActivity, ToolFilter, ToolFilterItem, ToolPolicies,
};

use crate::fake::{ChangingProvider, call, said};

fn group(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

/// A governor that adds `read` to the group `reading` and disables `off`.
struct GroupGovernor;

impl Governor for GroupGovernor {
    fn govern(&self, tool: &CatalogEntry, mut undecided: GovernedTool) -> GovernedTool {
        match tool.identity().tool.as_str() {
            "read" => undecided.groups.push(group("reading")),
            "off" => {
                let why = InactiveReason::TurnedOff("the operator says so".into());
                undecided.activity = ToolActivity::Inactive { why };
            }
            _ => {}
        }
        undecided
    }

    fn exclusion(&self, written_name: &str) -> Option<String> {
        (written_name == "web__gone").then(|| "the operator keeps it out".into())
    }
}

fn orchestrator() -> Orchestrator {
    let providers: Vec<Arc<dyn ToolProvider>> =
        vec![ChangingProvider::new("git", &["read", "log"]), ChangingProvider::new("web", &["read", "off"])];
    let policies = ToolPolicies { governor: Some(Arc::new(GroupGovernor)), ..ToolPolicies::default() };
    let config = OrchestratorConfig { policies, ..OrchestratorConfig::default() };
    Orchestrator::try_new(Catalog::new(providers, NamingScheme::Double), config).unwrap()
}

#[test]
fn only_active_tools_selected_by_the_filter_are_listed() {
    let check = |selection: ToolFilter, expected: &[&str]| {
        let tools = orchestrator().tools(&selection, &RunContext::default());
        let names: Vec<_> = tools.iter().map(|tool| tool.entry.exposed().as_str()).collect();
        assert_eq!(names, expected, "{selection:?}");
    };
    check(ToolFilter::All, &["git__log", "git__read", "web__read"]);
    check(ToolFilter::of([ToolFilterItem::Group(group("reading"))]), &["git__read", "web__read"]);
    check(ToolFilter::of([ToolFilterItem::Group(group("web"))]), &["web__read"]);
    let log = ToolFilterItem::Tool(ToolGlob::new("*LOG").unwrap());
    check(ToolFilter::of([ToolFilterItem::Group(group("web")), log]), &["git__log", "web__read"]);
    check(ToolFilter::of([ToolFilterItem::Tool(ToolGlob::new("web__off").unwrap())]), &[]);
    check(ToolFilter::of([]), &[]);
}

#[tokio::test]
async fn inactive_or_unselected_tool_is_denied() {
    let orchestrator = orchestrator();
    let check = async |tool: &str, picks: &[&str], expected: &str| {
        let selection = match picks {
            [] => ToolFilter::All,
            picks => ToolFilter::of(picks.iter().map(|name| ToolFilterItem::Group(group(name)))),
        };
        let options = CallOptions { selection, ..CallOptions::default() };
        let result = orchestrator.execute_with(call(tool, "{}"), options).await;
        assert_eq!(said(&result), expected);
        assert_eq!(result.receipt.executed, result.outcome.is_ok());
    };
    check("web__read", &[], "web/read").await;
    check("web__read", &["reading"], "web/read").await;
    check("git__log", &["reading", "web"], "denied: tool `git__log` is not among the tools of this request")
        .await;
    check("web__off", &[], "denied: tool `web__off` is not active: the operator says so").await;
    check("web__off", &["web"], "denied: tool `web__off` is not active: the operator says so").await;
    check("web__gone", &[], "denied: tool `web__gone` is not active: the operator keeps it out").await;
    // A name without a namespace never resolves to an inactive tool.
    check("off", &[], "unknown_tool: Unknown tool: off; did you mean `web__off`?").await;
    check("log", &[], "git/log").await;
}

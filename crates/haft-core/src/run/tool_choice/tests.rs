use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::internal_tools::batch::BATCH;
use crate::internal_tools::final_report::ReportShape;
use crate::internal_tools::report_format::ReportFormat;
use crate::internal_tools::tool_search::{TOOL_CALL, TOOL_SEARCH};
use crate::run::OptionalTools;
use crate::run::exposure::{ToolExposure, ToolListGrowth, ToolSearchPlan};
use crate::run::final_report::FinalReport;

/// Returns the plan of a run that offers all its own tools.
fn with_own_tools(support: ChoiceSupport) -> RunPlan {
    let search = ToolSearchPlan { roster: String::new(), growth: ToolListGrowth::Constant };
    RunPlan {
        report: FinalReport::Tool(ReportShape::plain(ReportFormat::Markdown)),
        offer: OptionalTools { task_status: true, batch: true },
        exposure: Some(ToolExposure { shown: Vec::new(), search: Some(search) }),
        support,
        ..RunPlan::default()
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn allowed(list: &[&str], must_call: MustCall) -> ToolChoice {
    ToolChoice::Allowed { names: names(list), must_call }
}

fn named(name: &str) -> ToolChoice {
    ToolChoice::Named(name.into())
}

#[test]
fn required_tool_choice_becomes_optional_after_the_first_tool_turn() {
    let check = |asked: ToolChoice, first: ToolChoice, later: ToolChoice| {
        assert_eq!(effective(&asked, None, ChoiceStage::First, AnswerForm::Text), first);
        assert_eq!(effective(&asked, None, ChoiceStage::Later, AnswerForm::Text), later);
        assert_eq!(effective(&asked, None, ChoiceStage::Final, AnswerForm::Text), ToolChoice::None);
        assert_eq!(effective(&asked, None, ChoiceStage::Final, AnswerForm::ReportTool), named(FINAL_REPORT));
    };
    check(ToolChoice::Auto, ToolChoice::Auto, ToolChoice::Auto);
    check(ToolChoice::None, ToolChoice::None, ToolChoice::None);
    check(ToolChoice::Required, ToolChoice::Required, ToolChoice::Auto);
    check(named("a"), named("a"), ToolChoice::Auto);
    check(allowed(&["a"], MustCall::Yes), allowed(&["a"], MustCall::Yes), allowed(&["a"], MustCall::No));
}

#[test]
fn allowed_tools_of_the_run_narrow_every_tool_choice() {
    let check = |asked: ToolChoice, list: &[&str], expected: ToolChoice| {
        let found = effective(&asked, Some(&names(list)), ChoiceStage::First, AnswerForm::Text);
        assert_eq!(found, expected, "{asked:?} {list:?}");
    };
    check(ToolChoice::Auto, &["a", "b"], allowed(&["a", "b"], MustCall::No));
    check(ToolChoice::Required, &["a"], allowed(&["a"], MustCall::Yes));
    check(allowed(&["b", "c"], MustCall::Yes), &["a", "b"], allowed(&["b"], MustCall::Yes));
    check(allowed(&["c"], MustCall::No), &["a"], ToolChoice::None);
    check(named("a"), &["a"], named("a"));
    check(named("c"), &["a"], ToolChoice::None);
    check(ToolChoice::Auto, &[], ToolChoice::None);
}

#[test]
fn call_outside_the_tool_choice_is_refused() {
    let check = |choice: ToolChoice, tool: &str, expected: Option<&str>| {
        let found = refusal(&choice, tool, &with_own_tools(ChoiceSupport::default()));
        match expected {
            None => assert_eq!(found, None, "{choice:?} {tool}"),
            Some(part) => assert!(found.clone().is_some_and(|text| text.contains(part)), "{tool}: {found:?}"),
        }
    };
    check(ToolChoice::Auto, "a", None);
    check(ToolChoice::Required, "a", None);
    check(ToolChoice::None, "a", Some("cannot be called now"));
    check(named("a"), "a", None);
    check(named("a"), "b", Some("only `a`"));
    check(allowed(&["a"], MustCall::No), "a", None);
    check(allowed(&["a"], MustCall::No), "b", Some("`b` is not allowed in this run; allowed tools: a"));
    check(allowed(&["a"], MustCall::No), FINAL_REPORT, None);
    check(allowed(&["a"], MustCall::No), BATCH, None);
}

#[test]
fn answer_without_a_call_violates_a_tool_choice_that_requires_a_call() {
    let check = |choice: ToolChoice, unmet_: bool| {
        assert_eq!(unmet_choice_message(&choice).is_some(), unmet_, "{choice:?}");
    };
    check(ToolChoice::Auto, false);
    check(ToolChoice::None, false);
    check(ToolChoice::Required, true);
    check(named("a"), true);
    check(allowed(&["a"], MustCall::Yes), true);
    check(allowed(&["a"], MustCall::No), false);
}

#[test]
fn unsupported_tool_choice_is_sent_as_text_to_the_model() {
    let tools = ["a", "b", FINAL_REPORT].map(|name| ModelTool {
        name: name.into(),
        description: String::new(),
        input_schema: Arc::new(json!({"type": "object"})),
        strict: false,
    });
    let nothing = ChoiceSupport { none: false, required: false, named: false, allowed: false };
    let check = |choice: ToolChoice, support: ChoiceSupport, expected: ToolChoice, told: Option<&str>| {
        let (found, words) = sent(&choice, &with_own_tools(support), &tools);
        assert_eq!(found, expected, "{choice:?}");
        assert_eq!(words.is_some(), told.is_some(), "{words:?}");
        assert!(words.unwrap_or_default().contains(told.unwrap_or_default()));
    };
    let all = ChoiceSupport::default();
    check(ToolChoice::Auto, nothing, ToolChoice::Auto, None);
    check(ToolChoice::None, nothing, ToolChoice::Auto, Some("Do not call any tool"));
    check(ToolChoice::Required, nothing, ToolChoice::Auto, Some("at least one tool"));
    check(named("a"), nothing, ToolChoice::Auto, Some("`a`"));
    check(named("a"), ChoiceSupport { required: true, ..nothing }, ToolChoice::Required, Some("`a`"));
    check(allowed(&["a"], MustCall::Yes), nothing, ToolChoice::Auto, Some("only these: a"));
    check(named("a"), all, named("a"), None);
    let shown = allowed(&["a", FINAL_REPORT], MustCall::No);
    check(allowed(&["a", "gone"], MustCall::No), all, shown, None);
}

#[test]
fn allowed_tools_list_still_permits_tool_search() {
    let choice = allowed(&["a__b"], MustCall::No);
    let plan = with_own_tools(ChoiceSupport::default());
    for own in [TOOL_SEARCH, TOOL_CALL, FINAL_REPORT, "a__b"] {
        assert_eq!(refusal(&choice, own, &plan), None, "{own}");
    }
    assert!(refusal(&choice, "a__c", &plan).is_some_and(|why| why.contains("`a__c` is not allowed")));
}

#[test]
fn allowed_tools_list_restricts_functions_that_have_the_name_of_an_internal_tool() {
    let choice = allowed(&["a"], MustCall::No);
    for name in [TOOL_SEARCH, TOOL_CALL, FINAL_REPORT, BATCH, "agent__task_status"] {
        assert!(refusal(&choice, name, &RunPlan::default()).is_some(), "{name}");
    }
    let tool = |name: &str| ModelTool {
        name: name.into(),
        description: String::new(),
        input_schema: Arc::new(json!({"type": "object"})),
        strict: false,
    };
    let (shown, _) = sent(&choice, &RunPlan::default(), &[tool("a"), tool(TOOL_SEARCH)]);
    assert_eq!(shown, choice);
}

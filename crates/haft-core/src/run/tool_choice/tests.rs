use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::internal_tools::batch::BATCH;

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
        let found = refusal(&choice, tool);
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
fn answer_without_a_call_violates_a_choice_that_requires_one() {
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
        let (found, words) = sent(&choice, support, &tools);
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
    for own in [TOOL_SEARCH, TOOL_CALL, FINAL_REPORT, "a__b"] {
        assert_eq!(refusal(&choice, own), None, "{own}");
    }
    assert!(refusal(&choice, "a__c").is_some_and(|why| why.contains("`a__c` is not allowed")));
}

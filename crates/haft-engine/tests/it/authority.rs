use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::approval::{Answer, ApprovalRequest, Approver};
use haft_core::glob::ToolGlob;
use haft_core::name::ToolName;
use haft_core::rules::{CommandPattern, Decision, Rule, Rules};
use haft_engine::{Authority, OrchestratorConfig, RunContext};

use crate::fake::{Log, Rig, call, orchestrator_for, said};

/// Answers always the same, and keeps what it was asked.
struct Person {
    answer: Answer,
    asked: Log,
}

impl Approver for Person {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Answer> {
        self.asked.write(format!("{} {:?}", request.tool, request.rules));
        Box::pin(async { self.answer })
    }
}

fn rule(tool: &str, command: Option<&str>, decision: Decision) -> Rule {
    let command = command.map(|text| CommandPattern::new(text).unwrap());
    Rule { tool: ToolGlob::new(tool).unwrap(), command, decision }
}

/// A run whose person always gives this answer; without an answer it has no one to ask.
fn run(answer: Option<Answer>, asked: &Log) -> RunContext {
    let approver =
        answer.map(|answer| Arc::new(Person { answer, asked: asked.clone() }) as Arc<dyn Approver>);
    RunContext { approver, ..RunContext::default() }
}

/// `echo` stands for a shell here: its `text` is a command line.
fn governed(rules: Vec<Rule>, answer: Option<Answer>, asked: &Log) -> Rig {
    let command_lines = [(ToolName::new("echo").unwrap(), "text".to_owned())].into();
    let rules = Rules { rules, default: Decision::Allow };
    let authority = Authority { rules, command_lines };
    let config = OrchestratorConfig { authority, ..OrchestratorConfig::default() };
    orchestrator_for(run(answer, asked), config).0
}

async fn check(rules: Vec<Rule>, answer: Option<Answer>, line: &str, expected: &str) {
    let orchestrator = governed(rules, answer, &Log::default());
    let result = orchestrator.execute(call("echo", &format!(r#"{{"text": "{line}"}}"#))).await;
    assert!(said(&result).starts_with(expected), "{line}: {}", said(&result));
}

#[tokio::test]
async fn rules_see_every_command_of_a_line() {
    let rules = || vec![rule("echo", Some("rm *"), Decision::Deny)];
    check(rules(), None, "ls -l", "echo: ls -l").await;
    check(rules(), None, "ls && rm -rf x", "denied: this call of `echo` is denied").await;
    check(rules(), None, "a=$(rm x)", "denied: this call of `echo` is denied").await;
}

#[tokio::test]
async fn a_tool_that_is_denied_altogether_says_nothing_about_its_arguments() {
    let orchestrator = governed(vec![rule("ech*", None, Decision::Deny)], None, &Log::default());
    let result = orchestrator.execute(call("echo", r#"{"wrong": 1}"#)).await;
    assert!(said(&result).starts_with("denied: tool `echo` is denied"), "{}", said(&result));
    assert!(!result.receipt.executed);
}

#[tokio::test]
async fn what_must_be_asked_goes_by_the_answer() {
    let rules = || vec![rule("echo", None, Decision::Ask)];
    check(rules(), Some(Answer::AllowOnce), "ls", "echo: ls").await;
    check(rules(), Some(Answer::Deny), "ls", "denied: the user refused").await;
    check(rules(), Some(Answer::Later), "ls", "approval_pending").await;
    check(rules(), None, "ls", "denied: this call of `echo` needs approval and there is no one to ask").await;
}

#[tokio::test]
async fn an_answer_for_good_is_not_asked_again_and_covers_nothing_else() {
    let asked = Log::default();
    let rules = vec![rule("echo", None, Decision::Ask)];
    let orchestrator = governed(rules, Some(Answer::AllowExact), &asked);
    for _ in 0..2 {
        assert_eq!(said(&orchestrator.execute(call("echo", r#"{"text": "ls"}"#)).await), "echo: ls");
    }
    assert_eq!(asked.lines().len(), 1, "the same call is asked about once");
    orchestrator.execute(call("echo", r#"{"text": "ls -l"}"#)).await;
    assert_eq!(asked.lines().len(), 2, "another call is another question");
}

#[tokio::test]
async fn nobody_is_asked_about_a_malformed_call() {
    let asked = Log::default();
    let orchestrator = governed(vec![rule("*", None, Decision::Ask)], Some(Answer::AllowOnce), &asked);
    let result = orchestrator.execute(call("echo", "{}")).await;
    assert!(said(&result).starts_with("invalid_arguments"), "{}", said(&result));
    assert!(asked.lines().is_empty());
}

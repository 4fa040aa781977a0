//! The tool choice of a turn: the tools that a model may or must call, the part that the provider enforces, and the
//! part that the run enforces.

use crate::internal_tools::final_report::FINAL_REPORT;
use crate::model_request::{ModelTool, MustCall, ToolChoice};
use crate::run::plan::RunPlan;

/// The tool choices that a provider supports. For other choices the run gives the model an instruction in words. The
/// run checks the reply in both cases.
#[expect(clippy::struct_excessive_bools, reason = "each field is one independent capability")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChoiceSupport {
    /// The provider supports [`ToolChoice::None`].
    pub none: bool,
    /// The provider supports [`ToolChoice::Required`].
    pub required: bool,
    /// The provider supports [`ToolChoice::Named`].
    pub named: bool,
    /// The provider supports [`ToolChoice::Allowed`].
    pub allowed: bool,
}

impl Default for ChoiceSupport {
    fn default() -> Self {
        Self { none: true, required: true, named: true, allowed: true }
    }
}

/// The stage of a run for which a tool choice is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChoiceStage {
    /// The model has not called a tool yet.
    First,
    /// The model has called tools, so a required call has been made, and the run must be able to end.
    Later,
    /// The model may only answer.
    Final,
}

/// The form of a run's answer, as far as it affects the tool choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerForm {
    Text,
    ReportTool,
}

/// Returns the tool choice for a turn. `allowed` is the run's list of allowed tools; the request may narrow it further.
pub(super) fn effective(
    asked: &ToolChoice,
    allowed: Option<&[String]>,
    moment: ChoiceStage,
    answer: AnswerForm,
) -> ToolChoice {
    let choice = match (moment, asked) {
        (ChoiceStage::Final, _) | (_, ToolChoice::None) => return answer_only(answer),
        (ChoiceStage::First, choice) => choice.clone(),
        (ChoiceStage::Later, ToolChoice::Allowed { names, must_call: _ }) => {
            ToolChoice::Allowed { names: names.clone(), must_call: MustCall::No }
        }
        (ChoiceStage::Later, ToolChoice::Auto | ToolChoice::Required | ToolChoice::Named(_)) => {
            ToolChoice::Auto
        }
    };
    match allowed {
        Some(allowed) => narrowed(choice, allowed, answer),
        None => choice,
    }
}

fn answer_only(answer: AnswerForm) -> ToolChoice {
    match answer {
        AnswerForm::Text => ToolChoice::None,
        AnswerForm::ReportTool => ToolChoice::Named(FINAL_REPORT.into()),
    }
}

fn narrowed(choice: ToolChoice, allowed: &[String], answer: AnswerForm) -> ToolChoice {
    let (names, must_call) = match choice {
        ToolChoice::Auto => (allowed.to_vec(), MustCall::No),
        ToolChoice::Required => (allowed.to_vec(), MustCall::Yes),
        ToolChoice::Named(name) if allowed.contains(&name) => return ToolChoice::Named(name),
        ToolChoice::Named(_) | ToolChoice::None => return answer_only(answer),
        ToolChoice::Allowed { names, must_call } => {
            (names.into_iter().filter(|name| allowed.contains(name)).collect(), must_call)
        }
    };
    if names.is_empty() { answer_only(answer) } else { ToolChoice::Allowed { names, must_call } }
}

/// Returns the reason why a call breaks the tool choice, or `None`. The text is for the model. No list restricts the
/// run's own tools. The calls inside a batch are checked one by one by `ClassifiedTurn::take_batch`, and a `tool_call` is
/// replaced by its inner call before this check.
pub(super) fn refusal(choice: &ToolChoice, tool: &str, plan: &RunPlan) -> Option<String> {
    match choice {
        ToolChoice::Auto | ToolChoice::Required => None,
        ToolChoice::None => Some("tools cannot be called now; write your answer as text".into()),
        ToolChoice::Named(name) if name == tool => None,
        ToolChoice::Named(name) => Some(format!("only `{name}` can be called now; got `{tool}`")),
        ToolChoice::Allowed { names, .. } if plan.owns(tool) || names.iter().any(|name| name == tool) => None,
        ToolChoice::Allowed { names, .. } => {
            Some(format!("`{tool}` is not allowed in this run; allowed tools: {}", names.join(", ")))
        }
    }
}

/// Returns a message for the model if a reply without calls breaks the tool choice.
pub(super) fn unmet_choice_message(choice: &ToolChoice) -> Option<String> {
    match choice {
        ToolChoice::Required => Some("you must call at least one tool".into()),
        ToolChoice::Named(name) => Some(format!("you must call `{name}`")),
        ToolChoice::Allowed { names, must_call: MustCall::Yes } => {
            Some(format!("you must call at least one of {}", names.join(", ")))
        }
        ToolChoice::Auto | ToolChoice::None | ToolChoice::Allowed { must_call: MustCall::No, .. } => None,
    }
}

/// Returns the tool choice to send, and an instruction for the model if the provider does not support this choice.
pub(super) fn sent(
    choice: &ToolChoice,
    plan: &RunPlan,
    offered: &[ModelTool],
) -> (ToolChoice, Option<String>) {
    let support = plan.support;
    let required = if support.required { ToolChoice::Required } else { ToolChoice::Auto };
    match choice {
        ToolChoice::None if !support.none => {
            (ToolChoice::Auto, Some("Do not call any tool; write your answer as text.".into()))
        }
        ToolChoice::Required if !support.required => {
            (ToolChoice::Auto, Some("Call at least one tool before you answer.".into()))
        }
        ToolChoice::Named(name) if !support.named => {
            (required, Some(format!("Call the tool `{name}`, and no other.")))
        }
        ToolChoice::Allowed { names, must_call } if !support.allowed => {
            let base = match must_call {
                MustCall::Yes => required,
                MustCall::No => ToolChoice::Auto,
            };
            (base, Some(format!("Of all tools call only these: {}.", names.join(", "))))
        }
        ToolChoice::Allowed { names, must_call } => {
            // Lists never contain the run's own tools, but the model may call them. A name that is not in the request
            // must not be sent.
            let may = |tool: &&ModelTool| plan.owns(&tool.name) || names.contains(&tool.name);
            let names = offered.iter().filter(may).map(|tool| tool.name.clone()).collect();
            (ToolChoice::Allowed { names, must_call: *must_call }, None)
        }
        ToolChoice::Auto | ToolChoice::None | ToolChoice::Required | ToolChoice::Named(_) => {
            (choice.clone(), None)
        }
    }
}

#[cfg(test)]
mod tests;

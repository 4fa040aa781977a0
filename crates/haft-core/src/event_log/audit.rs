//! The event fields that operators read in log lines and accounting: principal, source and decision.
//!
//! The readers of a run's events do not get these fields. A caller must not learn the operator's rules, and
//! `stream-json` must be the same in a replay.

use serde::{Deserialize, Serialize};

use super::{LogEvent, millis};
use crate::event::{ApprovalOutcome, CallAccount, CapturedContent, Event, PolicyDecision, ToolReference};
use crate::model_provider::{AttemptFollowUp, ModelAccount};
use crate::position::RunPosition;
use crate::principal::Principal;

/// The audit fields of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallAudit {
    /// The principal: `local`, or `TENANT/SUBJECT`. The code that sums up usage records reads each line only up to this
    /// field, so it must stay the first audit field.
    pub principal: String,
    /// The SHA-256 digest of the arguments as the model wrote them.
    pub arguments_digest: String,
    /// The origin of the tool.
    #[serde(flatten)]
    pub source: ToolSource,
    /// The session of the original request; absent if it is the run's own session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The permission decision and a person's answer.
    #[serde(flatten)]
    pub decision: DecisionAudit,
    /// The queue in which the call took a slot; absent for a call without a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The handle under which the output was stored; absent if it was not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
}

/// The origin of a tool; empty if the tool is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSource {
    /// The kind of provider: `builtin`, `mcp`, `rest`, `agent` or `client`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_kind: Option<String>,
    /// The namespace of the tool, such as the name of its MCP server or REST source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The decision about a call; empty if the call ended before a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionAudit {
    /// The decision of the rules: `allow`, `ask` or `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// The rule that decided, as `haft policy explain` writes it; absent for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The name of the approver, such as `terminal` or `caller`; `remembered` if a stored grant allowed the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver: Option<String>,
    /// The answer: `allow_once`, `allow_exact`, `allow_prefix`, `allow_rule`, `deny`, `unanswered` or `later`;
    /// `no_approver` if there was no approver (`nobody` in records of older versions).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// The content of a call, if the operator enabled content capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallContent {
    /// The arguments as the model wrote them.
    pub arguments: String,
    /// The output as text, or the error message.
    pub result: String,
}

/// The audit fields of an attempt to call a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelAudit {
    /// The principal: `local`, or `TENANT/SUBJECT`. The code that sums up usage records reads each line only up to this
    /// field, so it must stay the first audit field.
    pub principal: String,
    /// The id of the request, which all its attempts share.
    pub request_id: String,
    /// The time until the first event of the reply, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_event_ms: Option<u64>,
    /// The delay before the next attempt, in milliseconds, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl LogEvent {
    /// Fills the audit fields and the captured content. `read` is the event that was converted to this log event.
    pub(super) fn add_audit(&mut self, read: &Event) {
        match (self, read) {
            (Self::ModelFinished { audit, .. }, Event::ModelFinished { id, principal, account, .. }) => {
                *audit = Some(Box::new(ModelAudit::new(id, principal, account)));
            }
            (Self::ToolStarted { source, .. }, Event::ToolStarted { tool, .. }) => {
                *source = ToolSource::of(tool);
            }
            (
                Self::ToolFinished { audit, content, .. },
                Event::ToolFinished { operation, tool, account, content: captured, .. },
            ) => {
                *audit = Some(Box::new(CallAudit::new(operation.place, tool, account)));
                *content = captured.as_deref().map(|captured| Box::new(CallContent::of(captured)));
            }
            (
                _,
                Event::ModelStarted { .. }
                | Event::ModelFinished { .. }
                | Event::ToolStarted { .. }
                | Event::ToolProgress { .. }
                | Event::ToolFinished { .. }
                | Event::Run { .. },
            ) => {}
        }
    }
}

impl CallAudit {
    /// Builds the fields from the audit data of a call.
    pub fn new(place: RunPosition, tool: &ToolReference, account: &CallAccount) -> Self {
        Self {
            principal: account.principal.to_string(),
            arguments_digest: account.arguments.to_string(),
            source: ToolSource::of(tool),
            origin: (place.origin != place.session).then(|| place.origin.to_string()),
            decision: account.verdict.as_ref().map(DecisionAudit::of).unwrap_or_default(),
            queue: account.queue.as_ref().map(ToString::to_string),
            handle: account.handle.as_deref().map(str::to_owned),
        }
    }
}

impl ToolSource {
    /// Returns the origin of a tool that is known to the catalog.
    pub fn of(tool: &ToolReference) -> Self {
        let identity = tool.known().map(|known| &known.identity);
        Self {
            provider_kind: identity.map(|identity| identity.kind.name().to_owned()),
            namespace: identity.map(|identity| identity.namespace.to_string()),
        }
    }
}

impl DecisionAudit {
    /// Builds the audit fields from the permission decision about a call.
    pub fn of(verdict: &PolicyDecision) -> Self {
        let (approver, answer) = match verdict.consent {
            None => (None, None),
            Some(ApprovalOutcome::Remembered) => (Some("remembered"), None),
            Some(ApprovalOutcome::NoApprover) => (None, Some("no_approver")),
            Some(ApprovalOutcome::Answered { approver, answer }) => (Some(approver), Some(answer.name())),
        };
        Self {
            decision: Some(verdict.decision.name().to_owned()),
            rule: verdict.rule.as_deref().map(str::to_owned),
            approver: approver.map(str::to_owned),
            answer: answer.map(str::to_owned),
        }
    }
}

impl CallContent {
    fn of(content: &CapturedContent) -> Self {
        Self { arguments: content.arguments.clone(), result: content.result.clone() }
    }
}

impl ModelAudit {
    /// Builds the fields from the audit data of an attempt.
    pub fn new(request_id: &str, principal: &Principal, account: &ModelAccount) -> Self {
        Self {
            principal: principal.to_string(),
            request_id: request_id.to_owned(),
            first_event_ms: account.first_event.map(millis),
            retry_after_ms: match account.next {
                AttemptFollowUp::Nothing => None,
                AttemptFollowUp::Retry { after } => Some(millis(after)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approval::ApprovalAnswer;
    use crate::rules::PermissionDecision;

    #[test]
    fn audit_names_the_approver_and_the_answer() {
        let check = |consent: Option<ApprovalOutcome>, approver: Option<&str>, answer: Option<&str>| {
            let verdict =
                PolicyDecision { decision: PermissionDecision::Ask, rule: Some("ask bash".into()), consent };
            let found = DecisionAudit::of(&verdict);
            assert_eq!((found.approver.as_deref(), found.answer.as_deref()), (approver, answer));
            assert_eq!((found.decision.as_deref(), found.rule.as_deref()), (Some("ask"), Some("ask bash")));
        };
        check(None, None, None);
        check(Some(ApprovalOutcome::Remembered), Some("remembered"), None);
        check(Some(ApprovalOutcome::NoApprover), None, Some("no_approver"));
        let answered = ApprovalOutcome::Answered { approver: "terminal", answer: ApprovalAnswer::AllowOnce };
        check(Some(answered), Some("terminal"), Some("allow_once"));
    }
}

//! Remembered approvals, called grants, and the check if grants cover a call.
//!
//! A grant is bound to everything that a person saw when answering: the principal, the workspace, the tool and its
//! definition, and the sandbox. If one of them differs, the grant does not cover the call, and the person is asked
//! again.

mod prefix;

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::approval::{ApprovalAnswer, ApprovalRequest, shown};
use crate::digest::Digest;
use crate::naming::ToolIdentity;
use crate::principal::Principal;
use crate::rules::{PermissionDecision, PermissionRules, Ruling};
use crate::settings::sandbox::SandboxBinding;

pub use prefix::{PREFIX_WORDS_MAX, offered_prefix};

/// The maximum length of a call description in a grant, in characters.
pub const DESCRIPTION_CHARS_MAX: usize = 200;

/// An approval that is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The id that a person uses to revoke the grant.
    pub id: GrantId,
    /// The owner. The grant covers only calls that are made for this principal.
    pub owner: GrantOwner,
    /// The tool and workspace. `None` only for an [imported](Self::imported) grant: an earlier version stored just the
    /// digest of the exact call, which already includes workspace, tool and definition.
    pub target: Option<GrantTarget>,
    /// The calls that the grant covers.
    pub scope: GrantScope,
    /// The sandbox of the call that was approved. A call in a wider sandbox is not covered.
    pub confinement: SandboxBinding,
    /// The expiry time, in milliseconds since 1970; `None` if the grant does not expire.
    pub expires_ms: Option<u64>,
    /// The approver, and the time of the approval.
    pub decision: GrantDecision,
}

/// Identifies a grant. The id is derived from the content, so giving the same approval twice results in one grant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(u128);

/// The owner of a grant. The principal's credential is not part of the owner, so a person keeps the grants when an API
/// key is renewed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantOwner {
    /// The tenant of the principal.
    pub tenant: String,
    /// The subject of the principal.
    pub subject: String,
}

/// The tool and the workspace that a grant is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantTarget {
    /// The workspace path as text, in the form that the user saw.
    pub workspace: String,
    /// The identity of the tool, independent of its exposed name.
    pub tool: ToolIdentity,
    /// The digest of the definition, so that a server cannot change a tool under an existing grant.
    pub definition: Digest,
}

/// The calls of the tool that a grant covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantScope {
    /// One call with exactly these arguments.
    Exact {
        /// The digest of an [`ApprovalKey`](crate::approval::ApprovalKey).
        digest: Digest,
        /// The beginning of the arguments, shown in lists of grants.
        description: String,
    },
    /// Shell command lines in which each command that needs approval starts with these words.
    CommandPrefix(Vec<String>),
    /// Calls for which only this rule requires approval. The grant is bound to the rule text, so a changed rule
    /// requires a new approval.
    Rule(String),
}

/// The approver of a grant, and the time of the approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantDecision {
    /// The name of the approver.
    pub by: String,
    /// The time of the approval, in milliseconds since 1970.
    pub at_ms: u64,
}

/// Everything that a new grant is bound to, except the scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantBinding {
    /// The principal of the call.
    pub owner: GrantOwner,
    /// The tool and the workspace of the call.
    pub target: GrantTarget,
    /// The sandbox of the call.
    pub confinement: SandboxBinding,
}

/// A call for which the rules require approval.
#[derive(Debug, Clone, Copy)]
pub struct AskedCall<'a> {
    /// The principal, tool, workspace and sandbox of the call.
    pub binding: &'a GrantBinding,
    /// The digest of an [`ApprovalKey`](crate::approval::ApprovalKey).
    pub digest: Digest,
    /// The exposed tool name, which the rules use.
    pub exposed: &'a str,
    /// The shell line that the call would run, for tools that run one.
    pub line: Option<&'a str>,
    /// The operator's rules.
    pub rules: &'a PermissionRules,
    /// The decision of the rules about the call.
    pub ruling: &'a Ruling,
}

/// Returns the grants that together cover a call, or `None` if the grants do not cover it, or if the rules allow or
/// deny it without approval. A grant never overrides a denial.
///
/// Several grants are needed for a line such as `git status && npm test`, in which each command has its own rule.
pub fn covering<'g>(grants: &'g [Grant], call: &AskedCall<'_>, now_ms: u64) -> Option<Vec<&'g Grant>> {
    match call.ruling.decision {
        PermissionDecision::Allow | PermissionDecision::Deny => return None,
        PermissionDecision::Ask => {}
    }
    let bound: Vec<&Grant> = grants.iter().filter(|grant| grant.is_bound_to(call, now_ms)).collect();
    by_digest(&bound, call).or_else(|| by_rules(&bound, call)).or_else(|| prefix::by_commands(&bound, call))
}

impl Grant {
    /// Creates the grant for a person's answer. The grant does not expire.
    pub fn new(binding: &GrantBinding, scope: GrantScope, decision: GrantDecision) -> Self {
        let GrantBinding { owner, target, confinement } = binding.clone();
        Self::with_id(owner, Some(target), scope, confinement, decision)
    }

    /// Creates the grant for an exact call that an earlier version stored without its sandbox. The grant is valid only
    /// in the narrowest sandbox, because the sandbox of the approved call is unknown.
    pub fn imported(owner: GrantOwner, digest: Digest, decision: GrantDecision) -> Self {
        let scope = GrantScope::Exact { digest, description: String::new() };
        Self::with_id(owner, None, scope, SandboxBinding::NARROWEST, decision)
    }

    /// Returns the grant with an expiry time: `lifetime` after the decision. With `None` the grant does not expire.
    #[must_use]
    pub fn lasting(mut self, lifetime: Option<Duration>) -> Self {
        let millis = lifetime.map(|lifetime| u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX));
        self.expires_ms = millis.map(|millis| self.decision.at_ms.saturating_add(millis));
        self
    }

    /// Returns true if this grant alone covers the call.
    pub fn covers(&self, call: &AskedCall<'_>, now_ms: u64) -> bool {
        covering(std::slice::from_ref(self), call, now_ms).is_some()
    }

    /// Returns true if the grant has expired at this time.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|end| end <= now_ms)
    }

    /// Returns true if the grant may apply in a workspace.
    pub fn is_in(&self, workspace: &str) -> bool {
        self.target.as_ref().is_none_or(|target| target.workspace == workspace)
    }

    fn with_id(
        owner: GrantOwner,
        target: Option<GrantTarget>,
        scope: GrantScope,
        confinement: SandboxBinding,
        decision: GrantDecision,
    ) -> Self {
        let id = GrantId::of_content(&owner, target.as_ref(), &scope, confinement);
        Self { id, owner, target, scope, confinement, expires_ms: None, decision }
    }

    /// Returns true if the grant has not expired, belongs to the principal, tool and workspace of the call, and was
    /// given for a sandbox that is at least as wide as the call's. Does not compare the scope.
    fn is_bound_to(&self, call: &AskedCall<'_>, now_ms: u64) -> bool {
        let GrantBinding { owner, target, confinement } = call.binding;
        let same_target = match (&self.target, &self.scope) {
            (Some(granted), _) => granted == target,
            (None, GrantScope::Exact { .. }) => true,
            (None, GrantScope::CommandPrefix(_) | GrantScope::Rule(_)) => false,
        };
        same_target
            && self.owner == *owner
            && confinement.is_within(self.confinement)
            && !self.is_expired(now_ms)
    }
}

fn by_digest<'g>(grants: &[&'g Grant], call: &AskedCall<'_>) -> Option<Vec<&'g Grant>> {
    let is_exact = |grant: &&&Grant| match &grant.scope {
        GrantScope::Exact { digest, .. } => *digest == call.digest,
        GrantScope::CommandPrefix(_) | GrantScope::Rule(_) => false,
    };
    grants.iter().find(is_exact).map(|grant| vec![*grant])
}

fn by_rules<'g>(grants: &[&'g Grant], call: &AskedCall<'_>) -> Option<Vec<&'g Grant>> {
    every_rule(grants, &call.rules.asking(call.ruling))
}

/// Returns one grant for each of these rules, or `None` if a rule has no grant or if there are no rules.
fn every_rule<'g>(grants: &[&'g Grant], texts: &[String]) -> Option<Vec<&'g Grant>> {
    let granted = |text: &String| {
        let is_it = |grant: &&&Grant| match &grant.scope {
            GrantScope::Rule(rule) => rule == text,
            GrantScope::Exact { .. } | GrantScope::CommandPrefix(_) => false,
        };
        grants.iter().find(is_it).copied()
    };
    let found: Option<Vec<&Grant>> = texts.iter().map(granted).collect();
    found.filter(|found| !found.is_empty())
}

impl GrantScope {
    /// Returns the scopes of the grants to store for an answer. The list is empty if the answer is about one call only.
    pub fn of_answer(answer: ApprovalAnswer, request: &ApprovalRequest) -> Vec<Self> {
        match answer {
            ApprovalAnswer::AllowExact => {
                let description = describe(&request.arguments);
                vec![Self::Exact { digest: request.digest, description }]
            }
            ApprovalAnswer::AllowPrefix => request.prefix.iter().cloned().map(Self::CommandPrefix).collect(),
            ApprovalAnswer::AllowRule => request.rules.iter().cloned().map(Self::Rule).collect(),
            ApprovalAnswer::AllowOnce
            | ApprovalAnswer::Deny
            | ApprovalAnswer::Unanswered(_)
            | ApprovalAnswer::Later => Vec::new(),
        }
    }

    /// Returns the stable name that all records use.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exact { .. } => "exact",
            Self::CommandPrefix(_) => "command_prefix",
            Self::Rule(_) => "rule",
        }
    }
}

/// Prints the scope for people: `exactly git status`, `git status *` or `rule ask bash: git *`.
impl fmt::Display for GrantScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact { description, .. } if description.is_empty() => f.write_str("exactly one call"),
            Self::Exact { description, .. } => write!(f, "exactly {description}"),
            Self::CommandPrefix(words) => write!(f, "{} *", shown(&words.join(" "))),
            Self::Rule(text) => write!(f, "rule {}", shown(text)),
        }
    }
}

/// Describes arguments in one line. If there is only one argument, its name is left out.
fn describe(arguments: &Map<String, Value>) -> String {
    let value = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let named = |(name, argument): (&String, &Value)| match arguments.len() {
        1 => value(argument),
        _ => format!("{name}: {}", value(argument)),
    };
    let text = arguments.iter().map(named).collect::<Vec<_>>().join(", ");
    shown(&text).chars().take(DESCRIPTION_CHARS_MAX).collect()
}

impl GrantOwner {
    /// Returns the owner for a principal, without its credential.
    pub fn of(principal: &Principal) -> Self {
        Self { tenant: principal.tenant().to_owned(), subject: principal.subject().to_owned() }
    }
}

impl GrantId {
    fn of_content(
        owner: &GrantOwner,
        target: Option<&GrantTarget>,
        scope: &GrantScope,
        confinement: SandboxBinding,
    ) -> Self {
        let target = target.map(|target| {
            let GrantTarget { workspace, tool, definition } = target;
            let identity = [tool.kind.name(), tool.namespace.as_str(), tool.tool.as_str()];
            serde_json::json!([workspace, identity, definition.to_string()])
        });
        let granted = match scope {
            GrantScope::Exact { digest, .. } => Value::from(digest.to_string()),
            GrantScope::CommandPrefix(words) => Value::from(words.as_slice()),
            GrantScope::Rule(text) => Value::from(text.as_str()),
        };
        let sandbox = [confinement.mode.name(), confinement.network.name()];
        let content =
            serde_json::json!(["grant", owner.tenant, owner.subject, target, scope.name(), granted, sandbox]);
        let digest = Digest::of_value(&content);
        let half: [u8; 16] = std::array::from_fn(|at| digest.bytes()[at]);
        Self(u128::from_be_bytes(half))
    }

    /// Reads the text that [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u128::from_str_radix(text, 16).ok().map(Self)).flatten()
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrantId({self})")
    }
}

#[cfg(test)]
mod tests;

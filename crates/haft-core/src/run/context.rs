//! The context of a run: the principal that it works for, and the stores, approvers and models that its calls can use.

use std::fmt;
use std::sync::Arc;

use crate::approval::Approver;
use crate::client_relay::{ClientRelay, RelayAbilities};
use crate::elicitation::Elicitor;
use crate::event::{EventSink, NoEvents};
use crate::grant_store::{GrantStore, MemoryGrants};
use crate::output_store::OutputStore;
use crate::principal::Principal;
use crate::run::caller_approvals::{ApproverAuthority, CallerApproval};
use crate::run::untrusted::UntrustedReads;
use crate::sampling::Sampler;
use crate::settings::sandbox::SandboxBinding;

/// The context of one run, shared by all its calls. One orchestrator serves the runs of many principals, so the
/// orchestrator keeps nothing from this context between calls.
#[derive(Clone)]
pub struct RunContext {
    /// The principal for which the run works.
    pub principal: Principal,
    /// The workspace as text. It is part of the keys of caches and grants, because calls in different workspaces are
    /// never equal.
    pub workspace: Arc<str>,
    /// The sandbox of the calls. By default there is none. Then a grant that was given for a sandboxed call does not
    /// apply to the calls of this run.
    pub confinement: SandboxBinding,
    /// Decides the calls for which the rules require approval. Without an approver, these calls are denied.
    pub approver: Option<Arc<dyn Approver>>,
    /// Selects the calls that the approver may approve.
    pub authority: ApproverAuthority,
    /// Calls that the caller wants to approve, in addition to those for which the rules require approval.
    pub caller_approvals: Arc<[CallerApproval]>,
    /// The permanent approvals of all principals. A call uses only the approvals of its own principal.
    pub grants: Arc<dyn GrantStore>,
    /// Stores outputs that are too large for a conversation. Without a store, they are truncated.
    pub outputs: Option<Arc<dyn OutputStore>>,
    /// Answers the questions that MCP servers ask a person (elicitation). Without an elicitor, they are declined.
    pub elicitor: Option<Arc<dyn Elicitor>>,
    /// Sends model requests for MCP servers that may use sampling. Without a sampler, their requests are refused.
    pub sampler: Option<Arc<dyn Sampler>>,
    /// Passes requests from MCP servers to the client of a gateway. `None` in a run, which answers them itself.
    pub relay: Option<Arc<dyn ClientRelay>>,
    /// The requests that the client behind the relay can answer.
    pub relay_abilities: RelayAbilities,
    /// Receives the events of calls outside a run. Inside a run, the run's meter receives them.
    pub events: Arc<dyn EventSink>,
    /// Selects whether outputs of MCP tools keep the server's own JSON, for an interface that passes it on.
    pub raw_results: RawResults,
    /// Records that the run has read untrusted text. Sub-agents share this record with the agent that called them.
    pub untrusted: Arc<UntrustedReads>,
}

/// Selects whether an output keeps the JSON text that its server sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RawResults {
    /// Only the parsed content is kept, because the text would double the size of every output.
    #[default]
    Dropped,
    /// The text stays next to the parsed content until a stage changes the output.
    Kept,
}

impl Default for RunContext {
    fn default() -> Self {
        Self {
            principal: Principal::local(),
            workspace: "".into(),
            confinement: SandboxBinding::WIDEST,
            approver: None,
            authority: ApproverAuthority::AllCalls,
            caller_approvals: Arc::default(),
            grants: Arc::new(MemoryGrants::default()),
            outputs: None,
            elicitor: None,
            sampler: None,
            relay: None,
            relay_abilities: RelayAbilities::default(),
            events: Arc::new(NoEvents),
            raw_results: RawResults::Dropped,
            untrusted: Arc::default(),
        }
    }
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext")
            .field("principal", &self.principal)
            .field("workspace", &self.workspace)
            .field("approver", &self.approver.is_some())
            .field("outputs", &self.outputs.is_some())
            .finish_non_exhaustive()
    }
}

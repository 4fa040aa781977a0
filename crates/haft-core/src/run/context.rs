//! Everything of a call that belongs to its run and to no other: who it works for, and whom and what it can reach.

use std::fmt;
use std::sync::Arc;

use crate::approval::Approver;
use crate::client_relay::ClientRelay;
use crate::elicitation::Elicitor;
use crate::event::{EventSink, NoEvents};
use crate::grant_store::{GrantStore, MemoryGrants};
use crate::output_store::OutputStore;
use crate::principal::Principal;
use crate::run::caller_approvals::{ApproverAuthority, CallerApproval};
use crate::run::untrusted::UntrustedReads;
use crate::sampling::Sampler;
use crate::settings::sandbox::SandboxBinding;

/// The context of one run, shared by all its calls. One orchestrator serves runs of many principals: it keeps nothing of
/// this between calls.
#[derive(Clone)]
pub struct RunContext {
    /// The identity that the run works for.
    pub principal: Principal,
    /// The workspace as text. Calls in different workspaces are never equal, so it is part of the keys of caches and grants.
    pub workspace: Arc<str>,
    /// The sandbox of the calls. By default none, so that a grant for a narrower sandbox covers nothing here.
    pub confinement: SandboxBinding,
    /// Decides calls that the rules want asked; without one they are denied.
    pub approver: Option<Arc<dyn Approver>>,
    /// The calls that the approver may decide about.
    pub authority: ApproverAuthority,
    /// Calls that the caller wants to approve, beside those that the rules want asked.
    pub caller_approvals: Arc<[CallerApproval]>,
    /// Approvals that principals gave for good. A call reads those of its own principal.
    pub grants: Arc<dyn GrantStore>,
    /// Takes outputs that are too large for a conversation; without it they are truncated.
    pub outputs: Option<Arc<dyn OutputStore>>,
    /// Answers the questions that MCP servers put to a person; without it they are declined.
    pub elicitor: Option<Arc<dyn Elicitor>>,
    /// Asks models for MCP servers that may sample; without it they are refused.
    pub sampler: Option<Arc<dyn Sampler>>,
    /// Passes requests of MCP servers to the client of a gateway; `None` in a run, which answers them itself.
    pub relay: Option<Arc<dyn ClientRelay>>,
    /// Receives the events of calls that no run makes; the meter of a run receives those of its own calls.
    pub events: Arc<dyn EventSink>,
    /// Decides if outputs of MCP tools keep the server's own JSON, for an interface that passes them on.
    pub raw_results: RawResults,
    /// The untrusted text that the run has read. Sub-agents share it with the agent that calls them.
    pub untrusted: Arc<UntrustedReads>,
}

/// Decides if an output keeps the JSON text that its server sent.
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

//! The tools for one connection: with the connection's own approver, relay and progress.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haft_core::event::EventSinks;
use haft_core::run::context::RawResults;
use haft_core::sampling::OriginatingCall;
use haft_core::tool::CallId;
use haft_engine::RunContext;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::ClientConnection;
use crate::mcp::era::{ClientAbilities, RequestEra};
use crate::mcp::gateway::{GatewayClient, GatewayUser};
use crate::mcp::listing::ListedItems;
use crate::mcp::message::{GatewayError, INTERNAL_ERROR};
use crate::mcp::shared_tools::SharedTools;

/// The tools of one connection.
pub(super) struct OpenedClient {
    pub(super) shared: Arc<SharedTools>,
    pub(super) context: Arc<RunContext>,
    /// The list that the client saw last, or was last notified about.
    told: Mutex<Option<Arc<ListedItems>>>,
    /// The requests that listen for changes, in protocol revisions without sessions.
    pub(super) listeners: Mutex<Vec<ChangeListener>>,
    /// The URIs of resources whose changes the client wants, in protocol revisions with a handshake.
    pub(super) watched_uris: Mutex<HashSet<String>>,
    pub(super) prompts_changed: Notify,
    pub(super) resources_changed: Notify,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// A request that listens for changes.
#[derive(Debug, Clone)]
pub(super) struct ChangeListener {
    pub(super) id: Box<RawValue>,
    pub(super) tools: bool,
    pub(super) prompts: bool,
    pub(super) resources: bool,
    pub(super) uris: Vec<String>,
}

impl OpenedClient {
    /// Stores the list that the client sees now.
    pub(super) fn set_told(&self, tools: &Arc<ListedItems>) {
        *self.told() = Some(Arc::clone(tools));
    }

    pub(super) fn set_told_if_none(&self, tools: &Arc<ListedItems>) {
        self.told().get_or_insert_with(|| Arc::clone(tools));
    }

    /// Returns true once for a list that differs from the list that the client has seen.
    pub(super) fn is_news(&self, now: Arc<ListedItems>) -> bool {
        let mut told = self.told();
        let Some(seen) = told.as_mut().filter(|seen| !seen.is_same(&now)) else { return false };
        *seen = now;
        true
    }

    /// Returns the caller of a request that is not a tool call.
    pub(super) fn caller(&self, id: &str) -> OriginatingCall {
        let cx = haft_core::provider::CallContext::new(
            CallId(id.to_owned()),
            Arc::clone(&self.context),
            None,
            Arc::clone(&self.context.events),
        );
        OriginatingCall { place: self.shared.place, ..OriginatingCall::of(&cx) }
    }

    pub(super) fn listeners(&self) -> MutexGuard<'_, Vec<ChangeListener>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watched_uris(&self) -> MutexGuard<'_, HashSet<String>> {
        self.watched_uris.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the tasks until the connection closes. Only the first call has an effect.
    pub(super) fn keep(&self, tasks: impl FnOnce() -> Vec<JoinHandle<()>>) {
        let mut kept = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_empty() {
            *kept = tasks();
        }
    }

    pub(super) fn close(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.iter().for_each(JoinHandle::abort);
    }

    fn told(&self) -> MutexGuard<'_, Option<Arc<ListedItems>>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientConnection {
    /// Opens the tools for a client with these capabilities. Only the first call on a connection opens them.
    pub(super) fn open(&self, abilities: ClientAbilities) -> Result<Arc<OpenedClient>, GatewayError> {
        if let Some(opened) = self.opened.get() {
            return Ok(Arc::clone(opened));
        }
        let GatewayUser { principal, builtin_tools, .. } = self.user.clone();
        let client = GatewayClient { principal, abilities, builtin_tools };
        let shared = self.pool.get(client).map_err(|reason| GatewayError::new(INTERNAL_ERROR, reason))?;
        let events = EventSinks(vec![Arc::clone(&shared.context.events), Arc::clone(&self.progress) as _]);
        let context = RunContext {
            approver: abilities.elicitation.then(|| Arc::clone(&self.questions) as _),
            relay: Some(Arc::clone(&self.questions) as _),
            events: Arc::new(events),
            raw_results: RawResults::Kept,
            ..shared.context.clone()
        };
        let opened = OpenedClient {
            shared,
            context: Arc::new(context),
            told: Mutex::default(),
            listeners: Mutex::default(),
            watched_uris: Mutex::default(),
            prompts_changed: Notify::new(),
            resources_changed: Notify::new(),
            tasks: Mutex::default(),
        };
        Ok(Arc::clone(self.opened.get_or_init(|| Arc::new(opened))))
    }

    /// Opens the tools for a request. With a handshake, they are already open with the client's capabilities.
    pub(super) fn open_for(&self, era: RequestEra) -> Result<Arc<OpenedClient>, GatewayError> {
        match era {
            RequestEra::Handshake => self.open(ClientAbilities::default()),
            RequestEra::Stateless(abilities) => self.open(abilities),
        }
    }
}

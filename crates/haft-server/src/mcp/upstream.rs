//! The resources and prompts of upstream servers: merges their lists, and forwards requests to the server that owns a
//! name or URI.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use haft_core::event::CallProgress;
use haft_core::sampling::OriginatingCall;
use haft_engine::{Orchestrator, ToolFilter};
use haft_runtime::definition_watch::DefinitionWatch;
use haft_tools::mcp::{PassError, PassedMethod, PassedRequest, SupervisedServer};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use super::address::{AddressOwner, UpstreamAddresses};
use super::hidden_address::without_urls;
use super::listing::{ListedItem, ListedItems};
use super::members::{self, Member, leave_out_refused};
use super::message::{GatewayError, INTERNAL_ERROR, METHOD_NOT_FOUND};
use super::object::RawObject;

/// The time for which a merged list is cached. If a server announces a change, the cache is cleared.
const LIST_KEPT: Duration = Duration::from_secs(5);

/// The maximum number of items of one server in a list.
const ITEMS_MAX: usize = 10_000;

/// The maximum number of pages of one server that are read for a list.
const PAGES_MAX: usize = 100;

/// The upstream servers of a client.
#[derive(Debug)]
pub(super) struct UpstreamServers {
    pub(super) servers: Vec<Arc<SupervisedServer>>,
    pub(super) addresses: UpstreamAddresses,
}

/// The kinds of lists that haft merges from all servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum UpstreamList {
    Resources,
    Templates,
    Prompts,
}

impl UpstreamList {
    /// Returns the member of the result that contains the items.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    fn method(self) -> PassedMethod {
        match self {
            Self::Resources => PassedMethod::ListResources,
            Self::Templates => PassedMethod::ListTemplates,
            Self::Prompts => PassedMethod::ListPrompts,
        }
    }

    fn members(self) -> &'static [Member] {
        match self {
            Self::Resources | Self::Templates => members::RESOURCE,
            Self::Prompts => members::PROMPT,
        }
    }

    /// Returns the member that identifies an item.
    fn id(self) -> &'static str {
        match self {
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
            Self::Prompts => "name",
        }
    }
}

/// The recently merged lists.
#[derive(Debug, Default)]
pub(super) struct CachedLists(Mutex<HashMap<UpstreamList, (Instant, Arc<ListedItems>)>>);

impl CachedLists {
    pub(super) fn get(&self, list: UpstreamList) -> Option<Arc<ListedItems>> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.get(&list).filter(|(made, _)| made.elapsed() < LIST_KEPT).map(|(_, items)| Arc::clone(items))
    }

    pub(super) fn set(&self, list: UpstreamList, items: &Arc<ListedItems>) {
        let kept = (Instant::now(), Arc::clone(items));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(list, kept);
    }

    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl UpstreamServers {
    /// Returns the servers whose resources and prompts a client sees: the servers with a tool that the client may call.
    /// A server without tools is included if the client may see all tools, and if no lock file excludes the server.
    pub(super) fn offered(
        &self,
        orchestrator: &Orchestrator,
        selection: &ToolFilter,
        definitions: &DefinitionWatch,
    ) -> Vec<usize> {
        let tools = orchestrator.active_tools(selection);
        let seen: HashSet<&str> = tools.iter().map(|tool| tool.entry.identity().namespace.as_str()).collect();
        let is_offered = |server: &SupervisedServer| {
            let has_no_tools = || server.status().listing.tools().is_empty();
            let is_reviewed = || definitions.has_reviewed_server(server.namespace());
            seen.contains(server.namespace())
                || (*selection == ToolFilter::All && has_no_tools() && is_reviewed())
        };
        (0..self.servers.len()).filter(|position| is_offered(&self.servers[*position])).collect()
    }

    /// Merges the lists of these servers. Leaves out a server that fails or takes too long; it announces a change when it
    /// is ready.
    pub(super) async fn list(
        &self,
        list: UpstreamList,
        servers: &[usize],
        caller: &OriginatingCall,
        wait: Duration,
    ) -> Vec<ListedItem> {
        let fetched = servers.iter().map(|server| timeout(wait, self.items(list, *server, caller)));
        let lists = join_all(fetched).await;
        lists.into_iter().flat_map(Result::unwrap_or_default).collect()
    }

    async fn items(&self, list: UpstreamList, server: usize, caller: &OriginatingCall) -> Vec<ListedItem> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct PageEnd {
            next_cursor: Option<String>,
        }
        let known = self.servers[server].offers();
        let is_without = |offers: haft_tools::mcp::ServerOffers| match list {
            UpstreamList::Prompts => !offers.prompts,
            UpstreamList::Resources | UpstreamList::Templates => !offers.resources,
        };
        let mut items = Vec::new();
        if known.is_some_and(is_without) {
            return items;
        }
        let mut fields = String::new();
        for _ in 0..PAGES_MAX {
            let request = PassedRequest { method: list.method(), fields, name: None, caller: caller.clone() };
            let Ok(page) = self.servers[server].pass(&request, &|_| ()).await else { break };
            items.extend(self.page_items(list, server, &page));
            let end = serde_json::from_str::<PageEnd>(page.get()).ok().and_then(|end| end.next_cursor);
            let Some(cursor) = end.filter(|_| items.len() < ITEMS_MAX) else { break };
            fields = format!("\"cursor\":{}", Value::from(cursor));
        }
        items.truncate(ITEMS_MAX);
        items
    }

    /// Parses one page. Leaves out an item without its name or URI, and the members that clients refuse.
    fn page_items(&self, list: UpstreamList, server: usize, page: &RawValue) -> Vec<ListedItem> {
        let object = RawObject::of(page.get()).unwrap_or_default();
        let items: Vec<&RawValue> =
            object.get(list.key()).and_then(|items| serde_json::from_str(items).ok()).unwrap_or_default();
        let item = |raw: &&RawValue| {
            // A client parses the whole list at once, so one item with an invalid escape sequence, or with too many levels,
            // would take all items away. A `RawValue` can contain both, a `Value` cannot.
            serde_json::from_str::<Value>(raw.get()).ok()?;
            let mut object = RawObject::of(raw.get())?;
            leave_out_refused(&mut object, list.members());
            let own: String = serde_json::from_str(object.get(list.id())?).ok()?;
            let name = match list {
                UpstreamList::Resources | UpstreamList::Templates => self.addresses.uri(server, &own),
                UpstreamList::Prompts => self.addresses.prompt(server, &own),
            };
            object.set(list.id(), Value::from(name.as_str()).to_string());
            if object.get("name").is_none() {
                object.set("name", Value::from(own.as_str()).to_string());
            }
            Some(ListedItem::new(name, Some(server), object.to_string()))
        };
        items.iter().take(ITEMS_MAX).filter_map(item).collect()
    }

    /// Removes all URLs, and the hosts and ports of the servers, from a text for a client.
    pub(super) fn without_addresses(&self, text: &str) -> String {
        self.servers.iter().fold(without_urls(text), |text, server| server.without_address(text))
    }

    pub(super) async fn pass(
        &self,
        server: usize,
        request: &PassedRequest<'_>,
        progress: &(dyn Fn(CallProgress) + Send + Sync),
    ) -> Result<Box<RawValue>, UpstreamRefusal> {
        let name = self.servers[server].namespace();
        let unavailable = |message: String| GatewayError::new(INTERNAL_ERROR, message);
        self.servers[server].pass(request, progress).await.map_err(|error| match error {
            PassError::NotOffered => UpstreamRefusal::Other(GatewayError::new(
                METHOD_NOT_FOUND,
                format!("the MCP server `{name}` does not support this method"),
            )),
            PassError::Refused { code, message, data } => {
                UpstreamRefusal::Other(GatewayError { data, ..GatewayError::new(code, message) })
            }
            PassError::LoginRequired(_) => UpstreamRefusal::LoginRequired(unavailable(format!(
                "the MCP server `{name}` requires a login"
            ))),
            // The reason may contain a URL that only the operator may see, so do not send it to the client.
            PassError::Unavailable(_) => {
                UpstreamRefusal::Other(unavailable(format!("the MCP server `{name}` is not available")))
            }
        })
    }
}

/// The reason why an upstream server gave no result, as the error for the client.
#[derive(Debug)]
pub(super) enum UpstreamRefusal {
    /// A user must log in first.
    LoginRequired(GatewayError),
    Other(GatewayError),
}

impl UpstreamRefusal {
    /// Returns the error for the client.
    pub(super) fn error(&self) -> &GatewayError {
        match self {
            Self::LoginRequired(error) | Self::Other(error) => error,
        }
    }
}

/// Restricts the owner of a URI or name to the offered servers. An owner that is not offered becomes `Unknown`. `Any`
/// stays only if several servers are offered, so that their lists must be searched.
pub(super) fn among<'a>(owner: AddressOwner<'a>, offered: &[usize]) -> AddressOwner<'a> {
    match owner {
        AddressOwner::Server(server, _) if !offered.contains(&server) => AddressOwner::Unknown,
        AddressOwner::Any(own) if offered.len() == 1 => AddressOwner::Server(offered[0], own),
        other => other,
    }
}

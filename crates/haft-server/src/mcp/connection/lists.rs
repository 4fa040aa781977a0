//! The tool list, and the lists that are merged from upstream servers.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use haft_core::output_store::Handle;
use serde::Deserialize;
use serde_json::{Value, json};

use super::calls::new_call_id;
use super::opened::OpenedClient;
use super::{ClientConnection, LIST_TTL_MS};
use crate::mcp::address::{stored_handle, stored_uri};
use crate::mcp::era::RequestEra;
use crate::mcp::listing::{ListPage, ListedItem, ListedItems};
use crate::mcp::message::{self, ClientRequest, GatewayError, INTERNAL_ERROR};
use crate::mcp::result::stored_name;
use crate::mcp::upstream::UpstreamList;

/// The maximum size of a stored output that is read as a resource, in bytes. `tool_output` reads parts of a larger
/// output.
const STORED_READ_BYTES_MAX: u64 = 8 << 20;

impl ClientConnection {
    pub(super) async fn begin_list(self: &Arc<Self>, request: ClientRequest, era: RequestEra) {
        let opened = match self.open_for(era) {
            Ok(opened) => opened,
            Err(error) => return self.fail(Some(&request.id), &error).await,
        };
        if opened.shared.is_ready() {
            return self.reply(&request.id, Self::tool_page(&request, &opened, era)).await;
        }
        self.start(request, move |request| async move {
            opened.shared.until_ready().await;
            let reply = Self::tool_page(&request, &opened, era);
            (request, reply)
        })
        .await;
    }

    fn tool_page(
        request: &ClientRequest,
        opened: &OpenedClient,
        era: RequestEra,
    ) -> Result<String, GatewayError> {
        let cursor = cursor(request)?;
        let listed = opened.shared.listing().items;
        let page = listed.page(cursor.as_deref(), era)?;
        opened.set_told(&listed);
        Ok(page_json("tools", page, era))
    }

    pub(super) async fn begin_merged(
        self: &Arc<Self>,
        request: ClientRequest,
        era: RequestEra,
        list: UpstreamList,
    ) {
        let opened = match self.open_for(era) {
            Ok(opened) => opened,
            Err(error) => return self.fail(Some(&request.id), &error).await,
        };
        let connection = Arc::clone(self);
        self.start(request, move |request| async move {
            let reply = connection.merged_page(&request, &opened, era, list).await;
            (request, reply)
        })
        .await;
    }

    async fn merged_page(
        &self,
        request: &ClientRequest,
        opened: &OpenedClient,
        era: RequestEra,
        list: UpstreamList,
    ) -> Result<String, GatewayError> {
        let cursor = cursor(request)?;
        let upstream = self.merged(opened, list).await;
        let page = match list {
            UpstreamList::Resources => upstream.with(stored_items(opened)).page(cursor.as_deref(), era)?,
            UpstreamList::Templates | UpstreamList::Prompts => upstream.page(cursor.as_deref(), era)?,
        };
        Ok(page_json(list.key(), page, era))
    }

    /// Returns the merged list of the servers, from the cache if it is fresh. The stored outputs of a client are not
    /// part of it, because clients share the cache.
    pub(super) async fn merged(&self, opened: &OpenedClient, list: UpstreamList) -> Arc<ListedItems> {
        let shared = &opened.shared;
        if let Some(cached) = shared.lists.get(list) {
            return cached;
        }
        shared.until_ready().await;
        let offered = shared.offered_upstreams();
        let caller = opened.caller(&new_call_id());
        let items = shared.upstreams.list(list, &offered, &caller, shared.gateway.ready_wait).await;
        let items = Arc::new(ListedItems::new(items));
        shared.lists.set(list, &items);
        items
    }
}

/// Reads a stored output of the client.
pub(super) async fn read_stored(opened: &OpenedClient, uri: &str) -> Result<String, GatewayError> {
    let outputs = opened.context.outputs.as_ref();
    let handle = stored_handle(uri).and_then(Handle::parse);
    let (Some(outputs), Some(handle)) = (outputs, handle) else { return Err(unknown_resource(uri)) };
    // Read one byte more than allowed, to detect that the output is larger.
    let end = STORED_READ_BYTES_MAX.saturating_add(1);
    let read = outputs.read_range(&handle, 0..end).await;
    let bytes = read.map_err(|_| unknown_resource(uri))?;
    if bytes.len() as u64 > STORED_READ_BYTES_MAX {
        let message = format!(
            "the stored output has more than {STORED_READ_BYTES_MAX} bytes; read parts of it with `tool_output`"
        );
        return Err(GatewayError::new(INTERNAL_ERROR, message));
    }
    let mut contents = json!({ "uri": uri });
    match String::from_utf8(bytes) {
        Ok(text) => {
            contents["mimeType"] = "text/plain".into();
            contents["text"] = text.into();
        }
        Err(error) => contents["blob"] = BASE64_STANDARD.encode(error.as_bytes()).into(),
    }
    Ok(json!({ "contents": [contents] }).to_string())
}

pub(super) fn unknown_resource(uri: &str) -> GatewayError {
    GatewayError::new(message::RESOURCE_NOT_FOUND, "there is no resource with this URI")
        .with_data(json!({ "uri": uri }))
}

fn stored_items(opened: &OpenedClient) -> Vec<ListedItem> {
    let Some(outputs) = &opened.listed_outputs else { return Vec::new() };
    let item = |entry: &haft_core::output_store::StoreEntry| {
        let uri = stored_uri(&entry.handle.to_string());
        let json = json!({
            "uri": uri,
            "name": stored_name(entry),
            "description": "A tool output that was too large for the result of its call",
            "size": entry.bytes,
        });
        ListedItem::new(uri, None, json.to_string())
    };
    outputs.entries().iter().map(item).collect()
}

fn cursor(request: &ClientRequest) -> Result<Option<String>, GatewayError> {
    #[derive(Deserialize)]
    struct ListParams {
        cursor: Option<String>,
    }
    message::params::<ListParams>(request.params.as_deref()).map(|params| params.cursor)
}

fn page_json(key: &str, page: ListPage, era: RequestEra) -> String {
    let next = page.next.map(|next| format!(",\"nextCursor\":{}", Value::from(next))).unwrap_or_default();
    let more = match era {
        RequestEra::Handshake => String::new(),
        RequestEra::Stateless(_) => {
            format!(",\"resultType\":\"complete\",\"ttlMs\":{LIST_TTL_MS},\"cacheScope\":\"private\"")
        }
    };
    format!("{{\"{key}\":[{}]{next}{more}}}", page.items)
}

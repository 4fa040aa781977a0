//! MCP lists: sorted by name, split into pages, with the JSON of upstream servers. It changes only where clients would
//! refuse it.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use haft_core::tool::Effects;
use haft_core::validate::Schema;
use haft_engine::{CatalogWarning, OfferedTool};
use serde_json::{Value, json};

use super::era::RequestEra;
use super::handshake_form::adapted_tool;
use super::members::{self, leave_out_refused};
use super::message::{GatewayError, INVALID_PARAMS};
use super::meta_tools::ToolListing;
use super::object::RawObject;
use super::tasks::TaskOffer;

/// The maximum number of items on one page. Many clients read only the first page.
const PAGE_ITEMS_MAX: usize = 1_000;

/// The maximum size of one page in bytes, unless a single item is larger.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// The maximum number of tools of one server about which haft warns. A server that makes the same mistake in all its
/// tools would otherwise cause thousands of warnings.
const TOOLS_WARNED_MAX: usize = 20;

/// Tools, prompts, resources or templates in their JSON form.
#[derive(Debug, Default)]
pub(super) struct ListedItems(Vec<Arc<ListedItem>>);

#[derive(Debug)]
pub(super) struct ListedItem {
    /// The name or the URI, unique within the list.
    pub(super) name: String,
    /// The index of the upstream server; `None` for items of haft itself, and for tools.
    pub(super) owner: Option<usize>,
    pub(super) json: ItemJson,
    /// A warning for the operator: it names the members that haft left out of a tool definition, or the tool that this
    /// item hides. `None` if there is nothing to report.
    warning: Option<Box<CatalogWarning>>,
}

/// The JSON of an item.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ItemJson {
    stateless: String,
    /// The JSON for clients with a handshake, if it differs.
    handshake: Option<String>,
}

impl ItemJson {
    /// Returns the JSON for clients of an era.
    pub(super) fn in_era(&self, era: RequestEra) -> &str {
        match (era, &self.handshake) {
            (RequestEra::Handshake, Some(handshake)) => handshake,
            (RequestEra::Handshake, None) | (RequestEra::Stateless(_), _) => &self.stateless,
        }
    }
}

impl ListedItem {
    /// Creates an item whose JSON is the same in all protocol revisions.
    pub(super) fn new(name: String, owner: Option<usize>, json: String) -> Self {
        Self { name, owner, json: ItemJson { stateless: json, handshake: None }, warning: None }
    }

    /// Adds a warning for the operator.
    pub(super) fn with_warning(self, warning: Option<CatalogWarning>) -> Self {
        Self { warning: warning.map(Box::new), ..self }
    }

    pub(super) fn of_tool(tool: &OfferedTool) -> Self {
        let (json, left_out) = tool_json(tool);
        let warning = || {
            let message = format!(
                "the definition of the tool `{}` has members that many clients refuse, so haft leaves them out: {}",
                tool.entry.exposed(),
                left_out.join(", "),
            );
            Box::new(CatalogWarning { provider: tool.entry.identity().namespace.to_string(), message })
        };
        Self {
            name: tool.entry.exposed().to_string(),
            owner: None,
            json,
            warning: (!left_out.is_empty()).then(warning),
        }
    }
}

/// One page of the list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListPage {
    /// The items, as the content of a JSON array.
    pub(super) items: String,
    /// The cursor for the next page.
    pub(super) next: Option<String>,
}

impl ListedItems {
    /// Sorts the items. Of several items with the same name, keeps the first.
    pub(super) fn new(items: Vec<ListedItem>) -> Self {
        Self::sorted(items.into_iter().map(Arc::new).collect())
    }

    /// Returns this list with further items.
    pub(super) fn with(&self, more: Vec<ListedItem>) -> Self {
        Self::sorted(self.0.iter().cloned().chain(more.into_iter().map(Arc::new)).collect())
    }

    fn sorted(mut items: Vec<Arc<ListedItem>>) -> Self {
        items.sort_by(|one, two| one.name.cmp(&two.name));
        items.dedup_by(|two, one| two.name == one.name);
        Self(items)
    }

    pub(super) fn of_tools(tools: &[OfferedTool]) -> Self {
        Self::new(tools.iter().map(ListedItem::of_tool).collect())
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.binary_search_by(|item| item.name.as_str().cmp(name)).is_ok()
    }

    pub(super) fn owner(&self, name: &str) -> Option<usize> {
        let found = self.0.binary_search_by(|item| item.name.as_str().cmp(name)).ok()?;
        self.0[found].owner
    }

    /// Returns the server of the URI template that matches a URI. Compares only the text before the first variable, and
    /// takes the longest match.
    pub(super) fn template_owner(&self, uri: &str) -> Option<usize> {
        let literal = |item: &ListedItem| item.name.split('{').next().unwrap_or_default().len();
        let fitting = self.0.iter().filter(|item| uri.starts_with(&item.name[..literal(item.as_ref())]));
        fitting.max_by_key(|item| literal(item.as_ref()))?.owner
    }

    /// Returns the warnings about tools, for the operator.
    pub(super) fn warnings(&self) -> Vec<CatalogWarning> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut warnings = Vec::new();
        for warning in self.0.iter().filter_map(|item| item.warning.as_ref()) {
            let count = counts.entry(&warning.provider).or_default();
            *count += 1;
            if *count <= TOOLS_WARNED_MAX {
                warnings.push(CatalogWarning::clone(warning));
            }
        }
        let more = counts.into_iter().filter(|(_, count)| *count > TOOLS_WARNED_MAX);
        warnings.extend(more.map(|(provider, count)| CatalogWarning {
            provider: provider.into(),
            message: format!(
                "haft also leaves out members of more tools that many clients refuse; number of these tools: {}",
                count - TOOLS_WARNED_MAX
            ),
        }));
        warnings
    }

    /// Returns true if a client would see the same list.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(one, two)| one.json == two.json)
    }

    /// Returns the page after a cursor. A cursor names the last item of the previous page, so that it stays valid if
    /// items are added or removed between two pages.
    pub(super) fn page(&self, cursor: Option<&str>, era: RequestEra) -> Result<ListPage, GatewayError> {
        let begin = match cursor {
            None => 0,
            Some(cursor) => {
                let last = decoded(cursor).ok_or_else(|| {
                    GatewayError::new(
                        INVALID_PARAMS,
                        "the cursor is not valid; use `nextCursor` of the previous page",
                    )
                })?;
                self.0.partition_point(|item| item.name <= last)
            }
        };
        let mut items = String::new();
        let mut end = begin;
        for item in self.0[begin..].iter().take(PAGE_ITEMS_MAX) {
            let json = item.json.in_era(era);
            if end > begin && items.len() + json.len() > PAGE_BYTES_MAX {
                break;
            }
            if end > begin {
                items.push(',');
            }
            items.push_str(json);
            end += 1;
        }
        let is_last = end >= self.0.len();
        let next = (!is_last).then(|| BASE64_URL_SAFE_NO_PAD.encode(&self.0[end - 1].name));
        Ok(ListPage { items, next })
    }
}

fn decoded(cursor: &str) -> Option<String> {
    String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()
}

/// A list, with the catalog snapshot that it was built from.
#[derive(Debug, Clone)]
pub(super) struct CachedListing {
    pub(super) snapshot: Arc<haft_engine::Snapshot>,
    pub(super) listing: ToolListing,
}

/// Returns the definition of a tool as JSON, and the paths of the members that haft left out. Keeps the definition from
/// the upstream server, including members that haft does not know. Changes only the name, members that clients refuse, a
/// schema that the operator replaced, effects that the operator corrected, and the task support.
pub(super) fn tool_json(tool: &OfferedTool) -> (ItemJson, Vec<String>) {
    let definition = tool.entry.definition();
    let raw = definition.raw.as_ref().and_then(|raw| RawObject::of(raw.get()));
    let mut object = raw.unwrap_or_default();
    object.remove_duplicates();
    object.set("name", Value::from(tool.entry.exposed().as_str()).to_string());
    let sent: Option<Value> = object.get("inputSchema").and_then(|text| serde_json::from_str(text).ok());
    if sent.as_ref() != Some(&definition.input_schema) {
        object.set("inputSchema", definition.input_schema.to_string());
    }
    let mut left_out = leave_out_refused(&mut object, members::TOOL);
    if object.get("outputSchema").is_some_and(|schema| !is_usable_schema(schema)) {
        object.remove("outputSchema");
        left_out.push("outputSchema".into());
    }
    if object.get("description").is_none() && !definition.description.is_empty() {
        object.set("description", Value::from(definition.description.as_str()).to_string());
    }
    let is_of_server = definition.raw.is_some();
    if let (false, None, Some(schema)) = (is_of_server, object.get("outputSchema"), &definition.output_schema)
    {
        object.set("outputSchema", schema.to_string());
    }
    let annotations = object.get("annotations").and_then(|text| serde_json::from_str(text).ok());
    if let Some(corrected) = corrected(annotations, tool.governed.effects) {
        object.set("annotations", corrected.to_string());
    }
    if let Some(execution) = execution(object.get("execution"), TaskOffer::of(&tool.entry)) {
        object.set("execution", execution);
    }
    (ItemJson { handshake: adapted_tool(&object), stateless: object.to_string() }, left_out)
}

/// Returns true if a schema compiles. The TypeScript SDK 1.x compiles all output schemas of a list at once, and refuses
/// the list if one of them has an unknown type or an unresolved reference.
fn is_usable_schema(schema: &str) -> bool {
    let schema: Option<Value> = serde_json::from_str(schema).ok();
    schema.is_some_and(|schema| matches!(Schema::compile(&schema), Schema::Checked(_)))
}

/// Returns the `execution` member of a tool that can run as a task; `None` if the definition stays unchanged. If the
/// server requires a task, the client still need not use one, because haft itself waits for the server's task.
fn execution(sent: Option<&str>, offer: TaskOffer) -> Option<String> {
    let mut execution = sent.and_then(RawObject::of).unwrap_or_default();
    match (offer, execution.get("taskSupport")) {
        (TaskOffer::Forbidden, _) | (TaskOffer::Optional, Some(_)) => None,
        (TaskOffer::Optional, None) | (TaskOffer::Required, _) => {
            execution.set("taskSupport", r#""optional""#);
            Some(execution.to_string())
        }
    }
}

/// Returns the annotations, corrected to the effects that haft uses; `None` if the annotations already agree with them.
pub(super) fn corrected(annotations: Option<Value>, effects: Effects) -> Option<Value> {
    let mut annotations = annotations.filter(Value::is_object).unwrap_or_else(|| json!({}));
    let is_read_only = match effects {
        Effects::ReadOnly => true,
        Effects::Idempotent | Effects::Mutating => false,
        Effects::Unknown => return None,
    };
    let says_idempotent = annotations["idempotentHint"] == true;
    if (annotations["readOnlyHint"] == true) == is_read_only
        && (effects != Effects::Idempotent || says_idempotent)
    {
        return None;
    }
    annotations["readOnlyHint"] = is_read_only.into();
    if effects == Effects::Idempotent {
        annotations["idempotentHint"] = true.into();
    }
    Some(annotations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&str]) -> ListedItems {
        let json = |name: &str| format!("{{\"name\":\"{name}\"}}");
        let item = |name: &&str| ListedItem::new((*name).into(), Some(name.len()), json(name));
        ListedItems::new(names.iter().map(item).collect())
    }

    #[test]
    fn pages_cover_every_tool_once_even_if_the_list_changes() {
        let names: Vec<String> = (0..2_500).map(|number| format!("t{number:04}")).collect();
        let all = listed(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let first = all.page(None, RequestEra::Handshake).unwrap();
        assert_eq!(first.items.matches("name").count(), PAGE_ITEMS_MAX);
        // The tool that the cursor names no longer exists.
        let less = listed(&names[1_000..].iter().map(String::as_str).collect::<Vec<_>>());
        let second = less.page(first.next.as_deref(), RequestEra::Handshake).unwrap();
        assert!(second.items.starts_with("{\"name\":\"t1000\"}"), "{:.40}", second.items);
        let third = less.page(second.next.as_deref(), RequestEra::Handshake).unwrap();
        assert_eq!((third.items.matches("name").count(), third.next), (500, None));
        assert_eq!(all.page(Some("*"), RequestEra::Handshake).unwrap_err().code, INVALID_PARAMS);
        assert_eq!(
            ListedItems::default().page(None, RequestEra::Handshake).unwrap(),
            ListPage { items: String::new(), next: None }
        );
    }

    #[test]
    fn uri_belongs_to_the_template_with_the_longest_literal_prefix() {
        let templates = listed(&["a://{x}", "a://long/{x}", "b://"]);
        let check =
            |uri: &str, expected: Option<usize>| assert_eq!(templates.template_owner(uri), expected, "{uri}");
        check("a://1", Some(7));
        check("a://long/1", Some(12));
        check("b://x", Some(4));
        check("c://", None);
        assert_eq!((templates.owner("b://"), templates.owner("b")), (Some(4), None));
    }

    #[test]
    fn tool_that_can_be_a_task_can_also_be_called_without_one() {
        let check = |sent: Option<&str>, offer: TaskOffer, expected: Option<&str>| {
            assert_eq!(execution(sent, offer).as_deref(), expected, "{sent:?} {offer:?}");
        };
        let optional = r#"{"taskSupport":"optional"}"#;
        check(None, TaskOffer::Optional, Some(optional));
        check(Some(optional), TaskOffer::Optional, None);
        check(
            Some(r#"{"a": 1.0, "taskSupport": "required"}"#),
            TaskOffer::Required,
            Some(r#"{"a":1.0,"taskSupport":"optional"}"#),
        );
        check(Some(r#"{"taskSupport":"forbidden"}"#), TaskOffer::Forbidden, None);
        check(None, TaskOffer::Forbidden, None);
    }

    #[test]
    fn annotations_change_only_where_the_operator_corrected_effects() {
        let check = |annotations: Option<Value>, effects: Effects, expected: Option<Value>| {
            assert_eq!(corrected(annotations.clone(), effects), expected, "{annotations:?} {effects:?}");
        };
        check(None, Effects::Unknown, None);
        check(None, Effects::Mutating, None);
        check(None, Effects::ReadOnly, Some(json!({"readOnlyHint": true})));
        check(Some(json!({"readOnlyHint": true, "title": "T"})), Effects::ReadOnly, None);
        check(
            Some(json!({"readOnlyHint": true, "title": "T"})),
            Effects::Mutating,
            Some(json!({"readOnlyHint": false, "title": "T"})),
        );
        check(None, Effects::Idempotent, Some(json!({"readOnlyHint": false, "idempotentHint": true})));
    }

    #[test]
    fn output_schemas_that_do_not_compile_are_not_usable() {
        let check = |schema: Value, expected: bool| {
            assert_eq!(is_usable_schema(&schema.to_string()), expected, "{schema}");
        };
        check(json!({}), true);
        check(json!({"type": "array", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": {}}}), true);
        check(json!({"type": "strin"}), false);
        check(json!({"items": {"$ref": "#/$defs/a"}}), false);
        check(json!({"items": {"$ref": "https://example.com/a.json"}}), false);
    }
}

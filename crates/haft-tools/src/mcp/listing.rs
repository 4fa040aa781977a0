//! Parses the tools of a server one by one. A malformed tool is skipped with a reason, and the others are kept.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use haft_core::digest::Digest;
use haft_core::glob::ToolGlob;
use haft_core::name::{GroupName, ToolName};
use haft_core::naming::{NameForm, NameRequest, distinct_names};
use haft_core::tool::{Effects, ToolDefinition, ToolFacts};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::bounded::BoundedList;
use super::param_header::{self, ParamHeader};
use super::peer::{Peer, PeerError, PeerRequest};
use super::task::ToolTaskSupport;
use super::transport::TransportFailure;

/// The maximum number of tools that are accepted from one server.
pub const TOOLS_MAX: usize = 10_000;

/// The maximum size of a tool definition, in bytes.
const TOOL_BYTES_MAX: usize = 1 << 20;

/// The maximum total size of a server's tool definitions, in bytes.
const LIST_BYTES_MAX: usize = 32 << 20;

/// The maximum number of pages that are fetched, because a server could return new cursors forever. If every page has
/// at least one tool, the limit on tools is reached first and reported.
const PAGES_MAX: usize = TOOLS_MAX + 1;

/// The operator's selection of a server's tools, and the operator's changes to their definitions.
#[derive(Debug, Clone, Default)]
pub struct ToolSelection {
    /// Patterns for tool names as the server sends them.
    pub allowed: Vec<ToolGlob>,
    /// Patterns that override `allowed`.
    pub denied: Vec<ToolGlob>,
    /// Input schemas that replace the server's, by the tool names that the server sends.
    pub schemas: BTreeMap<String, Value>,
    /// The group that the tools belong to.
    pub group: Option<GroupName>,
    pub param_headers: ParamHeaders,
    /// Effects that override the server's hints, by patterns of the tool names that the server sends. The first
    /// matching pattern is used.
    pub effects: Vec<(ToolGlob, Effects)>,
}

/// Whether arguments with the schema keyword `x-mcp-header` are also sent as HTTP headers. With `Sent`, a tool in which
/// this keyword is invalid is skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ParamHeaders {
    Sent,
    #[default]
    Ignored,
}

/// The tools of a parsed tool list, and the tools that haft skipped.
#[derive(Debug, Clone, Default)]
pub struct McpToolList {
    pub(super) tools: Arc<[ToolDefinition]>,
    /// The entry of each tool, by the name of the tool in haft.
    pub(super) known: HashMap<ToolName, McpToolEntry>,
    pub skipped: Vec<SkippedTool>,
    /// True if the server has more tools than haft accepts.
    pub(super) is_cut: bool,
}

impl ToolSelection {
    fn effects_of(&self, name: &str) -> Option<Effects> {
        self.effects.iter().find(|(glob, _)| glob.matches(name)).map(|(_, effects)| *effects)
    }
}

impl McpToolList {
    pub fn tools(&self) -> &[ToolDefinition] {
        &self.tools
    }

    /// Returns a warning for the operator if haft did not accept all tools of the server.
    pub(super) fn warning(&self) -> Option<String> {
        self.is_cut.then(|| {
            format!("the server has more than {TOOLS_MAX} tools, of which haft uses the first {TOOLS_MAX}")
        })
    }

    pub(super) fn definition(&self, tool: &ToolName) -> Option<&ToolDefinition> {
        self.tools.iter().find(|definition| definition.name == *tool)
    }
}

/// The server's own name for a tool, the headers that the tool's schema asks for, and its task support.
#[derive(Debug, Clone)]
pub(super) struct McpToolEntry {
    pub(super) name: String,
    pub(super) headers: Vec<ParamHeader>,
    pub(super) tasks: ToolTaskSupport,
}

/// A called tool, with the definition that haft had when it allowed the call.
#[derive(Debug, Clone, Copy)]
pub(super) struct CalledTool<'a> {
    pub(super) entry: &'a McpToolEntry,
    pub(super) definition: Option<&'a ToolDefinition>,
}

impl CalledTool<'_> {
    pub(super) fn effects(&self) -> Effects {
        self.definition.map_or(Effects::Unknown, |definition| definition.effects)
    }

    /// Returns true if the list contains the tool with another definition, or does not contain it.
    pub(super) fn differs_in(&self, list: &McpToolList) -> bool {
        let digest = |definition: &ToolDefinition| Digest::of_definition(definition);
        let found = self.definition.and_then(|definition| list.definition(&definition.name));
        found.map(digest) != self.definition.map(digest)
    }
}

/// A tool of the server that haft skipped, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedTool {
    pub name: String,
    pub reason: String,
}

/// Fetches all pages. Returns the tools as the server sent them.
pub(super) async fn fetch(peer: &Peer, patience: Duration) -> Result<Vec<Box<RawValue>>, PeerError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ToolListPage {
        #[serde(default)]
        tools: BoundedList<Box<RawValue>, { TOOLS_MAX + 1 }>,
        next_cursor: Option<String>,
    }
    let mut tools: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    let mut fields = String::new();
    for _ in 0..PAGES_MAX {
        let raw = peer.request(PeerRequest::new("tools/list", fields.clone(), patience)).await?;
        let page: ToolListPage = serde_json::from_str(raw.get()).map_err(|error| {
            PeerError::Failed(TransportFailure::Broken(format!("haft cannot parse the tool list: {error}")))
        })?;
        bytes += page.tools.items.iter().map(|tool| tool.get().len()).sum::<usize>();
        if bytes > LIST_BYTES_MAX {
            let message =
                format!("the tool list is larger than {LIST_BYTES_MAX} bytes, so haft did not read it");
            return Err(PeerError::Failed(TransportFailure::Broken(message)));
        }
        tools.extend(page.tools.items);
        let cursor = page.next_cursor.map(|cursor| format!("\"cursor\":{}", Value::String(cursor)));
        match cursor.filter(|cursor| tools.len() <= TOOLS_MAX && *cursor != fields) {
            Some(cursor) => fields = cursor,
            None => break,
        }
    }
    Ok(tools)
}

/// Parses the tools and applies the operator's selection.
pub(super) fn read(raw: &[Box<RawValue>], wanted: &ToolSelection) -> McpToolList {
    let mut reading = ToolListParser { wanted, tools: Vec::new(), known: Vec::new(), skipped: Vec::new() };
    let mut seen = HashSet::new();
    for tool in raw.iter().take(TOOLS_MAX) {
        reading.tool(tool, &mut seen);
    }
    if raw.len() > TOOLS_MAX {
        let reason = format!("the server has more than {TOOLS_MAX} tools; haft skips the rest");
        reading.skipped.push(SkippedTool { name: "…".into(), reason });
    }
    McpToolList { is_cut: raw.len() > TOOLS_MAX, ..reading.named() }
}

struct ToolListParser<'a> {
    wanted: &'a ToolSelection,
    tools: Vec<ToolDefinition>,
    /// The entries of `tools`, in the same order.
    known: Vec<McpToolEntry>,
    skipped: Vec<SkippedTool>,
}

impl ToolListParser<'_> {
    fn tool(&mut self, raw: &RawValue, seen: &mut HashSet<String>) {
        let sent = match sent(raw) {
            Ok(sent) => sent,
            Err(skipped) => return self.skipped.push(skipped),
        };
        let name = sent.name.clone();
        let allowed = self.wanted.allowed.iter().any(|glob| glob.matches(&name));
        if !allowed || self.wanted.denied.iter().any(|glob| glob.matches(&name)) {
            return;
        }
        if !seen.insert(name.clone()) {
            return self.skip(name, "the MCP server lists this tool name more than once");
        }
        if let Err(reason) = self.keep(sent, raw) {
            self.skip(name, &reason);
        }
    }

    fn keep(&mut self, sent: McpToolJson, raw: &RawValue) -> Result<(), String> {
        let schema = match self.wanted.schemas.get(&sent.name) {
            Some(schema) => input_schema(Some(schema.clone()))?,
            None => input_schema(sent.input_schema)?,
        };
        let headers = match self.wanted.param_headers {
            ParamHeaders::Sent => param_header::of_schema(&schema)?,
            ParamHeaders::Ignored => Vec::new(),
        };
        self.tools.push(ToolDefinition {
            name: ToolName::sanitize(&sent.name),
            description: sent.description.or(sent.title).unwrap_or_default(),
            input_schema: schema,
            output_schema: sent.output_schema.filter(Value::is_object),
            effects: self.wanted.effects_of(&sent.name).unwrap_or_else(|| effects(&sent.annotations)),
            groups: self.wanted.group.iter().cloned().collect(),
            facts: ToolFacts::default(),
            raw: Some(raw.to_owned().into()),
        });
        self.known.push(McpToolEntry { name: sent.name, headers, tasks: sent.tasks });
        Ok(())
    }

    /// Gives each tool a unique name. A legal name stays unchanged. If the legal form of an illegal name would clash
    /// with another name, it gets a digest of the original name as a suffix. So the names do not depend on the order of
    /// the list.
    fn named(self) -> McpToolList {
        let Self { mut tools, known, skipped, .. } = self;
        let (legal, other): (Vec<usize>, Vec<usize>) =
            (0..tools.len()).partition(|&at| tools[at].name.as_str() == known[at].name);
        let request = |&at: &usize| NameRequest {
            plain: tools[at].name.clone(),
            key: known[at].name.clone(),
            first: NameForm::Plain,
        };
        let requests: Vec<NameRequest> = other.iter().map(request).collect();
        let names = distinct_names(legal.iter().map(|&at| &tools[at].name), &requests);
        for (at, name) in other.into_iter().zip(names) {
            tools[at].name = name;
        }
        let known = tools.iter().map(|tool| tool.name.clone()).zip(known).collect();
        McpToolList { tools: tools.into(), known, skipped, is_cut: false }
    }

    fn skip(&mut self, name: String, reason: &str) {
        self.skipped.push(SkippedTool { name, reason: reason.into() });
    }
}

/// A tool as the server sent it, parsed leniently: only a tool without a name is rejected.
struct McpToolJson {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input_schema: Option<Value>,
    output_schema: Option<Value>,
    annotations: Value,
    tasks: ToolTaskSupport,
}

fn sent(raw: &RawValue) -> Result<McpToolJson, SkippedTool> {
    let skipped = |name: &str, reason: String| SkippedTool { name: name.into(), reason };
    if raw.get().len() > TOOL_BYTES_MAX {
        return Err(skipped("?", format!("the tool definition is larger than {TOOL_BYTES_MAX} bytes")));
    }
    let mut value: Value = serde_json::from_str(raw.get())
        .map_err(|error| skipped("?", format!("haft cannot parse the tool definition: {error}")))?;
    let Some(name) = value["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned) else {
        return Err(skipped("?", "the tool definition has no `name`".into()));
    };
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Ok(McpToolJson {
        name,
        tasks: ToolTaskSupport::of(&value),
        title: text(&value["title"]),
        description: text(&value["description"]),
        input_schema: value.get_mut("inputSchema").map(Value::take),
        output_schema: value.get_mut("outputSchema").map(Value::take),
        annotations: value.get_mut("annotations").map(Value::take).unwrap_or_default(),
    })
}

/// Normalises a schema to type `object`; returns an error for a schema of another type.
fn input_schema(sent: Option<Value>) -> Result<Value, String> {
    match sent {
        None | Some(Value::Null | Value::Bool(true)) => Ok(json!({ "type": "object" })),
        Some(Value::Object(mut schema)) => match schema.get("type") {
            Some(kind) if *kind == "object" => Ok(Value::Object(schema)),
            None => {
                schema.insert("type".into(), "object".into());
                Ok(Value::Object(schema))
            }
            Some(kind) => Err(format!("`inputSchema` must be of type \"object\"; got {kind}")),
        },
        Some(Value::Bool(false)) => Err("`inputSchema` is `false`, which accepts no arguments".into()),
        Some(other) => Err(format!("`inputSchema` must be an object; got `{}`", excerpt(&other))),
    }
}

/// Reads the effects from the hints; ignores hints that are not booleans.
fn effects(annotations: &Value) -> Effects {
    let hint = |name: &str| annotations[name].as_bool();
    match (hint("readOnlyHint"), hint("idempotentHint"), hint("destructiveHint")) {
        (Some(true), _, _) => Effects::ReadOnly,
        (_, Some(true), _) => Effects::Idempotent,
        (Some(false), _, _) | (_, _, Some(true)) => Effects::Mutating,
        (None, _, _) => Effects::Unknown,
    }
}

fn excerpt(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> ToolSelection {
        ToolSelection { allowed: vec![ToolGlob::new("*").unwrap()], ..ToolSelection::default() }
    }

    fn listing(tools: &[&str], wanted: &ToolSelection) -> McpToolList {
        let raw: Vec<Box<RawValue>> =
            tools.iter().map(|tool| RawValue::from_string((*tool).to_owned()).unwrap()).collect();
        read(&raw, wanted)
    }

    fn names(listing: &McpToolList) -> Vec<&str> {
        listing.tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    #[test]
    fn invalid_tools_are_skipped_with_a_reason() {
        let found = listing(
            &[
                r#"{"name":"a","inputSchema":{"type":"object"}}"#,
                r#"{"name":"b","inputSchema":"nonsense"}"#,
                r#"{"inputSchema":{"type":"object"}}"#,
                r#"{"name":"c","inputSchema":false}"#,
                r#"{"name":"d","inputSchema":{"type":"array"}}"#,
                r#"{"name":"a","inputSchema":{"type":"object"}}"#,
                r#"{"name":"e"}"#,
                "17",
            ],
            &all(),
        );
        assert_eq!(names(&found), ["a", "e"]);
        let skipped: Vec<&str> = found.skipped.iter().map(|skipped| skipped.name.as_str()).collect();
        assert_eq!(skipped, ["b", "?", "c", "d", "a", "?"]);
        assert!(found.skipped.iter().all(|skipped| !skipped.reason.is_empty()));
    }

    #[test]
    fn every_input_schema_becomes_an_object_schema() {
        let check = |sent: &str, expected: Value| {
            let found = listing(&[&format!("{{\"name\":\"t\",\"inputSchema\":{sent}}}")], &all());
            assert_eq!(found.tools[0].input_schema, expected, "{sent}");
        };
        check("true", json!({"type": "object"}));
        check("null", json!({"type": "object"}));
        check(r#"{"properties":{"a":{}}}"#, json!({"type": "object", "properties": {"a": {}}}));
        let reference = r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}}}"##;
        check(reference, serde_json::from_str(reference).unwrap());
    }

    #[test]
    fn annotations_map_to_effects_and_invalid_ones_are_unknown() {
        let check =
            |annotations: Value, expected| assert_eq!(effects(&annotations), expected, "{annotations}");
        check(json!({"readOnlyHint": true, "destructiveHint": true}), Effects::ReadOnly);
        check(json!({"idempotentHint": true}), Effects::Idempotent);
        check(json!({"destructiveHint": true}), Effects::Mutating);
        check(json!({"readOnlyHint": false}), Effects::Mutating);
        check(json!({"readOnlyHint": "yes"}), Effects::Unknown);
        check(json!(null), Effects::Unknown);
        check(json!([1]), Effects::Unknown);
    }

    #[test]
    fn sanitized_tool_names_are_unique_and_map_to_the_originals() {
        let long = "x".repeat(100);
        let by_name = |sent: [&str; 5]| {
            let tools = sent.map(|name| format!("{{\"name\":\"{name}\"}}"));
            let found = listing(&tools.each_ref().map(String::as_str), &all());
            let back: Vec<&str> =
                found.tools.iter().map(|tool| found.known[&tool.name].name.as_str()).collect();
            assert_eq!(back, sent);
            let named = sent.into_iter().map(str::to_owned).zip(names(&found).into_iter().map(str::to_owned));
            named.collect::<BTreeMap<String, String>>()
        };
        let found = by_name(["a.b", "a/b", "x.y", "x_y", &long]);
        assert_eq!(found["x_y"], "x_y", "a valid name is unchanged");
        for changed in ["a.b", "a/b", "x.y"] {
            assert_eq!(found[changed].len(), "a_b_12345678".len(), "{}", found[changed]);
        }
        assert_eq!(
            found,
            by_name(["x_y", &long, "a/b", "x.y", "a.b"]),
            "the names do not depend on the order of the list"
        );
    }

    #[test]
    fn allow_deny_and_schema_settings_apply_to_the_tool_list() {
        let mut wanted = ToolSelection {
            allowed: vec![ToolGlob::new("git*").unwrap()],
            denied: vec![ToolGlob::new("*push").unwrap()],
            ..ToolSelection::default()
        };
        wanted.schemas.insert("git_log".into(), json!({"properties": {"n": {"type": "integer"}}}));
        let tools =
            [r#"{"name":"git_log","inputSchema":true}"#, r#"{"name":"git_push"}"#, r#"{"name":"other"}"#];
        let found = listing(&tools, &wanted);
        assert_eq!(names(&found), ["git_log"]);
        assert_eq!(found.tools[0].input_schema["properties"]["n"]["type"], "integer");
        assert!(found.skipped.is_empty());
    }

    #[test]
    fn unknown_tool_fields_are_preserved_in_the_raw_definition() {
        let found = listing(&[r#"{"name":"t","vendor":{"x":1},"execution":{"taskSupport":"x"}}"#], &all());
        assert!(found.tools[0].raw.as_ref().unwrap().get().contains("taskSupport"));
    }

    #[test]
    fn tool_list_over_the_limit_is_truncated_and_reported() {
        let tools: Vec<String> =
            (0..20_000).map(|number| format!("{{\"name\":\"tool_{number}\"}}")).collect();
        let texts: Vec<&str> = tools.iter().map(String::as_str).collect();
        let found = listing(&texts, &all());
        assert_eq!(found.tools.len(), TOOLS_MAX);
        assert!(found.skipped[0].reason.contains("more than 10000 tools"), "{:?}", found.skipped);
        assert!(found.warning().is_some_and(|warning| warning.contains("the first 10000")));
        assert_eq!(listing(&texts[..TOOLS_MAX], &all()).warning(), None);
    }
}

//! Parses `tool_choice` in all formats that clients send.

use haft_core::model_request::{MustCall, ToolChoice};
use serde_json::{Map, Value, json};

use super::field::{RequestField, invalid};
use super::tool_origin::{identity_name, identity_pattern, mcp_item};
use super::tools::{OWN_PREFIX, is_hosted};
use crate::error::ApiError;

/// The client's choice of the tools that the model may or must call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RequestedChoice {
    pub(crate) choice: ToolChoice,
    /// The only tools that the model may call, also in later turns; `None` if `choice` is the only limit.
    pub(crate) allowed: Option<Vec<String>>,
    wire: Value,
}

impl RequestedChoice {
    fn of(choice: ToolChoice, wire: Value) -> Self {
        Self { choice, allowed: None, wire }
    }

    /// Returns the choice in the form of the Responses API, even if the client sent another form.
    pub(crate) fn wire(&self) -> Value {
        self.wire.clone()
    }

    /// Returns the tool names, which are checked against the tools of the request.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        let chosen = match &self.choice {
            ToolChoice::Named(name) => std::slice::from_ref(name),
            ToolChoice::Allowed { names, .. } => names,
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Required => &[],
        };
        chosen.iter().chain(self.allowed.iter().flatten())
    }
}

/// Parses the choice. `allowed` and `forced` are the top-level fields `allowed_tools` and `forced_tool` that some
/// clients send. An empty `allowed` means all tools, because these clients send an empty list if they restrict nothing.
pub(crate) fn parse(
    choice: &RequestField,
    allowed: &RequestField,
    forced: &RequestField,
    warnings: &mut Vec<String>,
) -> Result<RequestedChoice, ApiError> {
    let limit = listed_names(allowed)?;
    if let Some(object) = forced.object()? {
        return Ok(RequestedChoice { allowed: limit, ..named("forced_tool", object)? });
    }
    match choice.value() {
        Some(Value::Object(object)) => structured(object, limit, warnings),
        Some(Value::String(word)) => of_word(word, limit).ok_or_else(|| choice.wrong(WORDS)),
        Some(_) => Err(choice.wrong("a string or an object")),
        None => Ok(limit.map_or_else(unrestricted, |names| of_names("auto", names))),
    }
}

fn unrestricted() -> RequestedChoice {
    RequestedChoice::of(ToolChoice::Auto, "auto".into())
}

const WORDS: &str = "one of auto, none, required, or an object";

/// Reads the names of the top-level field `allowed_tools`; `None` if it restricts nothing.
fn listed_names(field: &RequestField) -> Result<Option<Vec<String>>, ApiError> {
    let Some(names) = field.array()?.filter(|names| !names.is_empty()) else { return Ok(None) };
    let names = names.iter().enumerate().map(|(at, name)| {
        let path = format!("allowed_tools[{at}]");
        let text = name.as_str().map(str::to_owned);
        text.ok_or_else(|| invalid(path.clone(), format!("`{path}` must be a string")))
    });
    names.collect::<Result<_, _>>().map(Some)
}

/// Returns the choice that a word means; `None` for an unknown word.
fn of_word(word: &str, limit: Option<Vec<String>>) -> Option<RequestedChoice> {
    let choice = match word {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        _ => return None,
    };
    Some(match limit {
        Some(names) => of_names(word, names),
        None => RequestedChoice::of(choice, word.into()),
    })
}

fn structured(
    object: &Map<String, Value>,
    limit: Option<Vec<String>>,
    warnings: &mut Vec<String>,
) -> Result<RequestedChoice, ApiError> {
    if let Some(Value::Object(forced)) = object.get("forced_tool") {
        return Ok(RequestedChoice { allowed: limit, ..named("tool_choice.forced_tool", forced)? });
    }
    let kind = object.get("type").and_then(Value::as_str);
    if let Some(found) = kind.and_then(|word| of_word(word, limit.clone())) {
        return Ok(found);
    }
    let chosen = match kind {
        Some("function") => match object.get("function") {
            Some(Value::Object(function)) => named("tool_choice.function", function)?,
            _ => named("tool_choice", object)?,
        },
        Some("allowed_tools") => allowed_tools(object, warnings)?,
        Some("mcp") => mcp(object)?,
        Some(kind) if kind.starts_with(OWN_PREFIX) => {
            let name = kind[OWN_PREFIX.len()..].to_owned();
            RequestedChoice::of(ToolChoice::Named(name), Value::Object(object.clone()))
        }
        Some(kind) if is_hosted(kind) => {
            warnings.push(format!("the server ignored `tool_choice`: it has no tool of type `{kind}`"));
            RequestedChoice::of(ToolChoice::Auto, Value::Object(object.clone()))
        }
        Some(kind) => {
            let message = format!("this server cannot force a call of a tool of type `{kind}`");
            return Err(invalid("tool_choice.type", message));
        }
        None => return Err(invalid("tool_choice.type", "`tool_choice.type` must be a string")),
    };
    Ok(RequestedChoice { allowed: limit, ..chosen })
}

fn named(path: &str, object: &Map<String, Value>) -> Result<RequestedChoice, ApiError> {
    let name = super::field::required(path, object, "name")?;
    let wire = json!({"type": "function", "name": name});
    Ok(RequestedChoice::of(ToolChoice::Named(name), wire))
}

fn mcp(object: &Map<String, Value>) -> Result<RequestedChoice, ApiError> {
    let choice = match mcp_tools("tool_choice", object)? {
        McpChoice::Tool(name) => ToolChoice::Named(name),
        McpChoice::Server(pattern) => ToolChoice::Allowed { names: vec![pattern], must_call: MustCall::Yes },
    };
    Ok(RequestedChoice::of(choice, Value::Object(object.clone())))
}

/// The tools that an entry of type `mcp` selects, by their identity.
enum McpChoice {
    Tool(String),
    /// All tools of a server.
    Server(String),
}

impl McpChoice {
    fn into_name(self) -> String {
        match self {
            Self::Tool(name) | Self::Server(name) => name,
        }
    }
}

fn mcp_tools(path: &str, object: &Map<String, Value>) -> Result<McpChoice, ApiError> {
    let label = super::field::required(path, object, "server_label")?;
    let name = RequestField::new(format!("{path}.name"), object.get("name").cloned()).text()?;
    Ok(match name {
        Some(name) => McpChoice::Tool(mcp_item(&identity_name(&label, &name))),
        None => McpChoice::Server(mcp_item(&identity_pattern(&label))),
    })
}

/// Returns the name in one entry of `allowed_tools`; `None` for a type that the server skips with a warning.
fn allowed_name(path: &str, tool: &Value, warnings: &mut Vec<String>) -> Result<Option<String>, ApiError> {
    let Value::Object(tool) = tool else {
        return Err(invalid(path, format!("`{path}` must be an object")));
    };
    match tool.get("type").and_then(Value::as_str) {
        Some("mcp") => mcp_tools(path, tool).map(|chosen| Some(chosen.into_name())),
        Some(kind) if is_hosted(kind) => {
            warnings.push(format!("the server skipped `{path}`: it has no tool of type `{kind}`"));
            Ok(None)
        }
        Some(kind) if kind.starts_with(OWN_PREFIX) => Ok(Some(kind[OWN_PREFIX.len()..].to_owned())),
        Some(_) | None => super::field::required(path, tool, "name").map(Some),
    }
}

fn allowed_tools(
    object: &Map<String, Value>,
    warnings: &mut Vec<String>,
) -> Result<RequestedChoice, ApiError> {
    let mode = RequestField::new("tool_choice.mode", object.get("mode").cloned());
    let mode = mode.word(&["auto", "required", "none"])?.unwrap_or("auto");
    let tools = RequestField::new("tool_choice.tools", object.get("tools").cloned());
    let tools = tools.array()?.ok_or_else(|| tools.wrong("an array"))?;
    let mut names = Vec::new();
    for (at, tool) in tools.iter().enumerate() {
        names.extend(allowed_name(&format!("tool_choice.tools[{at}]"), tool, warnings)?);
    }
    if mode == "required" && names.is_empty() {
        let message = "`tool_choice` requires a call, but lists no tool that this server or the client runs";
        return Err(invalid("tool_choice.tools", message));
    }
    let mut chosen = of_names(mode, names);
    let mut wire = object.clone();
    wire.insert("mode".into(), mode.into());
    chosen.wire = Value::Object(wire);
    Ok(chosen)
}

fn of_names(mode: &str, names: Vec<String>) -> RequestedChoice {
    let tools: Vec<Value> = names.iter().map(|name| json!({"type": "function", "name": name})).collect();
    let wire = json!({"type": "allowed_tools", "mode": mode, "tools": tools});
    let choice = match mode {
        // An empty list permits no tool. Its entries may be of types that the server skips.
        _ if names.is_empty() => ToolChoice::None,
        "none" => ToolChoice::None,
        "required" => ToolChoice::Allowed { names, must_call: MustCall::Yes },
        _ => ToolChoice::Allowed { names, must_call: MustCall::No },
    };
    RequestedChoice::of(choice, wire)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_tool_choices_are_parsed_to_the_same_choice() {
        let of = |value: Value| {
            parse(
                &RequestField::new("tool_choice", Some(value)),
                &RequestField::new("", None),
                &RequestField::new("", None),
                &mut Vec::new(),
            )
            .unwrap()
        };
        let named = ToolChoice::Named("f".into());
        assert_eq!(of(json!("auto")).choice, ToolChoice::Auto);
        assert_eq!(of(json!("none")).choice, ToolChoice::None);
        assert_eq!(of(json!("required")).choice, ToolChoice::Required);
        assert_eq!(of(json!({"type": "function", "name": "f"})).choice, named);
        assert_eq!(of(json!({"type": "function", "function": {"name": "f"}})).choice, named);
        assert_eq!(of(json!({"forced_tool": {"type": "function", "name": "f"}})).choice, named);
        let mcp = of(json!({"type": "mcp", "server_label": "s", "name": "t"}));
        assert_eq!(mcp.choice, ToolChoice::Named("mcp:s__t".into()));
        let own = of(json!({"type": "haft:bash"}));
        assert_eq!(
            (own.choice.clone(), own.wire()),
            (ToolChoice::Named("bash".into()), json!({"type": "haft:bash"}))
        );
        let tools =
            json!([{"type": "function", "name": "f"}, {"type": "mcp", "server_label": "s", "name": "t"}]);
        let listed = of(json!({"type": "allowed_tools", "mode": "required", "tools": tools}));
        let both = vec!["f".to_owned(), "mcp:s__t".to_owned()];
        assert_eq!(listed.choice, ToolChoice::Allowed { names: both, must_call: MustCall::Yes });
        assert_eq!(of(json!({"type": "allowed_tools", "tools": []})).wire()["mode"], "auto");
    }

    #[test]
    fn choice_of_a_server_means_all_its_tools_and_hosted_types_are_skipped() {
        let of = |value: Value| {
            let mut warnings = Vec::new();
            let field = RequestField::new("tool_choice", Some(value));
            let none = RequestField::new("", None);
            parse(&field, &none, &none, &mut warnings).map(|chosen| (chosen, warnings))
        };
        let all = |names: &[&str], must_call| ToolChoice::Allowed {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            must_call,
        };
        let (chosen, _) = of(json!({"type": "mcp", "server_label": "my.docs"})).unwrap();
        assert_eq!(chosen.choice, all(&["mcp:my_docs__*"], MustCall::Yes));
        let listed = json!([
            {"type": "mcp", "server_label": "s"}, {"type": "web_search"}, {"type": "haft:bash"},
        ]);
        let (chosen, warnings) = of(json!({"type": "allowed_tools", "tools": listed})).unwrap();
        assert_eq!(chosen.choice, all(&["mcp:s__*", "bash"], MustCall::No));
        assert_eq!(chosen.wire()["tools"], listed);
        assert!(warnings[0].contains("tool_choice.tools[1]") && warnings[0].contains("web_search"));
        for kind in ["web_search", "custom"] {
            let (chosen, warnings) = of(json!({"type": kind, "name": "x"})).unwrap();
            assert_eq!((chosen.choice, warnings.len()), (ToolChoice::Auto, 1), "{kind}");
        }
        for listed in [json!([]), json!([{"type": "web_search"}])] {
            let (chosen, _) = of(json!({"type": "allowed_tools", "tools": listed})).unwrap();
            assert_eq!(chosen.choice, ToolChoice::None, "{listed}");
        }
        let only = json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]});
        assert_eq!(of(only).unwrap_err().param.as_deref(), Some("tool_choice.tools"));
        assert_eq!(of(json!({"type": "teapot"})).unwrap_err().param.as_deref(), Some("tool_choice.type"));
    }

    #[test]
    fn allowed_and_forced_tools_become_a_tool_choice_of_the_responses_api() {
        let allowed = RequestField::new("allowed_tools", Some(json!(["f"])));
        let chosen = parse(
            &RequestField::new("tool_choice", Some(json!("required"))),
            &allowed,
            &RequestField::new("", None),
            &mut Vec::new(),
        )
        .unwrap();
        let expected = json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]});
        assert_eq!(chosen.wire(), expected);
        for (mode, expected) in [
            (None, ToolChoice::Auto),
            (Some("auto"), ToolChoice::Auto),
            (Some("none"), ToolChoice::None),
            (Some("required"), ToolChoice::Required),
        ] {
            let choice = RequestField::new("tool_choice", mode.map(Value::from));
            let empty = RequestField::new("allowed_tools", Some(json!([])));
            let chosen = parse(&choice, &empty, &RequestField::new("", None), &mut Vec::new()).unwrap();
            assert_eq!((chosen.choice, chosen.wire), (expected, json!(mode.unwrap_or("auto"))));
        }
        let forced = RequestField::new("forced_tool", Some(json!({"type": "function", "name": "f"})));
        let (none, not_allowed) = (RequestField::new("tool_choice", None), RequestField::new("", None));
        let chosen = parse(&none, &not_allowed, &forced, &mut Vec::new()).unwrap();
        assert_eq!(chosen.wire(), json!({"type": "function", "name": "f"}));
    }

    #[test]
    fn top_level_allowed_tools_limit_every_form_of_the_tool_choice() {
        let allowed = ToolChoice::Allowed { names: vec!["f".into()], must_call: MustCall::No };
        let named = |name: &str| ToolChoice::Named(name.into());
        let limit = || Some(vec!["f".to_owned()]);
        let check = |choice: Value, forced: Option<Value>, expected: (ToolChoice, Option<Vec<String>>)| {
            let list = RequestField::new("allowed_tools", Some(json!(["f"])));
            let written = RequestField::new("tool_choice", Some(choice.clone()));
            let forced = RequestField::new("forced_tool", forced);
            let found = parse(&written, &list, &forced, &mut Vec::new()).unwrap();
            assert!(found.names().any(|name| name == "f") || expected.0 == ToolChoice::None, "{choice}");
            assert_eq!((found.choice, found.allowed), expected, "{choice}");
        };
        check(json!("auto"), None, (allowed.clone(), None));
        check(json!({"type": "auto"}), None, (allowed.clone(), None));
        check(json!({"type": "none"}), None, (ToolChoice::None, None));
        check(json!({"type": "function", "name": "f"}), None, (named("f"), limit()));
        check(json!({"type": "web_search"}), None, (ToolChoice::Auto, limit()));
        let forced = json!({"type": "function", "name": "g"});
        check(json!("auto"), Some(forced.clone()), (named("g"), limit()));
        check(json!({"forced_tool": forced}), None, (named("g"), limit()));
        let listed = json!([{"type": "function", "name": "f"}, {"type": "function", "name": "g"}]);
        let both = ToolChoice::Allowed { names: vec!["f".into(), "g".into()], must_call: MustCall::No };
        check(json!({"type": "allowed_tools", "tools": listed}), None, (both, limit()));
    }
}

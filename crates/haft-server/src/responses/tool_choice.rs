//! Parses `tool_choice` in all formats that clients send.

use haft_core::model_request::{MustCall, ToolChoice};
use serde_json::{Map, Value, json};

use super::field::{RequestField, invalid};
use super::tool_origin::{identity_name, mcp_item};
use crate::error::ApiError;

/// The client's choice of the tools that the model may or must call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RequestedChoice {
    pub(crate) choice: ToolChoice,
    wire: Value,
}

impl RequestedChoice {
    /// Returns the choice in the form of the Responses API, even if the client sent another form.
    pub(crate) fn wire(&self) -> Value {
        self.wire.clone()
    }

    /// Returns the tool names, which are checked against the tools of the request.
    pub(crate) fn names(&self) -> &[String] {
        match &self.choice {
            ToolChoice::Named(name) => std::slice::from_ref(name),
            ToolChoice::Allowed { names, .. } => names,
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Required => &[],
        }
    }
}

/// Parses the choice. `allowed` and `forced` are the top-level fields `allowed_tools` and `forced_tool` that some
/// clients send.
pub(crate) fn parse(
    choice: &RequestField,
    allowed: &RequestField,
    forced: &RequestField,
) -> Result<RequestedChoice, ApiError> {
    if let Some(object) = forced.object()? {
        return named("forced_tool", object);
    }
    let mode = match choice.value() {
        Some(Value::Object(object)) => return structured(object),
        Some(Value::String(word)) => Some(word.as_str()),
        Some(_) => return Err(choice.wrong("a string or an object")),
        None => None,
    };
    if let Some(names) = allowed.array()? {
        let names = names.iter().enumerate().map(|(at, name)| {
            let path = format!("allowed_tools[{at}]");
            name.as_str()
                .map(str::to_owned)
                .ok_or_else(|| invalid(path.clone(), format!("`{path}` must be a string")))
        });
        return Ok(of_names(mode.unwrap_or("auto"), names.collect::<Result<_, _>>()?));
    }
    let choice = match mode {
        None | Some("auto") => ToolChoice::Auto,
        Some("none") => ToolChoice::None,
        Some("required") => ToolChoice::Required,
        Some(_) => return Err(choice.wrong("one of auto, none, required, or an object")),
    };
    Ok(RequestedChoice { choice, wire: mode.unwrap_or("auto").into() })
}

fn structured(object: &Map<String, Value>) -> Result<RequestedChoice, ApiError> {
    if let Some(Value::Object(forced)) = object.get("forced_tool") {
        return named("tool_choice.forced_tool", forced);
    }
    match object.get("type").and_then(Value::as_str) {
        Some("function" | "custom") => match object.get("function") {
            Some(Value::Object(function)) => named("tool_choice.function", function),
            _ => named("tool_choice", object),
        },
        Some("allowed_tools") => allowed_tools(object),
        Some("mcp") => mcp(object),
        Some(word @ ("auto" | "none" | "required")) => parse(
            &RequestField::new("tool_choice", Some(word.into())),
            &RequestField::new("", None),
            &RequestField::new("", None),
        ),
        Some(kind) => {
            let message = format!("this server cannot force a call of a tool of type `{kind}`");
            Err(invalid("tool_choice.type", message))
        }
        None => Err(invalid("tool_choice.type", "`tool_choice.type` must be a string")),
    }
}

fn named(path: &str, object: &Map<String, Value>) -> Result<RequestedChoice, ApiError> {
    let name = super::field::required(path, object, "name")?;
    Ok(RequestedChoice { wire: json!({"type": "function", "name": name}), choice: ToolChoice::Named(name) })
}

fn mcp(object: &Map<String, Value>) -> Result<RequestedChoice, ApiError> {
    let label = super::field::required("tool_choice", object, "server_label")?;
    let name = super::field::required("tool_choice", object, "name")?;
    Ok(RequestedChoice {
        wire: Value::Object(object.clone()),
        choice: ToolChoice::Named(mcp_item(&identity_name(&label, &name))),
    })
}

fn allowed_tools(object: &Map<String, Value>) -> Result<RequestedChoice, ApiError> {
    let mode = RequestField::new("tool_choice.mode", object.get("mode").cloned());
    let mode = mode.word(&["auto", "required", "none"])?.unwrap_or("auto");
    let tools = RequestField::new("tool_choice.tools", object.get("tools").cloned());
    let tools = tools.array()?.ok_or_else(|| tools.wrong("an array"))?;
    let names = tools.iter().enumerate().map(|(at, tool)| {
        let path = format!("tool_choice.tools[{at}]");
        let Value::Object(tool) = tool else {
            return Err(invalid(path.clone(), format!("`{path}` must be an object")));
        };
        match tool.get("type").and_then(Value::as_str) {
            Some("mcp") => {
                let label = super::field::required(&path, tool, "server_label")?;
                Ok(mcp_item(&identity_name(&label, &super::field::required(&path, tool, "name")?)))
            }
            _ => super::field::required(&path, tool, "name"),
        }
    });
    let names = names.collect::<Result<_, _>>()?;
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
        "none" => ToolChoice::None,
        "required" => ToolChoice::Allowed { names, must_call: MustCall::Yes },
        _ => ToolChoice::Allowed { names, must_call: MustCall::No },
    };
    RequestedChoice { choice, wire }
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
        let tools =
            json!([{"type": "function", "name": "f"}, {"type": "mcp", "server_label": "s", "name": "t"}]);
        let listed = of(json!({"type": "allowed_tools", "mode": "required", "tools": tools}));
        let both = vec!["f".to_owned(), "mcp:s__t".to_owned()];
        assert_eq!(listed.choice, ToolChoice::Allowed { names: both, must_call: MustCall::Yes });
        assert_eq!(of(json!({"type": "allowed_tools", "tools": []})).wire()["mode"], "auto");
    }

    #[test]
    fn allowed_and_forced_tools_become_a_tool_choice_of_the_responses_api() {
        let allowed = RequestField::new("allowed_tools", Some(json!(["f"])));
        let chosen = parse(
            &RequestField::new("tool_choice", Some(json!("required"))),
            &allowed,
            &RequestField::new("", None),
        )
        .unwrap();
        let expected = json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]});
        assert_eq!(chosen.wire(), expected);
        let forced = RequestField::new("forced_tool", Some(json!({"type": "function", "name": "f"})));
        let chosen =
            parse(&RequestField::new("tool_choice", None), &RequestField::new("", None), &forced).unwrap();
        assert_eq!(chosen.wire(), json!({"type": "function", "name": "f"}));
    }
}

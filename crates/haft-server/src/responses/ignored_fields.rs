//! Finds the fields of a request that the server ignores, so that the header `haft-warnings` can name them.
//!
//! A hint for the cache or the abuse detection of a provider is not named, because every server may ignore hints. A
//! field with its default value is not named either.

use serde_json::{Map, Value, json};

/// The maximum number of different fields that the warnings of one request name.
const FIELDS_MAX: usize = 20;

/// The maximum length of a name in a warning, in characters.
const NAME_CHARS_MAX: usize = 64;

/// Fields that the server knows and does not support.
const UNSUPPORTED: [&str; 3] = ["access_programs", "moderation", "prompt_cache_retention"];

/// Fields that haft ignores without a warning, because they are only hints. haft uses no identifier of a user.
const HINTS: [&str; 1] = ["user"];

/// The fields that haft reads, of the objects in a request.
const OBJECT_FIELDS: [(&str, &[&str]); 3] = [
    ("reasoning", &["effort", "summary"]),
    ("stream_options", &["include_obfuscation"]),
    ("text", &["format", "verbosity"]),
];

/// The fields that haft reads, of a tool of type `function`.
const FUNCTION_FIELDS: [&str; 6] = ["type", "name", "description", "parameters", "strict", "function"];

/// The fields that haft reads, of a tool of type `mcp`.
const MCP_FIELDS: [&str; 9] = [
    "type",
    "server_label",
    "server_url",
    "connector_id",
    "tunnel_id",
    "headers",
    "authorization",
    "allowed_tools",
    "require_approval",
];

/// Fields of tools that the server knows and does not support.
const UNSUPPORTED_OF_TOOLS: [&str; 5] =
    ["allowed_callers", "async", "defer_loading", "output_schema", "server_description"];

/// The ignored fields of one request, without repetitions.
#[derive(Debug, Default)]
pub(super) struct IgnoredFields {
    fields: Vec<IgnoredField>,
    /// The number of ignored fields beyond [`FIELDS_MAX`].
    further: usize,
}

#[derive(Debug)]
struct IgnoredField {
    /// The path of the field, where it occurs first.
    path: String,
    /// The path without the positions in lists.
    name: String,
    support: FieldSupport,
    /// The number of places with this field.
    places: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldSupport {
    /// This version of the server does not know the field.
    Unknown,
    Unsupported,
}

impl IgnoredFields {
    /// Finds the ignored fields inside the known fields of a body.
    pub(super) fn within(body: &Map<String, Value>) -> Self {
        let mut ignored = Self::default();
        for (name, known) in OBJECT_FIELDS {
            let object = body.get(name).and_then(Value::as_object);
            ignored.add_others(name, object.into_iter().flatten(), known);
        }
        for (at, tool) in list(body.get("tools")).enumerate() {
            ignored.add_tool(&format!("tools[{at}]"), tool);
        }
        for (at, item) in list(body.get("input")).enumerate() {
            ignored.add_item(&format!("input[{at}]"), item);
        }
        ignored
    }

    /// Adds the fields that are left of a body after the server has taken the fields that it uses.
    pub(super) fn add_rest(&mut self, rest: &Map<String, Value>) {
        for (name, value) in rest.iter().filter(|(name, _)| !HINTS.contains(&name.as_str())) {
            match name.as_str() {
                // Warn only about these two options, because the other options are hints.
                "prompt_cache_options" => {
                    for option in ["comparison_response_id", "prewarm"] {
                        self.add_unsupported(&format!("{name}.{option}"), &value[option]);
                    }
                }
                // Do not warn: the value only allows a cache to keep the prompt for 24 hours, and every cache may keep
                // it for a shorter time.
                "prompt_cache_retention" if *value == "24h" => {}
                "image" => {
                    self.add_unsupported("image.context_compression", &value["context_compression"]);
                }
                known if UNSUPPORTED.contains(&known) => self.add_unsupported(known, value),
                _ => self.add_unknown(name, value),
            }
        }
    }

    /// Returns one warning for each field, and one for all further fields together.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let further =
            (self.further > 0).then(|| format!("the server ignored {} further fields", self.further));
        self.fields.iter().map(IgnoredField::warning).chain(further)
    }

    /// Returns the names of the fields that the server does not know.
    pub(super) fn unknown_names(&self) -> Vec<String> {
        let unknown = self.fields.iter().filter(|field| field.support == FieldSupport::Unknown);
        unknown.map(|field| field.name.clone()).collect()
    }

    fn add_tool(&mut self, path: &str, tool: &Value) {
        let known: &[&str] = match tool["type"].as_str() {
            Some("function") => &FUNCTION_FIELDS,
            Some("mcp") => &MCP_FIELDS,
            Some(_) | None => return,
        };
        self.add_others(path, tool.as_object().into_iter().flatten(), known);
        let nested = tool["function"].as_object();
        self.add_others(&format!("{path}.function"), nested.into_iter().flatten(), known);
    }

    fn add_item(&mut self, path: &str, item: &Value) {
        self.add_unsupported(&format!("{path}.phase"), &item["phase"]);
        for name in ["content", "output"] {
            for (at, part) in list(item.get(name)).enumerate() {
                self.add_unsupported(&format!("{path}.{name}[{at}].detail"), &part["detail"]);
            }
        }
    }

    fn add_others<'a>(
        &mut self,
        path: &str,
        fields: impl Iterator<Item = (&'a String, &'a Value)>,
        known: &[&str],
    ) {
        for (name, value) in fields.filter(|(name, _)| !known.contains(&name.as_str())) {
            let is_unsupported = UNSUPPORTED_OF_TOOLS.contains(&name.as_str());
            let path = format!("{path}.{name}");
            if is_unsupported { self.add_unsupported(&path, value) } else { self.add_unknown(&path, value) }
        }
    }

    fn add_unsupported(&mut self, path: &str, value: &Value) {
        if !is_default(value) {
            self.add(path, FieldSupport::Unsupported);
        }
    }

    fn add_unknown(&mut self, path: &str, value: &Value) {
        if !value.is_null() {
            self.add(path, FieldSupport::Unknown);
        }
    }

    fn add(&mut self, path: &str, support: FieldSupport) {
        let name = without_positions(path);
        let known = self.fields.iter().position(|field| field.name == name);
        match known {
            Some(at) => self.fields[at].places += 1,
            None if self.fields.len() < FIELDS_MAX => {
                self.fields.push(IgnoredField { path: path.to_owned(), name, support, places: 1 });
            }
            None => self.further += 1,
        }
    }
}

impl IgnoredField {
    fn warning(&self) -> String {
        let path: String = self.path.chars().take(NAME_CHARS_MAX).collect();
        let others = match self.places {
            1 => String::new(),
            places => format!(", also in {} other places", places - 1),
        };
        match self.support {
            FieldSupport::Unknown => format!("the server ignored the unknown field `{path}`{others}"),
            FieldSupport::Unsupported => {
                format!("the server ignored the field `{path}`, which it does not support{others}")
            }
        }
    }
}

/// Returns true for the values that mean the same as a missing field.
fn is_default(value: &Value) -> bool {
    value.is_null() || *value == false || *value == "auto" || *value == json!(["direct"])
}

fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

/// Replaces `[3]` by `[]` in a path.
fn without_positions(path: &str) -> String {
    let mut name = String::new();
    for part in path.split_inclusive('[') {
        name.push_str(part.trim_start_matches(|digit: char| digit.is_ascii_digit()));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(body: &Value) -> Vec<String> {
        let body = body.as_object().unwrap();
        let mut ignored = IgnoredFields::within(body);
        let taken = ["input", "tools", "reasoning", "text", "stream_options"];
        let rest = body.iter().filter(|(name, _)| !taken.contains(&name.as_str()));
        ignored.add_rest(&rest.map(|(name, value)| (name.clone(), value.clone())).collect());
        ignored.warnings().collect()
    }

    #[test]
    fn every_ignored_field_is_named_with_its_path() {
        let check = |body: Value, path: &str| {
            let found = warnings(&body);
            assert!(found.len() == 1 && found[0].contains(&format!("`{path}`")), "{body}: {found:?}");
        };
        check(json!({"shiny": 1}), "shiny");
        check(json!({"moderation": {"model": "m"}}), "moderation");
        check(json!({"access_programs": {"cyber": "standard"}}), "access_programs");
        check(json!({"image": {"context_compression": "enabled"}}), "image.context_compression");
        check(json!({"prompt_cache_options": {"prewarm": true}}), "prompt_cache_options.prewarm");
        check(json!({"prompt_cache_retention": "in_memory"}), "prompt_cache_retention");
        check(json!({"reasoning": {"context": "all"}}), "reasoning.context");
        let tool = |kind: &str, name: &str, value: Value| json!({"tools": [{"type": kind, name: value}]});
        check(tool("function", "output_schema", json!({})), "tools[0].output_schema");
        check(tool("function", "defer_loading", json!(true)), "tools[0].defer_loading");
        check(tool("function", "async", json!(true)), "tools[0].async");
        check(tool("function", "allowed_callers", json!(["programmatic"])), "tools[0].allowed_callers");
        check(tool("function", "function", json!({"name": "f", "shiny": 1})), "tools[0].function.shiny");
        check(tool("mcp", "server_description", json!("d")), "tools[0].server_description");
        let phase = json!({"role": "assistant", "content": "x", "phase": "commentary"});
        check(json!({"input": [phase]}), "input[0].phase");
        let image = json!({"type": "input_image", "image_url": "https://x/", "detail": "high"});
        check(json!({"input": [{"role": "user", "content": [image]}]}), "input[0].content[0].detail");
        let output = json!({"type": "function_call_output", "call_id": "c", "output": [image]});
        check(json!({"input": [output]}), "input[0].output[0].detail");
    }

    #[test]
    fn hints_and_default_values_cause_no_warning() {
        let tool = json!({
            "type": "function", "name": "f", "description": "d", "parameters": {}, "strict": true,
            "defer_loading": false, "async": false, "allowed_callers": ["direct"], "output_schema": null,
        });
        let image = json!({"type": "input_image", "image_url": "https://x/", "detail": "auto"});
        let body = json!({
            "user": "u", "prompt_cache_retention": "24h", "prompt_cache_options": {"mode": "implicit", "ttl": "30m"},
            "image": {"context_compression": "auto"}, "moderation": null, "shiny": null, "tools": [tool],
            "reasoning": {"effort": "low", "summary": "auto"}, "text": {"verbosity": "low"},
            "input": [{"role": "user", "content": [image], "phase": null}],
        });
        assert_eq!(warnings(&body), [""; 0]);
        assert_eq!(warnings(&json!({"input": "x"})), [""; 0]);
    }

    #[test]
    fn warnings_are_limited_in_number_and_length() {
        let item = || json!({"role": "assistant", "content": "x", "phase": "commentary"});
        let expected = "the server ignored the field `input[0].phase`, which it does not support, also in 2 other places";
        assert_eq!(warnings(&json!({"input": [item(), item(), item()]})), [expected]);
        let many: Map<String, Value> =
            (0..2 * FIELDS_MAX).map(|number| (format!("field_{number}"), json!(1))).collect();
        let found = warnings(&Value::Object(many));
        assert_eq!(found.len(), FIELDS_MAX + 1);
        assert_eq!(found[FIELDS_MAX], format!("the server ignored {FIELDS_MAX} further fields"));
        let long = warnings(&json!({"x".repeat(1_000): 1}));
        assert!(long[0].chars().count() < 2 * NAME_CHARS_MAX, "{long:?}");
    }

    #[test]
    fn operator_gets_the_names_of_unknown_fields_without_positions() {
        let tools =
            json!([{"type": "mcp", "shiny": 1}, {"type": "mcp", "shiny": 1, "server_description": "d"}]);
        let ignored = IgnoredFields::within(json!({"tools": tools}).as_object().unwrap());
        assert_eq!(ignored.unknown_names(), ["tools[].shiny"]);
    }
}

//! Repeats arguments as HTTP headers where a schema asks for it with `x-mcp-header`, so that a proxy can route by them,
//! and checks such headers of a client.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

/// The schema keyword that names the header.
const KEY: &str = "x-mcp-header";

/// The maximum depth to which a schema is searched.
const DEPTH_MAX: usize = 64;

/// A tool argument and the HTTP header that repeats it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParamHeader {
    path: Vec<String>,
    header: String,
}

impl ParamHeader {
    /// Returns the header for these arguments; `None` when the argument is absent.
    pub(super) fn of(&self, arguments: &Map<String, Value>) -> Option<(String, String)> {
        Some((self.name(), encoded(&text(self.argument(arguments)?)?)))
    }

    fn name(&self) -> String {
        format!("{PARAM_HEADER_PREFIX}{}", self.header.to_ascii_lowercase())
    }

    fn argument<'a>(&self, arguments: &'a Map<String, Value>) -> Option<&'a Value> {
        let (first, rest) = self.path.split_first()?;
        rest.iter().try_fold(arguments.get(first)?, |value, key| value.get(key))
    }

    fn check(&self, arguments: &Map<String, Value>, sent: &SentParamHeaders) -> Result<(), String> {
        let name = self.name();
        let argument = self.argument(arguments);
        let expected = argument.and_then(text);
        match (expected, sent.get(&name)) {
            (None, None) => Ok(()),
            (Some(_), None) => Err(format!("the header `{name}` is missing")),
            (_, Some(None)) => Err(format!("the header `{name}` must have one value of ASCII text")),
            (expected, Some(Some(written))) => match decoded(written) {
                None => Err(format!("the header `{name}` is not valid base64")),
                Some(written) if expected.as_ref() == Some(&written) => Ok(()),
                Some(written) if argument.and_then(whole_number).as_ref() == Some(&written) => Ok(()),
                Some(_) => Err(format!("the header `{name}` does not agree with the body")),
            },
        }
    }
}

/// The beginning of the names of headers that repeat arguments.
pub const PARAM_HEADER_PREFIX: &str = "mcp-param-";

/// The headers of a request that repeat arguments, by lower-case name. The value is `None` if the header has several
/// values or a value that is not ASCII text.
pub type SentParamHeaders = BTreeMap<String, Option<String>>;

/// Checks the headers that the tool's schema asks for with `x-mcp-header`: each must repeat its argument, and must be
/// absent if the argument is absent. Otherwise, a request could bypass the rules that a proxy applies to these headers.
pub fn check_param_headers(
    schema: &Value,
    arguments: &Map<String, Value>,
    sent: &SentParamHeaders,
) -> Result<(), String> {
    of_schema(schema)?.iter().try_for_each(|header| header.check(arguments, sent))
}

/// Returns the text of an argument that a header can repeat.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns the text of a whole number such as `1.0` without its fraction. JavaScript clients write it in this form.
fn whole_number(value: &Value) -> Option<String> {
    let text = value.as_f64().filter(|number| value.is_f64() && number.fract() == 0.0)?.to_string();
    Some(text)
}

/// Encodes a value for a header: as plain text where that is safe, otherwise as base64 between `=?base64?` and `?=`.
pub(super) fn encoded(text: &str) -> String {
    let plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && text.trim() == text
        && !text.to_ascii_lowercase().starts_with("=?base64?");
    if plain { text.to_owned() } else { format!("=?base64?{}?=", BASE64_STANDARD.encode(text)) }
}

/// Reverses [`encoded`]. A value without the beginning and the end of the base64 form is plain text. Returns `None` for
/// invalid base64.
fn decoded(value: &str) -> Option<String> {
    let inner = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    match inner {
        Some(inner) => String::from_utf8(BASE64_STANDARD.decode(inner).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

/// Returns all headers that a schema asks for. Returns an error for an invalid header, because it makes the tool
/// unusable over HTTP.
pub(super) fn of_schema(schema: &Value) -> Result<Vec<ParamHeader>, String> {
    let mut found = Vec::new();
    walk(schema, Some(&mut Vec::new()), &mut found, DEPTH_MAX)?;
    Ok(found)
}

/// Finds the properties that a tool schema marks as HTTP header parameters. `path` is the path of the current property,
/// or `None` below any keyword other than `properties`.
fn walk(
    schema: &Value,
    path: Option<&mut Vec<String>>,
    found: &mut Vec<ParamHeader>,
    depth: usize,
) -> Result<(), String> {
    let Some(depth) = depth.checked_sub(1) else { return Ok(()) };
    match schema {
        Value::Array(items) => items.iter().try_for_each(|item| walk(item, None, found, depth)),
        Value::Object(members) => object(members, path, found, depth),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn object(
    members: &Map<String, Value>,
    mut path: Option<&mut Vec<String>>,
    found: &mut Vec<ParamHeader>,
    depth: usize,
) -> Result<(), String> {
    for (key, value) in members {
        match (key.as_str(), path.as_mut()) {
            (KEY, Some(path)) => found.push(checked(members, value, path, found)?),
            (KEY, None) => return Err(format!("`{KEY}` is allowed only on a property")),
            ("properties", Some(path)) => {
                for (name, property) in value.as_object().into_iter().flatten() {
                    path.push(name.clone());
                    walk(property, Some(path), found, depth)?;
                    path.pop();
                }
            }
            // Skip these keywords, because they contain data and not schemas.
            ("default" | "const" | "enum" | "examples", _) => {}
            (_, _) => walk(value, None, found, depth)?,
        }
    }
    Ok(())
}

fn checked(
    members: &Map<String, Value>,
    header: &Value,
    path: &[String],
    found: &[ParamHeader],
) -> Result<ParamHeader, String> {
    let name = path.join(".");
    let wrong = |what: &str| format!("`{KEY}` of property `{name}`: {what}");
    let header = header.as_str().filter(|header| !header.is_empty() && header.chars().all(is_token));
    let header = header.ok_or_else(|| wrong("the value must be a header name"))?;
    if path.is_empty() {
        return Err(format!("`{KEY}` is not allowed on the root of the schema"));
    }
    if found.iter().any(|other| other.header.eq_ignore_ascii_case(header)) {
        return Err(wrong("another property already names this header"));
    }
    match members.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => {
            Ok(ParamHeader { path: path.to_vec(), header: header.to_owned() })
        }
        Some(_) | None => Err(wrong("the property must have the type string, integer or boolean")),
    }
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_with_x_mcp_header_are_sent_as_headers() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "other": {"type": "string"},
        }});
        let headers = of_schema(&schema).unwrap();
        let arguments = json!({"region": "zürich", "deep": {"n": 3}, "other": "x"});
        let mut sent: Vec<_> =
            headers.iter().filter_map(|header| header.of(arguments.as_object().unwrap())).collect();
        sent.sort();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(sent, [pair("mcp-param-n", "3"), pair("mcp-param-region", "=?base64?esO8cmljaA==?=")]);
        assert_eq!(headers[0].of(&Map::new()), None);
    }

    #[test]
    fn headers_of_a_client_must_repeat_the_arguments() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
        }});
        let check = |arguments: Value, sent: &[(&str, &str)], expected: Result<(), &str>| {
            let sent: SentParamHeaders = sent
                .iter()
                .map(|(name, value)| (format!("mcp-param-{name}"), Some((*value).to_owned())))
                .collect();
            let checked = check_param_headers(&schema, arguments.as_object().unwrap(), &sent);
            match (&checked, expected) {
                (Ok(()), Ok(())) => {}
                (Err(reason), Err(part)) => assert!(reason.contains(part), "{reason}"),
                _ => panic!("{arguments} {sent:?}: {checked:?}"),
            }
        };
        let hello = || json!({"region": "Hello"});
        check(json!({}), &[], Ok(()));
        check(json!({"region": null}), &[], Ok(()));
        check(hello(), &[("region", "Hello")], Ok(()));
        check(hello(), &[("region", "=?base64?SGVsbG8=?=")], Ok(()));
        check(hello(), &[("region", "Hello"), ("other", "x")], Ok(()));
        check(json!({"count": 3}), &[("count", "3")], Ok(()));
        check(json!({"count": 3.0}), &[("count", "3")], Ok(()));
        check(json!({"region": "=?base64?SGVsbG8="}), &[("region", "=?base64?SGVsbG8=")], Ok(()));
        check(hello(), &[], Err("is missing"));
        check(hello(), &[("region", "hello")], Err("does not agree"));
        check(json!({}), &[("region", "Hello")], Err("does not agree"));
        check(json!({"count": 3}), &[("count", "03")], Err("does not agree"));
        check(hello(), &[("region", "=?base64?SGVsbG8?=")], Err("not valid base64"));
        check(hello(), &[("region", "=?base64?SGVs!!!bG8=?=")], Err("not valid base64"));
        let two_values = SentParamHeaders::from([("mcp-param-region".to_owned(), None)]);
        assert!(check_param_headers(&schema, hello().as_object().unwrap(), &two_values).is_err());
    }

    #[test]
    fn invalid_x_mcp_header_annotations_are_rejected() {
        let bad = [
            json!({"x-mcp-header": "Root"}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": ""}}}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": "a b"}}}),
            json!({"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": 1}}}),
            json!({"properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}}),
        ];
        for schema in bad {
            assert!(of_schema(&schema).is_err(), "{schema}");
        }
        assert_eq!(of_schema(&json!({"default": {"x-mcp-header": 1}})), Ok(Vec::new()));
    }

    #[test]
    fn argument_values_invalid_in_a_header_are_base64_encoded() {
        assert_eq!(encoded("plain text"), "plain text");
        assert_eq!(encoded(" edge"), "=?base64?IGVkZ2U=?=");
        assert_eq!(encoded("a\nb"), "=?base64?YQpi?=");
        assert_eq!(encoded("=?base64?x?="), "=?base64?PT9iYXNlNjQ/eD89?=");
    }
}

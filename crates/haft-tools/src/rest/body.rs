//! Builds the body of a request from arguments.

use std::fmt;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use haft_core::result::{ToolError, ToolErrorKind};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::encode;
use super::parameter::{Explode, ParameterStyle, pairs};
use super::template::{ArgumentMap, text_of};

/// A request body, ready to be sent.
#[derive(Clone, PartialEq, Eq)]
pub struct RestBody {
    pub media_type: String,
    pub bytes: Vec<u8>,
}

/// Prints only the size: the content may be secret.
impl fmt::Debug for RestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({}, {} bytes)", self.media_type, self.bytes.len())
    }
}

/// The instructions for building a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyPlan {
    pub media_type: String,
    pub kind: BodyKind,
    pub shape: BodyShape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    Json,
    Form,
    Multipart,
    Text,
    /// The argument is base64 text.
    Binary,
}

/// The arguments that the body is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyShape {
    /// One argument is the whole body.
    Whole { argument: String, fields: Vec<BodyField> },
    /// Every field of the body is an argument.
    Flat { fields: Vec<BodyField> },
}

/// A field of a form or of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyField {
    pub name: String,
    pub style: ParameterStyle,
    pub explode: Explode,
    /// The argument is base64 text; the decoded bytes are sent.
    pub binary: bool,
}

/// Builds the body. Returns `None` if the call has no argument that belongs to the body.
pub(super) fn body(plan: &BodyPlan, arguments: &ArgumentMap) -> Result<Option<RestBody>, ToolError> {
    let Some(value) = gathered(&plan.shape, arguments) else { return Ok(None) };
    let fields = match &plan.shape {
        BodyShape::Whole { fields, .. } | BodyShape::Flat { fields } => fields,
    };
    let (media_type, bytes) = match plan.kind {
        BodyKind::Json => (plan.media_type.clone(), value.to_string().into_bytes()),
        BodyKind::Form => (plan.media_type.clone(), form(&value, fields).into_bytes()),
        BodyKind::Multipart => multipart(&plan.media_type, &value, fields)?,
        BodyKind::Text => (plan.media_type.clone(), text_of(&value).into_bytes()),
        BodyKind::Binary => (plan.media_type.clone(), bytes_of("body", &value)?),
    };
    Ok(Some(RestBody { media_type, bytes }))
}

fn gathered(shape: &BodyShape, arguments: &ArgumentMap) -> Option<Value> {
    match shape {
        BodyShape::Whole { argument, .. } => arguments.get(argument).cloned(),
        BodyShape::Flat { fields } => {
            let given = fields.iter().filter_map(|field| {
                arguments.get(&field.name).map(|value| (field.name.clone(), value.clone()))
            });
            let object: Map<String, Value> = given.collect();
            (!object.is_empty()).then_some(Value::Object(object))
        }
    }
}

/// Encodes an object as a form. Sends any other value as plain text, because such a value has no field names.
fn form(value: &Value, fields: &[BodyField]) -> String {
    let Some(members) = value.as_object() else { return text_of(value) };
    let written = members.iter().filter(|(_, value)| !value.is_null()).flat_map(|(name, value)| {
        let (style, explode) = style_of(name, fields);
        pairs(name, value, style, explode)
    });
    let encoded =
        written.map(|(name, value)| format!("{}={}", encode::strict(&name), encode::strict(&value)));
    encoded.collect::<Vec<_>>().join("&")
}

fn style_of(name: &str, fields: &[BodyField]) -> (ParameterStyle, Explode) {
    let field = fields.iter().find(|field| field.name == name);
    field.map_or((ParameterStyle::Form, Explode::Yes), |field| (field.style, field.explode))
}

/// Writes one part per field, and one per element when the field is a list.
fn multipart(media_type: &str, value: &Value, fields: &[BodyField]) -> Result<(String, Vec<u8>), ToolError> {
    let none = Map::new();
    let mut parts = Vec::new();
    for (name, value) in value.as_object().unwrap_or(&none) {
        let binary = fields.iter().any(|field| field.name == *name && field.binary);
        let values = match value {
            Value::Array(items) => items.as_slice(),
            single => std::slice::from_ref(single),
        };
        for value in values {
            parts.push(part(name, value, binary)?);
        }
    }
    let boundary = boundary(&parts);
    let mut bytes = Vec::new();
    for part in &parts {
        bytes.extend_from_slice(format!("--{boundary}\r\n").as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((format!("{media_type}; boundary={boundary}"), bytes))
}

fn part(name: &str, value: &Value, binary: bool) -> Result<Vec<u8>, ToolError> {
    let quoted = quoted(name);
    let (rest, content) = match value {
        value if binary => (
            format!("; filename=\"{quoted}\"\r\nContent-Type: application/octet-stream"),
            bytes_of(name, value)?,
        ),
        Value::Object(_) => ("\r\nContent-Type: application/json".into(), value.to_string().into_bytes()),
        value => (String::new(), text_of(value).into_bytes()),
    };
    let mut bytes = format!("Content-Disposition: form-data; name=\"{quoted}\"{rest}\r\n\r\n").into_bytes();
    bytes.extend(content);
    Ok(bytes)
}

/// Escapes a name as browsers do: quotes and line breaks, which could end the header, are percent-encoded.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// The prefix of every multipart boundary.
const BOUNDARY: &str = "haft-part-";

/// Returns a boundary that occurs in none of the parts: it is their digest, and a text cannot contain its own digest. A
/// random boundary would work too, but with the digest the request depends only on the arguments.
fn boundary(parts: &[Vec<u8>]) -> String {
    let digest = parts.iter().fold(Sha256::new(), Digest::chain_update).finalize();
    digest.iter().take(16).fold(BOUNDARY.to_owned(), |line, byte| format!("{line}{byte:02x}"))
}

/// The accepted variants of base64: standard and URL-safe, with or without padding. Both alphabets are in use, and
/// models omit the padding.
const BASE64: [GeneralPurpose; 2] = [
    GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    ),
    GeneralPurpose::new(
        &base64::alphabet::URL_SAFE,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    ),
];

fn bytes_of(name: &str, value: &Value) -> Result<Vec<u8>, ToolError> {
    let decoded = value.as_str().and_then(|text| BASE64.iter().find_map(|base64| base64.decode(text).ok()));
    decoded.ok_or_else(|| {
        ToolError::new(
            ToolErrorKind::InvalidArguments,
            format!("Error: the argument `{name}` must be base64 text"),
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(name: &str, binary: bool) -> BodyField {
        BodyField { name: name.into(), style: ParameterStyle::Form, explode: Explode::Yes, binary }
    }

    #[allow(clippy::needless_pass_by_value, reason = "tests pass JSON literals by value")]
    fn made(kind: BodyKind, media_type: &str, fields: Vec<BodyField>, arguments: Value) -> Option<RestBody> {
        let plan = BodyPlan { media_type: media_type.into(), kind, shape: BodyShape::Flat { fields } };
        body(&plan, arguments.as_object().unwrap()).unwrap()
    }

    #[test]
    fn json_body_contains_only_the_fields_passed() {
        let fields = || vec![field("a", false), field("b", false)];
        let found = made(BodyKind::Json, "application/json", fields(), json!({"a": null, "z": 1})).unwrap();
        assert_eq!(String::from_utf8(found.bytes).unwrap(), r#"{"a":null}"#);
        assert_eq!(made(BodyKind::Json, "application/json", fields(), json!({"z": 1})), None);
    }

    #[test]
    fn form_body_encodes_names_and_values() {
        let deep = BodyField { style: ParameterStyle::DeepObject, ..field("m", false) };
        let fields = vec![field("a b", false), field("l", false), deep];
        let given = json!({"a b": "x&y=z", "l": [1, 2], "m": {"k": "v"}});
        let found = made(BodyKind::Form, "application/x-www-form-urlencoded", fields, given).unwrap();
        assert_eq!(String::from_utf8(found.bytes).unwrap(), "a%20b=x%26y%3Dz&l=1&l=2&m%5Bk%5D=v");
    }

    #[test]
    fn multipart_files_are_decoded_from_base64() {
        let fields = vec![field("f\"\r\n", true), field("t", false)];
        let given = json!({"f\"\r\n": "AP/+", "t": "--haft-part-"});
        let found = made(BodyKind::Multipart, "multipart/form-data", fields, given).unwrap();
        let (_, line) = found.media_type.split_once("; boundary=").unwrap();
        let text = String::from_utf8_lossy(&found.bytes);
        assert_eq!(text.matches(&format!("--{line}\r\n")).count(), 2, "{text}");
        assert!(text.contains("name=\"f%22%0D%0A\"; filename=\"f%22%0D%0A\""), "{text}");
        assert!(found.bytes.windows(3).any(|window| window == [0, 255, 254]));
        assert!(text.ends_with(&format!("--{line}--\r\n")));
    }

    #[test]
    fn invalid_base64_body_is_rejected() {
        let plan = BodyPlan {
            media_type: "application/octet-stream".into(),
            kind: BodyKind::Binary,
            shape: BodyShape::Whole { argument: "body".into(), fields: vec![] },
        };
        let error = body(&plan, json!({"body": "%%%"}).as_object().unwrap()).unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::InvalidArguments);
        let found = body(&plan, json!({"body": "_-8"}).as_object().unwrap()).unwrap().unwrap();
        assert_eq!(found.bytes, [255, 239]);
    }
}

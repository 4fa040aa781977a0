//! Parameters of an operation: their serialization, and their schemas for the model.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

use super::super::parameter::{Explode, Parameter, ParameterLocation, ParameterStyle, ReservedCharacters};
use super::super::request::PathPiece;
use super::description;
use super::documents::Node;
use super::schema::{Direction, SchemaInliner};

/// A parameter of an operation, and its schema for the model.
#[derive(Debug)]
pub(super) struct DescribedParameter {
    pub(super) parameter: Parameter,
    pub(super) schema: Value,
    pub(super) required: bool,
}

/// Headers that are not arguments, because the body, the credentials or the HTTP connection determine them.
const NOT_GIVEN: [&str; 9] = [
    "accept",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "transfer-encoding",
    "upgrade",
];

/// The maximum number of parameters of an operation; a model could not fill in more.
const PARAMETERS_MAX: usize = 200;

/// The estimated cost of examining one parameter, in schema values.
const PARAMETER_EFFORT: usize = 100;

/// The maximum length of an operation's path, in bytes.
const PATH_BYTES_MAX: usize = 2_000;

/// Returns the parameters of an operation and of its path item. The operation's own parameters take precedence.
pub(super) fn parameters(
    item: &Node<'_>,
    operation: &Node<'_>,
    schemas: &SchemaInliner,
) -> Result<Vec<DescribedParameter>, String> {
    let mut found: BTreeMap<(ParameterLocation, String), DescribedParameter> = BTreeMap::new();
    let lists = [item, operation].map(|node| node.get("parameters"));
    let count: usize = lists.iter().flatten().filter_map(|list| list.value.as_array()).map(Vec::len).sum();
    if count > PARAMETERS_MAX {
        return Err(too_many());
    }
    for list in lists.into_iter().flatten() {
        for written in list.items() {
            let written = written
                .resolved()
                .map_err(|bad| format!("haft cannot read a parameter of the operation: {bad}"))?;
            let described = described(&written, schemas)?;
            found.insert((described.parameter.place, described.parameter.name.clone()), described);
        }
    }
    let sent = |described: &DescribedParameter| {
        described.parameter.place != ParameterLocation::Header
            || !NOT_GIVEN.contains(&described.parameter.name.to_ascii_lowercase().as_str())
    };
    let mut all: Vec<DescribedParameter> = found.into_values().filter(sent).collect();
    name_arguments(&mut all);
    Ok(all)
}

fn too_many() -> String {
    format!("the operation has more than {PARAMETERS_MAX} parameters")
}

fn described(written: &Node<'_>, schemas: &SchemaInliner) -> Result<DescribedParameter, String> {
    schemas.effort.work(PARAMETER_EFFORT);
    let name = written.text("name").ok_or("a parameter of the operation has no `name`")?;
    let place = match written.text("in") {
        Some("path") => ParameterLocation::Path,
        Some("query") => ParameterLocation::Query,
        Some("header") => ParameterLocation::Header,
        Some("cookie") => ParameterLocation::Cookie,
        other => {
            return Err(format!(
                "parameter `{name}` has the unknown location `{}`; expected path, query, header or cookie",
                other.unwrap_or_default()
            ));
        }
    };
    let content = written.get("content").and_then(|content| content.members().next().map(|(_, media)| media));
    let style = if content.is_some() { ParameterStyle::Json } else { style(written.text("style"), place) };
    let explode =
        written.value.get("explode").and_then(Value::as_bool).unwrap_or(style == ParameterStyle::Form);
    let schema = content.as_ref().unwrap_or(written).get("schema");
    let schema = schema.map_or_else(|| json!({}), |schema| schemas.whole(&schema, Direction::Request));
    Ok(DescribedParameter {
        parameter: Parameter {
            argument: name.to_owned(),
            name: name.to_owned(),
            place,
            style,
            explode: if explode { Explode::Yes } else { Explode::No },
            reserved: if written.flag("allowReserved") {
                ReservedCharacters::Kept
            } else {
                ReservedCharacters::Encoded
            },
        },
        schema: with_description(schema, written.text("description")),
        required: place == ParameterLocation::Path || written.flag("required"),
    })
}

fn style(written: Option<&str>, place: ParameterLocation) -> ParameterStyle {
    match (written, place) {
        (Some("label"), ParameterLocation::Path) => ParameterStyle::Label,
        (Some("matrix"), ParameterLocation::Path) => ParameterStyle::Matrix,
        (Some("spaceDelimited"), ParameterLocation::Query) => ParameterStyle::SpaceDelimited,
        (Some("pipeDelimited"), ParameterLocation::Query) => ParameterStyle::PipeDelimited,
        (Some("deepObject"), ParameterLocation::Query) => ParameterStyle::DeepObject,
        (_, ParameterLocation::Path | ParameterLocation::Header) => ParameterStyle::Simple,
        (_, ParameterLocation::Query | ParameterLocation::Cookie) => ParameterStyle::Form,
    }
}

/// Adds a parameter's description, which takes precedence over the description in its schema.
fn with_description(mut schema: Value, text: Option<&str>) -> Value {
    let text = text.map(description::plain).filter(|text| !text.is_empty());
    if let (Some(text), Value::Object(members)) = (text, &mut schema) {
        let short = description::shortened(&text, description::PROPERTY_CHARS_MAX);
        members.insert("description".into(), Value::from(short));
    }
    schema
}

/// Names the arguments. If parameters in two locations share a name, the first parameter keeps the name (path before
/// query), and the others get their location as a prefix.
fn name_arguments(all: &mut [DescribedParameter]) {
    let mut taken: HashSet<String> = HashSet::new();
    for described in all {
        let plain = legal(&described.parameter.name);
        let placed = format!("{}_{plain}", described.parameter.place.name());
        let numbered = (2..).map(|number: usize| format!("{placed}_{number}"));
        let mut candidates = [plain, placed.clone()].into_iter().chain(numbered);
        described.parameter.argument = candidates.find(|name| !taken.contains(name)).unwrap_or_default();
        taken.insert(described.parameter.argument.clone());
    }
}

/// The maximum length of an argument name that every model provider accepts, in characters.
const ARGUMENT_CHARS_MAX: usize = 64;

/// Returns whether every model provider accepts this name for an argument.
pub(super) fn is_legal(name: &str) -> bool {
    (1..=ARGUMENT_CHARS_MAX).contains(&name.len()) && name.chars().all(is_legal_char)
}

fn is_legal_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Returns the nearest legal name: `filter[name]` becomes `filter_name`.
fn legal(name: &str) -> String {
    if is_legal(name) {
        return name.to_owned();
    }
    let words: Vec<&str> = name.split(|c| !is_legal_char(c)).filter(|word| !word.is_empty()).collect();
    let joined: String = words.join("_").chars().take(ARGUMENT_CHARS_MAX).collect();
    if joined.is_empty() { "value".into() } else { joined }
}

/// Splits a path into literal text and parameters. A name in braces that the operation does not declare becomes a
/// string parameter.
pub(super) fn path(written: &str, all: &mut Vec<DescribedParameter>) -> Result<Vec<PathPiece>, String> {
    if written.len() > PATH_BYTES_MAX {
        return Err(format!("the path is longer than {PATH_BYTES_MAX} bytes"));
    }
    if written.contains('?') {
        return Err("the path contains a `?`".into());
    }
    let mut pieces = Vec::new();
    // Clients do not send the fragment to the server; some OpenAPI documents use it to distinguish operations of one
    // path.
    let mut rest = written.split('#').next().unwrap_or_default();
    while let Some((before, after)) = rest.split_once('{') {
        let unmatched = || "the path has an unmatched brace".to_owned();
        let (name, behind) = after.split_once('}').ok_or_else(unmatched)?;
        if before.contains('}') || name.contains('{') || name.is_empty() {
            return Err(unmatched());
        }
        pieces.push(PathPiece::Text(before.to_owned()));
        pieces.push(PathPiece::Parameter(position(name, all)));
        rest = behind;
        if all.len() > PARAMETERS_MAX {
            return Err(too_many());
        }
    }
    if rest.contains('}') {
        return Err("the path has an unmatched brace".into());
    }
    pieces.push(PathPiece::Text(rest.to_owned()));
    drop_unused_path_parameters(&mut pieces, all);
    name_arguments(all);
    Ok(pieces)
}

fn position(name: &str, all: &mut Vec<DescribedParameter>) -> usize {
    let is_it = |described: &DescribedParameter| {
        described.parameter.place == ParameterLocation::Path && described.parameter.name == name
    };
    all.iter().position(is_it).unwrap_or_else(|| {
        all.push(DescribedParameter {
            parameter: Parameter {
                argument: legal(name),
                name: name.to_owned(),
                place: ParameterLocation::Path,
                style: ParameterStyle::Simple,
                explode: Explode::No,
                reserved: ReservedCharacters::Encoded,
            },
            schema: json!({ "type": "string" }),
            required: true,
        });
        all.len() - 1
    })
}

/// Drops path parameters that do not occur in the path: they are never sent, so the model should not have to fill them
/// in.
fn drop_unused_path_parameters(pieces: &mut [PathPiece], all: &mut Vec<DescribedParameter>) {
    let used: Vec<usize> = pieces
        .iter()
        .filter_map(|piece| match piece {
            PathPiece::Parameter(index) => Some(*index),
            PathPiece::Text(_) => None,
        })
        .collect();
    let kept: Vec<usize> = (0..all.len())
        .filter(|index| all[*index].parameter.place != ParameterLocation::Path || used.contains(index))
        .collect();
    for piece in pieces {
        if let PathPiece::Parameter(index) = piece {
            *index = kept.iter().position(|old| old == index).unwrap_or(*index);
        }
    }
    let mut index = 0;
    all.retain(|_| {
        index += 1;
        kept.contains(&(index - 1))
    });
}

/// Returns all arguments as the properties of one object schema.
pub(super) fn properties(all: &[DescribedParameter]) -> Map<String, Value> {
    all.iter().map(|described| (described.parameter.argument.clone(), described.schema.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::documents;
    use super::*;

    fn found(item: &Value, operation: &Value) -> Result<Vec<DescribedParameter>, String> {
        let documents = documents(&json!({ "item": item, "operation": operation }));
        let root = documents.root();
        let node = |key: &str| root.with(&root.value[key]);
        parameters(&node("item"), &node("operation"), &SchemaInliner::default())
    }

    #[test]
    fn clashing_parameter_names_are_prefixed_with_their_location() {
        let parameter = |place: &str| json!({"name": "id", "in": place, "schema": {"type": "string"}});
        let all = found(
            &json!({"parameters": [parameter("query"), parameter("path")]}),
            &json!({"parameters": [parameter("header"), parameter("cookie"), {"name": "filter[x]", "in": "query"}]}),
        )
        .unwrap();
        let names: Vec<(&str, &str)> =
            all.iter().map(|d| (d.parameter.argument.as_str(), d.parameter.place.name())).collect();
        let expected = [
            ("id", "path"),
            ("filter_x", "query"),
            ("query_id", "query"),
            ("header_id", "header"),
            ("cookie_id", "cookie"),
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn operation_overrides_its_path_item_and_cannot_set_host_or_authorization() {
        let all = found(
            &json!({"parameters": [{"name": "n", "in": "query", "description": "old"}]}),
            &json!({"parameters": [
                {"name": "n", "in": "query", "description": "new", "style": "pipeDelimited", "explode": false},
                {"name": "Authorization", "in": "header"}, {"name": "Host", "in": "header"},
            ]}),
        )
        .unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].schema["description"], "new");
        assert_eq!(
            (all[0].parameter.style, all[0].parameter.explode),
            (ParameterStyle::PipeDelimited, Explode::No)
        );
        assert!(found(&json!({}), &json!({"parameters": [{"name": "x", "in": "moon"}]})).is_err());
        assert!(found(&json!({}), &json!({"parameters": [{"$ref": "#/gone"}]})).is_err());
    }

    #[test]
    fn path_templates_are_split_and_invalid_ones_rejected() {
        let check = |written: &str, expected: Option<usize>| {
            let found = path(written, &mut Vec::new());
            assert_eq!(found.as_ref().ok().map(Vec::len), expected, "{written} {found:?}");
        };
        check("/a", Some(1));
        check("/a/{b}/c/{d}", Some(5));
        check("/a/{b}{c}", Some(5));
        check("/a#b", Some(1));
        for bad in ["/a/{b", "/a/b}", "/a/{b{c}}", "/{}", "/a?b=1"] {
            check(bad, None);
        }
    }
}

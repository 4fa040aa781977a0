//! Parameters of an operation: their location in a request, and the serialization of their values.

use serde_json::Value;

use super::encode;
use super::template::text_of;

/// One parameter of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// The name of the tool argument. It differs from `name` when parameters in two locations have the same name.
    pub argument: String,
    /// The name in the request.
    pub name: String,
    pub place: ParameterLocation,
    pub style: ParameterStyle,
    pub explode: Explode,
    pub reserved: ReservedCharacters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ParameterLocation {
    Path,
    Query,
    Header,
    Cookie,
}

impl ParameterLocation {
    pub fn name(self) -> &'static str {
        match self {
            ParameterLocation::Path => "path",
            ParameterLocation::Query => "query",
            ParameterLocation::Header => "header",
            ParameterLocation::Cookie => "cookie",
        }
    }
}

/// The serialization of lists and objects (`style` of `OpenAPI`, plus `Brackets` and `Json`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterStyle {
    /// `a,b`, in paths and headers.
    Simple,
    /// `.a.b`
    Label,
    /// `;name=a`
    Matrix,
    Form,
    SpaceDelimited,
    PipeDelimited,
    /// `name[key]=v`, for objects and lists at any depth.
    DeepObject,
    /// `name[0][key]=v`: as `DeepObject`, but an object is written as the only element of a list.
    Brackets,
    /// The value is serialized as JSON text.
    Json,
}

/// `explode` of `OpenAPI`: with `Yes`, every element is written separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explode {
    Yes,
    No,
}

/// `allowReserved` of `OpenAPI`: with `Kept`, characters reserved in URLs are not percent-encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservedCharacters {
    Encoded,
    Kept,
}

/// Returns the name-value pairs of a query or a form, not yet encoded.
pub(super) fn pairs(
    name: &str,
    value: &Value,
    style: ParameterStyle,
    explode: Explode,
) -> Vec<(String, String)> {
    match (style, value) {
        (ParameterStyle::Json, value) => vec![(name.to_owned(), value.to_string())],
        (ParameterStyle::DeepObject, Value::Array(_) | Value::Object(_))
        | (ParameterStyle::Brackets, Value::Array(_)) => nested(name, value),
        (ParameterStyle::Brackets, Value::Object(_)) => nested(&format!("{name}[0]"), value),
        (_, Value::Array(items)) => list(name, items, style, explode),
        (_, Value::Object(members)) => match explode {
            Explode::Yes => members.iter().map(|(key, value)| (key.clone(), text_of(value))).collect(),
            Explode::No => vec![(name.to_owned(), flat(members, ",", ","))],
        },
        (_, value) => vec![(name.to_owned(), text_of(value))],
    }
}

fn list(name: &str, items: &[Value], style: ParameterStyle, explode: Explode) -> Vec<(String, String)> {
    if explode == Explode::Yes {
        return items.iter().map(|item| (name.to_owned(), text_of(item))).collect();
    }
    let separator = match style {
        ParameterStyle::SpaceDelimited => " ",
        ParameterStyle::PipeDelimited => "|",
        ParameterStyle::Simple
        | ParameterStyle::Label
        | ParameterStyle::Matrix
        | ParameterStyle::Form
        | ParameterStyle::DeepObject
        | ParameterStyle::Brackets
        | ParameterStyle::Json => ",",
    };
    vec![(name.to_owned(), joined(items, separator))]
}

fn nested(name: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Array(items) => {
            let inner = items.iter().enumerate();
            inner.flat_map(|(index, item)| nested(&format!("{name}[{index}]"), item)).collect()
        }
        Value::Object(members) => {
            members.iter().flat_map(|(key, value)| nested(&format!("{name}[{key}]"), value)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            vec![(name.to_owned(), text_of(value))]
        }
    }
}

/// Returns a path value, percent-encoded so that it cannot leave its segment.
pub(super) fn segment(name: &str, value: &Value, style: ParameterStyle, explode: Explode) -> String {
    let encoded = |value: &Value| encode::strict(&text_of(value));
    let each =
        |items: &[Value], separator: &str| items.iter().map(encoded).collect::<Vec<_>>().join(separator);
    let named = |pairs: &serde_json::Map<String, Value>, between: &str, separator: &str| {
        let pairs =
            pairs.iter().map(|(key, value)| format!("{}{between}{}", encode::strict(key), encoded(value)));
        pairs.collect::<Vec<_>>().join(separator)
    };
    match (style, explode, value) {
        (ParameterStyle::Json, _, value) => encode::strict(&value.to_string()),
        (ParameterStyle::Label, Explode::Yes, Value::Array(items)) => format!(".{}", each(items, ".")),
        (ParameterStyle::Label, Explode::Yes, Value::Object(members)) => {
            format!(".{}", named(members, "=", "."))
        }
        (ParameterStyle::Label, Explode::No, Value::Object(members)) => {
            format!(".{}", named(members, ",", ","))
        }
        (ParameterStyle::Label, Explode::No, Value::Array(items)) => format!(".{}", each(items, ",")),
        (ParameterStyle::Label, _, value) => format!(".{}", encoded(value)),
        (ParameterStyle::Matrix, Explode::Yes, Value::Array(items)) => {
            let each = items.iter().map(|item| format!(";{}={}", encode::strict(name), encoded(item)));
            each.collect::<Vec<_>>().concat()
        }
        (ParameterStyle::Matrix, Explode::Yes, Value::Object(members)) => {
            format!(";{}", named(members, "=", ";"))
        }
        (ParameterStyle::Matrix, Explode::No, Value::Array(items)) => {
            format!(";{}={}", encode::strict(name), each(items, ","))
        }
        (ParameterStyle::Matrix, Explode::No, Value::Object(members)) => {
            format!(";{}={}", encode::strict(name), named(members, ",", ","))
        }
        (ParameterStyle::Matrix, _, value) => format!(";{}={}", encode::strict(name), encoded(value)),
        (_, Explode::Yes, Value::Object(members)) => named(members, "=", ","),
        (_, Explode::No, Value::Object(members)) => named(members, ",", ","),
        (_, _, Value::Array(items)) => each(items, ","),
        (_, _, value) => encoded(value),
    }
}

/// Returns a value for a header or a cookie.
pub(super) fn line(value: &Value, style: ParameterStyle, explode: Explode) -> String {
    match (style, explode, value) {
        (ParameterStyle::Json, _, value) => value.to_string(),
        (_, Explode::Yes, Value::Object(members)) => flat(members, "=", ","),
        (_, Explode::No, Value::Object(members)) => flat(members, ",", ","),
        (_, _, value) => text_of(value),
    }
}

fn joined(items: &[Value], separator: &str) -> String {
    items.iter().map(text_of).collect::<Vec<_>>().join(separator)
}

fn flat(members: &serde_json::Map<String, Value>, between: &str, separator: &str) -> String {
    let pairs = members.iter().map(|(key, value)| format!("{key}{between}{}", text_of(value)));
    pairs.collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tests pass JSON literals by value")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn query_parameters_are_serialized_in_every_style() {
        let check = |style: ParameterStyle, explode: Explode, value: Value, expected: &str| {
            let found: Vec<String> = pairs("k", &value, style, explode)
                .into_iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            assert_eq!(found.join("&"), expected, "{style:?} {explode:?} {value}");
        };
        let (list, object) = (json!(["a", 2]), json!({"x": 1, "y": "b"}));
        check(ParameterStyle::Form, Explode::Yes, json!("v"), "k=v");
        check(ParameterStyle::Form, Explode::Yes, json!(false), "k=false");
        check(ParameterStyle::Form, Explode::Yes, list.clone(), "k=a&k=2");
        check(ParameterStyle::Form, Explode::No, list.clone(), "k=a,2");
        check(ParameterStyle::Form, Explode::Yes, object.clone(), "x=1&y=b");
        check(ParameterStyle::Form, Explode::No, object.clone(), "k=x,1,y,b");
        check(ParameterStyle::SpaceDelimited, Explode::No, list.clone(), "k=a 2");
        check(ParameterStyle::PipeDelimited, Explode::No, list.clone(), "k=a|2");
        check(ParameterStyle::DeepObject, Explode::Yes, object.clone(), "k[x]=1&k[y]=b");
        check(ParameterStyle::DeepObject, Explode::Yes, json!({"a": {"b": [1]}}), "k[a][b][0]=1");
        check(ParameterStyle::Brackets, Explode::Yes, json!([{"p": 1}, {"p": 2}]), "k[0][p]=1&k[1][p]=2");
        check(ParameterStyle::Brackets, Explode::Yes, object.clone(), "k[0][x]=1&k[0][y]=b");
        check(ParameterStyle::Json, Explode::Yes, object, r#"k={"x":1,"y":"b"}"#);
        check(ParameterStyle::Form, Explode::Yes, json!([]), "");
    }

    #[test]
    fn path_parameters_are_serialized_in_every_style() {
        let check = |style: ParameterStyle, explode: Explode, value: Value, expected: &str| {
            assert_eq!(segment("k", &value, style, explode), expected, "{style:?} {explode:?} {value}");
        };
        let (list, object) = (json!(["a/b", 2]), json!({"x": 1, "y": "b"}));
        check(ParameterStyle::Simple, Explode::No, json!("a/b?c"), "a%2Fb%3Fc");
        check(ParameterStyle::Simple, Explode::No, list.clone(), "a%2Fb,2");
        check(ParameterStyle::Simple, Explode::No, object.clone(), "x,1,y,b");
        check(ParameterStyle::Simple, Explode::Yes, object.clone(), "x=1,y=b");
        check(ParameterStyle::Label, Explode::No, json!(5), ".5");
        check(ParameterStyle::Label, Explode::Yes, list.clone(), ".a%2Fb.2");
        check(ParameterStyle::Label, Explode::Yes, object.clone(), ".x=1.y=b");
        check(ParameterStyle::Matrix, Explode::No, json!(5), ";k=5");
        check(ParameterStyle::Matrix, Explode::No, list.clone(), ";k=a%2Fb,2");
        check(ParameterStyle::Matrix, Explode::Yes, list, ";k=a%2Fb;k=2");
        check(ParameterStyle::Matrix, Explode::Yes, object, ";x=1;y=b");
    }
}

//! Parameters of an operation: their location in a request, and the serialization of their values there.

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
    pub place: Place,
    pub style: Style,
    pub explode: Explode,
    pub reserved: Reserved,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Path,
    Query,
    Header,
    Cookie,
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Place::Path => "path",
            Place::Query => "query",
            Place::Header => "header",
            Place::Cookie => "cookie",
        }
    }
}

/// The serialization of lists and objects (`style` of `OpenAPI`, plus `Brackets` and `Json`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `a,b` in paths and headers.
    Simple,
    /// `.a.b`
    Label,
    /// `;name=a`
    Matrix,
    Form,
    SpaceDelimited,
    PipeDelimited,
    /// `name[key]=v`, also for lists and at any depth.
    DeepObject,
    /// `name[0][key]=v`: as `DeepObject`, but an object is written as the only element of a list.
    Brackets,
    /// The value is JSON text.
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
pub enum Reserved {
    Encoded,
    Kept,
}

/// Returns the name-value pairs of a query or a form, not yet encoded.
pub(super) fn pairs(name: &str, value: &Value, style: Style, explode: Explode) -> Vec<(String, String)> {
    match (style, value) {
        (Style::Json, value) => vec![(name.to_owned(), value.to_string())],
        (Style::DeepObject, Value::Array(_) | Value::Object(_)) | (Style::Brackets, Value::Array(_)) => {
            nested(name, value)
        }
        (Style::Brackets, Value::Object(_)) => nested(&format!("{name}[0]"), value),
        (_, Value::Array(items)) => list(name, items, style, explode),
        (_, Value::Object(members)) => match explode {
            Explode::Yes => members.iter().map(|(key, value)| (key.clone(), text_of(value))).collect(),
            Explode::No => vec![(name.to_owned(), flat(members, ",", ","))],
        },
        (_, value) => vec![(name.to_owned(), text_of(value))],
    }
}

fn list(name: &str, items: &[Value], style: Style, explode: Explode) -> Vec<(String, String)> {
    if explode == Explode::Yes {
        return items.iter().map(|item| (name.to_owned(), text_of(item))).collect();
    }
    let separator = match style {
        Style::SpaceDelimited => " ",
        Style::PipeDelimited => "|",
        Style::Simple
        | Style::Label
        | Style::Matrix
        | Style::Form
        | Style::DeepObject
        | Style::Brackets
        | Style::Json => ",",
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
pub(super) fn segment(name: &str, value: &Value, style: Style, explode: Explode) -> String {
    let encoded = |value: &Value| encode::strict(&text_of(value));
    let each =
        |items: &[Value], separator: &str| items.iter().map(encoded).collect::<Vec<_>>().join(separator);
    let named = |pairs: &serde_json::Map<String, Value>, between: &str, separator: &str| {
        let pairs =
            pairs.iter().map(|(key, value)| format!("{}{between}{}", encode::strict(key), encoded(value)));
        pairs.collect::<Vec<_>>().join(separator)
    };
    match (style, explode, value) {
        (Style::Json, _, value) => encode::strict(&value.to_string()),
        (Style::Label, Explode::Yes, Value::Array(items)) => format!(".{}", each(items, ".")),
        (Style::Label, Explode::Yes, Value::Object(members)) => format!(".{}", named(members, "=", ".")),
        (Style::Label, Explode::No, Value::Object(members)) => format!(".{}", named(members, ",", ",")),
        (Style::Label, Explode::No, Value::Array(items)) => format!(".{}", each(items, ",")),
        (Style::Label, _, value) => format!(".{}", encoded(value)),
        (Style::Matrix, Explode::Yes, Value::Array(items)) => {
            let each = items.iter().map(|item| format!(";{}={}", encode::strict(name), encoded(item)));
            each.collect::<Vec<_>>().concat()
        }
        (Style::Matrix, Explode::Yes, Value::Object(members)) => format!(";{}", named(members, "=", ";")),
        (Style::Matrix, Explode::No, Value::Array(items)) => {
            format!(";{}={}", encode::strict(name), each(items, ","))
        }
        (Style::Matrix, Explode::No, Value::Object(members)) => {
            format!(";{}={}", encode::strict(name), named(members, ",", ","))
        }
        (Style::Matrix, _, value) => format!(";{}={}", encode::strict(name), encoded(value)),
        (_, Explode::Yes, Value::Object(members)) => named(members, "=", ","),
        (_, Explode::No, Value::Object(members)) => named(members, ",", ","),
        (_, _, Value::Array(items)) => each(items, ","),
        (_, _, value) => encoded(value),
    }
}

/// Returns a value for a header or a cookie.
pub(super) fn line(value: &Value, style: Style, explode: Explode) -> String {
    match (style, explode, value) {
        (Style::Json, _, value) => value.to_string(),
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
#[allow(clippy::needless_pass_by_value, reason = "a test is its data")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn queries_are_written_in_every_style() {
        let check = |style: Style, explode: Explode, value: Value, expected: &str| {
            let found: Vec<String> = pairs("k", &value, style, explode)
                .into_iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            assert_eq!(found.join("&"), expected, "{style:?} {explode:?} {value}");
        };
        let (list, object) = (json!(["a", 2]), json!({"x": 1, "y": "b"}));
        check(Style::Form, Explode::Yes, json!("v"), "k=v");
        check(Style::Form, Explode::Yes, json!(false), "k=false");
        check(Style::Form, Explode::Yes, list.clone(), "k=a&k=2");
        check(Style::Form, Explode::No, list.clone(), "k=a,2");
        check(Style::Form, Explode::Yes, object.clone(), "x=1&y=b");
        check(Style::Form, Explode::No, object.clone(), "k=x,1,y,b");
        check(Style::SpaceDelimited, Explode::No, list.clone(), "k=a 2");
        check(Style::PipeDelimited, Explode::No, list.clone(), "k=a|2");
        check(Style::DeepObject, Explode::Yes, object.clone(), "k[x]=1&k[y]=b");
        check(Style::DeepObject, Explode::Yes, json!({"a": {"b": [1]}}), "k[a][b][0]=1");
        check(Style::Brackets, Explode::Yes, json!([{"p": 1}, {"p": 2}]), "k[0][p]=1&k[1][p]=2");
        check(Style::Brackets, Explode::Yes, object.clone(), "k[0][x]=1&k[0][y]=b");
        check(Style::Json, Explode::Yes, object, r#"k={"x":1,"y":"b"}"#);
        check(Style::Form, Explode::Yes, json!([]), "");
    }

    #[test]
    fn paths_are_written_in_every_style() {
        let check = |style: Style, explode: Explode, value: Value, expected: &str| {
            assert_eq!(segment("k", &value, style, explode), expected, "{style:?} {explode:?} {value}");
        };
        let (list, object) = (json!(["a/b", 2]), json!({"x": 1, "y": "b"}));
        check(Style::Simple, Explode::No, json!("a/b?c"), "a%2Fb%3Fc");
        check(Style::Simple, Explode::No, list.clone(), "a%2Fb,2");
        check(Style::Simple, Explode::No, object.clone(), "x,1,y,b");
        check(Style::Simple, Explode::Yes, object.clone(), "x=1,y=b");
        check(Style::Label, Explode::No, json!(5), ".5");
        check(Style::Label, Explode::Yes, list.clone(), ".a%2Fb.2");
        check(Style::Label, Explode::Yes, object.clone(), ".x=1.y=b");
        check(Style::Matrix, Explode::No, json!(5), ";k=5");
        check(Style::Matrix, Explode::No, list.clone(), ";k=a%2Fb,2");
        check(Style::Matrix, Explode::Yes, list, ";k=a%2Fb;k=2");
        check(Style::Matrix, Explode::Yes, object, ";x=1;y=b");
    }
}

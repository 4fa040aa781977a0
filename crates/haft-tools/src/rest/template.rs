//! Text with placeholders for arguments: `${parameters.x}`.

use std::fmt;

use serde_json::{Map, Value};

/// The arguments of a call.
pub(super) type ArgumentMap = Map<String, Value>;

/// A text with placeholders for arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct TextTemplate {
    pieces: Vec<TemplatePiece>,
}

#[derive(Clone, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    Parameter(String),
}

const OPENS: &str = "${parameters.";

impl TextTemplate {
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPENS) {
            let (name, behind) = after.split_once('}').ok_or(TemplateError::Open)?;
            if name.is_empty() {
                return Err(TemplateError::Unnamed);
            }
            if !before.is_empty() {
                pieces.push(TemplatePiece::Text(before.to_owned()));
            }
            pieces.push(TemplatePiece::Parameter(name.to_owned()));
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(TemplatePiece::Text(rest.to_owned()));
        }
        Ok(Self { pieces })
    }

    /// Returns the names of the parameters that have a placeholder.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            TemplatePiece::Parameter(name) => Some(name.as_str()),
            TemplatePiece::Text(_) => None,
        })
    }

    /// Replaces placeholders by their arguments, each escaped by `encode`. Returns the first missing argument as an
    /// error.
    pub(super) fn render(
        &self,
        arguments: &ArgumentMap,
        encode: fn(&str) -> String,
    ) -> Result<String, MissingArgument> {
        let mut rendered = String::new();
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => rendered.push_str(text),
                TemplatePiece::Parameter(name) => {
                    rendered.push_str(&encode(&text_of(given(arguments, name)?)));
                }
            }
        }
        Ok(rendered)
    }

    /// Returns key and parameter of a template like `key=${parameters.x}`.
    pub(super) fn assignment(&self) -> Option<(&str, &str)> {
        match self.pieces.as_slice() {
            [TemplatePiece::Text(before), TemplatePiece::Parameter(name)] => {
                Some((before.strip_suffix('=')?, name))
            }
            _ => None,
        }
    }

    /// Returns the parameter if the template is a single placeholder.
    fn whole(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [TemplatePiece::Parameter(name)] => Some(name),
            _ => None,
        }
    }
}

/// Prints only the parameters: the text may be secret, such as a token in a header template.
impl fmt::Debug for TextTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextTemplate").field("parameters", &self.parameters().collect::<Vec<_>>()).finish()
    }
}

/// A JSON value with placeholders in its strings. A string that is a single placeholder becomes the argument with its
/// JSON type. If the call lacks that argument, the key or list element is left out.
#[derive(Clone, PartialEq)]
pub(super) struct JsonTemplate(Value);

impl JsonTemplate {
    pub(super) fn parse(value: Value) -> Result<Self, TemplateError> {
        check_strings(&value)?;
        Ok(Self(value))
    }

    pub(super) fn parameters(&self) -> Vec<String> {
        let mut names = Vec::new();
        places(&self.0, &mut names);
        names
    }

    /// Returns whether the template is a string at its top level.
    pub(super) fn is_text(&self) -> bool {
        self.0.is_string()
    }

    pub(super) fn render(&self, arguments: &ArgumentMap) -> Result<Option<Value>, MissingArgument> {
        render_json(&self.0, arguments)
    }
}

/// Prints only the parameters: the value may be secret, because some services expect their API key in the body.
impl fmt::Debug for JsonTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonTemplate").field("parameters", &self.parameters()).finish()
    }
}

fn check_strings(value: &Value) -> Result<(), TemplateError> {
    match value {
        Value::String(text) => TextTemplate::parse(text).map(|_| ()),
        Value::Array(items) => items.iter().try_for_each(check_strings),
        Value::Object(members) => members.values().try_for_each(check_strings),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn places(template: &Value, names: &mut Vec<String>) {
    match template {
        Value::String(text) => {
            let template = TextTemplate::parse(text);
            names.extend(template.iter().flat_map(TextTemplate::parameters).map(str::to_owned));
        }
        Value::Array(items) => items.iter().for_each(|item| places(item, names)),
        Value::Object(members) => members.values().for_each(|member| places(member, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn render_json(template: &Value, arguments: &ArgumentMap) -> Result<Option<Value>, MissingArgument> {
    match template {
        Value::String(text) => render_string(text, arguments),
        Value::Array(items) => {
            let mut rendered = Vec::with_capacity(items.len());
            for item in items {
                rendered.extend(render_json(item, arguments)?);
            }
            Ok(Some(Value::Array(rendered)))
        }
        Value::Object(members) => {
            let mut rendered = Map::new();
            for (key, member) in members {
                if let Some(value) = render_json(member, arguments)? {
                    rendered.insert(key.clone(), value);
                }
            }
            Ok(Some(Value::Object(rendered)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(Some(template.clone())),
    }
}

fn render_string(text: &str, arguments: &ArgumentMap) -> Result<Option<Value>, MissingArgument> {
    // This parse cannot fail, because `parse` has already checked every string of the template.
    let Ok(template) = TextTemplate::parse(text) else { return Ok(Some(Value::from(text))) };
    match template.whole() {
        Some(name) => Ok(arguments.get(name).cloned()),
        None => template.render(arguments, str::to_owned).map(|text| Some(Value::from(text))),
    }
}

fn given<'a>(arguments: &'a ArgumentMap, name: &str) -> Result<&'a Value, MissingArgument> {
    arguments.get(name).filter(|value| !value.is_null()).ok_or_else(|| MissingArgument(name.to_owned()))
}

/// Returns a value as text: a string without quotes, a list joined by commas, an object as JSON.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(","),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

/// The name of an argument that has a placeholder but is missing from the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MissingArgument(pub(super) String);

/// The reason why a string is not a valid template, as a message for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("the template has a `{OPENS}` without the closing `}}`")]
    Open,
    #[error("the placeholder `{OPENS}}}` contains no parameter name")]
    Unnamed,
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tests pass JSON literals by value")]
mod tests {
    use serde_json::json;

    use super::super::encode;
    use super::*;

    fn arguments(value: Value) -> ArgumentMap {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn template_placeholders_are_replaced_by_encoded_arguments() {
        let given =
            arguments(json!({"city": "São Paulo/x", "n": 3, "on": true, "list": ["a", 1], "no": null}));
        let check = |text: &str, expected: Result<&str, &str>| {
            let found = TextTemplate::parse(text).unwrap().render(&given, encode::strict);
            let expected = expected.map(str::to_owned).map_err(|name| MissingArgument(name.to_owned()));
            assert_eq!(found, expected, "{text}");
        };
        check("", Ok(""));
        check("plain ${VAR} }{", Ok("plain ${VAR} }{"));
        check("/w/${parameters.city}?n=${parameters.n}", Ok("/w/S%C3%A3o%20Paulo%2Fx?n=3"));
        check("${parameters.on}${parameters.list}", Ok("truea%2C1"));
        check("${parameters.gone}", Err("gone"));
        check("${parameters.no}", Err("no"));
    }

    #[test]
    fn json_placeholder_keeps_its_type_and_is_omitted_when_missing() {
        let given = arguments(json!({"n": 3, "tags": ["a"], "name": "x", "no": null}));
        let template = json!({
            "count": "${parameters.n}", "tags": "${parameters.tags}", "text": "n=${parameters.n}",
            "gone": "${parameters.gone}", "list": ["${parameters.gone}", "${parameters.name}"], "k": [1, null],
            "no": "${parameters.no}",
        });
        let expected =
            json!({"count": 3, "tags": ["a"], "text": "n=3", "list": ["x"], "k": [1, null], "no": null});
        let render = |value: Value| JsonTemplate::parse(value).unwrap().render(&given);
        assert_eq!(render(template), Ok(Some(expected)));
        assert_eq!(render(json!({"text": "n=${parameters.gone}"})), Err(MissingArgument("gone".into())));
    }

    #[test]
    fn unclosed_or_unnamed_placeholder_is_rejected() {
        assert_eq!(TextTemplate::parse("${parameters.x"), Err(TemplateError::Open));
        assert_eq!(TextTemplate::parse("${parameters.}"), Err(TemplateError::Unnamed));
        assert_eq!(JsonTemplate::parse(json!({"a": ["${parameters.x"]})), Err(TemplateError::Open));
    }
}

//! The fields of an elicitation request: the question for each, and the parsing of the answers.

use serde_json::{Value, json};

/// The maximum number of fields that a user is asked for.
const FIELDS_MAX: usize = 32;

/// An elicitation request with its fields.
#[derive(Debug, PartialEq)]
pub(super) struct ElicitationForm {
    pub(super) message: String,
    pub(super) fields: Vec<FormField>,
}

#[derive(Debug, PartialEq)]
pub(super) struct FormField {
    pub(super) name: String,
    title: String,
    kind: FormFieldKind,
    default: Option<Value>,
    required: bool,
}

#[derive(Debug, PartialEq)]
enum FormFieldKind {
    Text,
    Number,
    Whole,
    YesOrNo,
    /// The allowed values, in the order of the schema.
    OneOf(Vec<String>),
    SomeOf(Vec<String>),
}

/// The meaning of a line that the user typed.
#[derive(Debug, PartialEq)]
pub(super) enum FormFieldInput {
    Value(Value),
    LeftOut,
    No,
}

impl ElicitationForm {
    /// Parses the request of a server. The error explains why the terminal cannot ask the user for this request.
    pub(super) fn of(request: &Value) -> Result<Self, String> {
        if request["mode"].as_str().is_some_and(|mode| mode != "form") {
            return Err("the request requires a browser, which haft does not open".into());
        }
        let schema = &request["requestedSchema"];
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let properties: Vec<(&String, &Value)> =
            schema["properties"].as_object().into_iter().flatten().collect();
        if properties.len() > FIELDS_MAX {
            return Err(format!("the form has {} fields; the limit is {FIELDS_MAX}", properties.len()));
        }
        let fields = properties.into_iter().map(|(name, schema)| {
            let kind =
                kind(schema).ok_or_else(|| format!("the form field `{name}` has an unsupported type"))?;
            let title =
                ["description", "title"].iter().find_map(|key| schema[key].as_str()).unwrap_or_default();
            let default = schema.get("default").filter(|default| !default.is_null()).cloned();
            let required = required.contains(&name.as_str());
            Ok(FormField { name: name.clone(), title: title.to_owned(), kind, default, required })
        });
        let fields = fields.collect::<Result<_, String>>()?;
        Ok(Self { message: request["message"].as_str().unwrap_or_default().to_owned(), fields })
    }

    /// Returns instructions for the user who answers.
    pub(super) fn how_to_answer(&self) -> &'static str {
        if self.fields.is_empty() {
            "an empty line declines the request"
        } else if self.fields.iter().any(|field| field.default.is_some()) {
            "type an answer, or `-` to skip a field; an empty line takes the default, or declines the request if there is no default; Ctrl-D declines the request"
        } else {
            "type an answer, `-` to skip a field, or an empty line to decline the request"
        }
    }
}

fn kind(schema: &Value) -> Option<FormFieldKind> {
    match (schema["type"].as_str(), choices(schema), choices(&schema["items"])) {
        (Some("string") | None, Some(values), _) => Some(FormFieldKind::OneOf(values)),
        (Some("string"), None, _) => Some(FormFieldKind::Text),
        (Some("number"), _, _) => Some(FormFieldKind::Number),
        (Some("integer"), _, _) => Some(FormFieldKind::Whole),
        (Some("boolean"), _, _) => Some(FormFieldKind::YesOrNo),
        (Some("array"), _, Some(values)) => Some(FormFieldKind::SomeOf(values)),
        (_, _, _) => None,
    }
}

/// Returns the values of `enum`, or the constants of `oneOf` and `anyOf`.
fn choices(schema: &Value) -> Option<Vec<String>> {
    let plain = schema["enum"].as_array().map(|values| values.iter().collect::<Vec<_>>());
    let titled = ["oneOf", "anyOf"].iter().find_map(|key| schema[key].as_array());
    let values =
        plain.or_else(|| titled.map(|values| values.iter().map(|value| &value["const"]).collect()))?;
    values.into_iter().map(|value| value.as_str().map(str::to_owned)).collect()
}

impl FormField {
    /// Creates the field for a request that asks for agreement only.
    pub(super) fn agreement() -> Self {
        let (name, title) = ("agree".to_owned(), String::new());
        Self { name, title, kind: FormFieldKind::YesOrNo, default: None, required: true }
    }

    pub(super) fn question(&self) -> String {
        let title = if self.title.is_empty() { String::new() } else { format!(": {}", self.title) };
        let wanted = match &self.kind {
            FormFieldKind::Text => "text".to_owned(),
            FormFieldKind::Number => "number".to_owned(),
            FormFieldKind::Whole => "whole number".to_owned(),
            FormFieldKind::YesOrNo => "yes or no".to_owned(),
            FormFieldKind::OneOf(values) => format!("one of {}", values.join(", ")),
            FormFieldKind::SomeOf(values) => format!("any of {}, comma-separated", values.join(", ")),
        };
        let default =
            self.default.as_ref().map(|value| format!(", default {}", plain(value))).unwrap_or_default();
        let optional = if self.required { "" } else { ", optional" };
        format!("{}{title} ({wanted}{default}{optional})", self.name)
    }

    /// Parses a line according to the kind of the field. An empty line means the default, if there is one.
    pub(super) fn read(&self, line: &str) -> Result<FormFieldInput, String> {
        match (line, &self.default, self.required) {
            ("", Some(default), _) => return Ok(FormFieldInput::Value(default.clone())),
            ("", None, _) => return Ok(FormFieldInput::No),
            ("-", _, false) => return Ok(FormFieldInput::LeftOut),
            ("-", _, true) => return Err(format!("the field `{}` is required", self.name)),
            (_, _, _) => {}
        }
        self.value(line).map(FormFieldInput::Value)
    }

    fn value(&self, line: &str) -> Result<Value, String> {
        let number = || line.parse::<f64>().ok().filter(|number| number.is_finite());
        match &self.kind {
            FormFieldKind::Text => Ok(line.into()),
            FormFieldKind::Number => {
                number().map(Value::from).ok_or_else(|| format!("expected a number; got `{line}`"))
            }
            FormFieldKind::Whole => line
                .parse::<i64>()
                .map(Value::from)
                .map_err(|_| format!("expected a whole number; got `{line}`")),
            FormFieldKind::YesOrNo => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(true.into()),
                "n" | "no" | "false" => Ok(false.into()),
                _ => Err(format!("expected yes or no; got `{line}`")),
            },
            FormFieldKind::OneOf(values) => chosen(values, line).map(Value::from),
            FormFieldKind::SomeOf(values) => {
                let words = line.split(',').map(str::trim).filter(|word| !word.is_empty());
                words
                    .map(|word| chosen(values, word))
                    .collect::<Result<Vec<_>, _>>()
                    .map(|words| json!(words))
            }
        }
    }
}

fn chosen(values: &[String], word: &str) -> Result<String, String> {
    let found = values.iter().find(|value| *value == word);
    let found = found.or_else(|| values.iter().find(|value| value.eq_ignore_ascii_case(word)));
    found.cloned().ok_or_else(|| format!("expected one of {}; got `{word}`", values.join(", ")))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(schema: &Value, required: &[&str]) -> FormField {
        let request = json!({ "message": "m", "requestedSchema": { "type": "object", "properties": { "f": schema }, "required": required } });
        ElicitationForm::of(&request).unwrap().fields.remove(0)
    }

    #[test]
    fn form_input_is_parsed_by_field_type() {
        let check = |schema: Value, line: &str, expected: Option<Value>| {
            let read = field(&schema, &["f"]).read(line);
            assert_eq!(read.ok(), expected.map(FormFieldInput::Value), "{schema} {line}");
        };
        check(json!({ "type": "string" }), "two words", Some("two words".into()));
        check(json!({ "type": "integer" }), "-7", Some((-7).into()));
        check(json!({ "type": "integer" }), "1.5", None);
        check(json!({ "type": "number" }), "1.5", Some(1.5.into()));
        check(json!({ "type": "number" }), "NaN", None);
        check(json!({ "type": "boolean" }), "Yes", Some(true.into()));
        check(json!({ "type": "boolean" }), "maybe", None);
        check(json!({ "type": "string", "enum": ["red", "blue"] }), "RED", Some("red".into()));
        check(json!({ "type": "string", "enum": ["red", "blue"] }), "green", None);
        check(
            json!({ "type": "string", "oneOf": [{ "const": "r", "title": "Red" }] }),
            "r",
            Some("r".into()),
        );
        check(json!({ "type": "array", "items": { "enum": ["a", "b"] } }), "a, b", Some(json!(["a", "b"])));
        check(json!({ "type": "string", "default": "d" }), "", Some("d".into()));
        check(json!({ "type": "string" }), "-", None);
    }

    #[test]
    fn empty_line_declines_and_dash_skips_optional_field() {
        assert_eq!(field(&json!({ "type": "string" }), &[]).read(""), Ok(FormFieldInput::No));
        assert_eq!(field(&json!({ "type": "string" }), &[]).read("-"), Ok(FormFieldInput::LeftOut));
        let question = field(&json!({ "type": "boolean", "title": "Sure?" }), &[]).question();
        assert_eq!(question, "f: Sure? (yes or no, optional)");
    }

    #[test]
    fn form_instructions_match_the_fields_of_the_form() {
        let check = |properties: Value, expected: &str| {
            let request = json!({ "message": "m", "requestedSchema": { "properties": properties } });
            let told = ElicitationForm::of(&request).unwrap().how_to_answer();
            assert!(told.contains(expected), "{told}");
        };
        check(json!({}), "an empty line declines the request");
        check(json!({ "a": { "type": "string" } }), "or an empty line to decline the request");
        check(json!({ "a": { "type": "string", "default": "d" } }), "takes the default");
        assert_eq!(FormField::agreement().read(""), Ok(FormFieldInput::No));
        assert_eq!(FormField::agreement().read("y"), Ok(FormFieldInput::Value(true.into())));
    }

    #[test]
    fn url_nested_and_oversized_forms_are_rejected() {
        assert!(ElicitationForm::of(&json!({ "mode": "url", "url": "https://h" })).is_err());
        let deep = json!({ "requestedSchema": { "properties": { "a": { "type": "object" } } } });
        assert!(ElicitationForm::of(&deep).is_err());
        let many: serde_json::Map<String, Value> =
            (0..100).map(|number| (format!("f{number}"), json!({ "type": "string" }))).collect();
        assert!(ElicitationForm::of(&json!({ "requestedSchema": { "properties": many } })).is_err());
        assert_eq!(ElicitationForm::of(&json!({ "message": "sure?" })).unwrap().fields, []);
    }
}

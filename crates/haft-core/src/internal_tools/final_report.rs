//! The final report: the tool with which a model ends its run, and the checks on its content.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::report_format::ReportFormat;
use crate::arguments::RawArguments;
use crate::model_request::ModelTool;
use crate::validate::Schema;

/// The tool name that the model calls.
pub const FINAL_REPORT: &str = "agent__final_report";

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    /// The model's own judgement of its success.
    pub status: ReportStatus,
    /// The format of the content, as the agent requires it.
    pub format: ReportFormat,
    /// The answer, already checked against its format and schema.
    pub content: ReportContent,
    /// Metadata, passed through to the caller of the run.
    pub metadata: Map<String, Value>,
}

/// The model's own judgement of its success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportStatus {
    /// The model completed the task.
    Success,
    /// The model could not do the task. The content gives the reason.
    Failure,
    /// A part of the task is done.
    Partial,
}

/// The answer in a report, by the report's format.
#[derive(Debug, Clone, PartialEq)]
pub enum ReportContent {
    /// Text, for every format other than JSON.
    Text(String),
    /// The answer of an agent with JSON output.
    Json(Value),
}

crate::name_table!(ReportStatus { Success: "success", Failure: "failure", Partial: "partial" });

impl ReportContent {
    /// Returns the content as text. JSON is written in its compact form.
    pub fn as_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Json(value) => value.to_string(),
        }
    }
}

/// The required format and schema of a report.
#[derive(Debug, Clone)]
pub struct ReportShape {
    format: ReportFormat,
    schema: Option<OutputSchema>,
}

/// The agent's output schema, compiled once.
#[derive(Debug, Clone)]
struct OutputSchema {
    written: Arc<Value>,
    compiled: Arc<Schema>,
}

/// The arguments of a report call, before the checks.
#[derive(Deserialize)]
struct ReportArguments {
    status: String,
    format: Option<String>,
    content: Option<Value>,
    content_json: Option<Value>,
    metadata: Option<Map<String, Value>>,
}

impl ReportShape {
    /// Creates the shape of a report without a schema.
    pub fn plain(format: ReportFormat) -> Self {
        Self { format, schema: None }
    }

    /// Creates the shape of a JSON report with a schema. Rejects an unusable schema now rather than at the end of a
    /// run.
    pub fn json(schema: Arc<Value>) -> Result<Self, String> {
        let compiled = match Schema::compile(&schema) {
            Schema::Unchecked { reason } => {
                return Err(format!("haft cannot use the output schema: {reason}"));
            }
            compiled @ Schema::Checked(_) => Arc::new(compiled),
        };
        let schema = Some(OutputSchema { written: schema, compiled });
        Ok(Self { format: ReportFormat::Json, schema })
    }

    /// Returns the format that the report must have.
    pub fn format(&self) -> ReportFormat {
        self.format
    }

    /// Returns the JSON Schema of the content as the agent wrote it, or `None` if any content is valid.
    pub fn schema(&self) -> Option<&Arc<Value>> {
        self.schema.as_ref().map(|schema| &schema.written)
    }

    /// Returns the tool definition for the model.
    pub fn tool(&self) -> ModelTool {
        let (field, content) = self.content_field();
        let mut properties = Map::new();
        properties.insert(
            "status".into(),
            json!({"type": "string", "enum": ReportStatus::ALL.map(ReportStatus::name)}),
        );
        properties.insert("format".into(), json!({"type": "string", "const": self.format.name()}));
        properties.insert(field.into(), content);
        properties.insert("metadata".into(), json!({"type": "object"}));
        let schema =
            json!({"type": "object", "properties": properties, "required": ["status", "format", field]});
        let description =
            "Delivers your final answer and ends the run. Call it once, when there is nothing left to do.";
        ModelTool {
            name: FINAL_REPORT.into(),
            description: description.into(),
            input_schema: Arc::new(schema),
            strict: false,
        }
    }

    fn content_field(&self) -> (&'static str, Value) {
        let rule = self.format.rule();
        match (self.format, &self.schema) {
            (ReportFormat::Json, Some(schema)) => ("content_json", (*schema.written).clone()),
            (ReportFormat::Json, None) => ("content_json", json!({"type": "object", "description": rule})),
            (ReportFormat::SlackBlockKit, _) => {
                ("content_json", json!({"type": "array", "items": {"type": "object"}, "description": rule}))
            }
            (
                ReportFormat::Markdown
                | ReportFormat::Tty
                | ReportFormat::Pipe
                | ReportFormat::Text
                | ReportFormat::SubAgent,
                _,
            ) => ("content", json!({"type": "string", "description": rule})),
        }
    }

    /// Parses a call of the tool. The error text is for the model.
    pub fn read(&self, arguments: &RawArguments) -> Result<RunReport, String> {
        let written: ReportArguments = super::read(arguments)?;
        let status = ReportStatus::from_name(&written.status).ok_or_else(|| {
            format!("`status` must be success, failure or partial; got `{}`", excerpt(&written.status))
        })?;
        self.check_format(written.format.as_deref())?;
        let content = match (written.content_json, written.content) {
            (Some(value), _) | (None, Some(value)) => self.content(value)?,
            (None, None) => {
                return Err(format!("the field `{}` of the report is missing", self.content_field().0));
            }
        };
        Ok(RunReport { status, format: self.format, content, metadata: written.metadata.unwrap_or_default() })
    }

    /// Parses a report that the model wrote as plain text. Plain text has no status, so the report gets the status
    /// `success`.
    pub fn read_text(&self, format: Option<&str>, text: &str) -> Result<RunReport, String> {
        self.check_format(format)?;
        let content = self.content(self.fitted(text.trim()).unwrap_or_else(|| text.trim().into()))?;
        Ok(RunReport { status: ReportStatus::Success, format: self.format, content, metadata: Map::new() })
    }

    /// Parses the text as JSON that matches the schema. Drops `null` for an optional property: providers whose strict
    /// schemas have no optional properties send `null` instead of leaving the property out.
    fn fitted(&self, text: &str) -> Option<Value> {
        let schema = self.schema.as_ref()?;
        schema.compiled.fit(serde_json::from_str(unfenced(text)).ok()?, text.len()).ok()
    }

    fn check_format(&self, written: Option<&str>) -> Result<(), String> {
        match written {
            Some(other) if other != self.format.name() => {
                Err(format!("`format` must be `{}`; got `{}`", self.format.name(), excerpt(other)))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn content(&self, value: Value) -> Result<ReportContent, String> {
        if self.format.is_structured() {
            let value = self.parse_fenced_json(value)?;
            self.format.check_json(&value)?;
            self.schema
                .as_ref()
                .map_or(Ok(()), |schema| schema.compiled.check(&value, value.to_string().len()))?;
            return Ok(ReportContent::Json(value));
        }
        let text = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        self.format.check_text(&text)?;
        Ok(ReportContent::Text(text))
    }

    /// Parses JSON that the model sent as a string, often inside a code fence.
    fn parse_fenced_json(&self, value: Value) -> Result<Value, String> {
        match value {
            Value::String(text) => {
                self.format.check_text(&text)?;
                serde_json::from_str(unfenced(&text))
                    .map_err(|error| format!("the report is not JSON: {error}"))
            }
            other => Ok(other),
        }
    }
}

fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    inside.and_then(|inside| inside.split_once('\n')).map_or(text, |(_, body)| body)
}

fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(shape: &ReportShape, arguments: &Value) -> Result<(String, String), String> {
        let report = shape.read(&RawArguments::from_value(arguments))?;
        Ok((report.status.name().into(), report.content.as_text()))
    }

    fn check(shape: &ReportShape, arguments: &Value, expected: Result<(&str, &str), &str>) {
        match (read(shape, arguments), expected) {
            (Ok((status, text)), Ok(expected)) => assert_eq!((status.as_str(), text.as_str()), expected),
            (Err(error), Err(part)) => assert!(error.contains(part), "{arguments}: {error}"),
            (found, expected) => panic!("{arguments}: expected {expected:?}, found {found:?}"),
        }
    }

    fn with_schema() -> ReportShape {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        ReportShape::json(Arc::new(schema)).unwrap()
    }

    #[test]
    fn text_report_needs_status_and_content() {
        let shape = ReportShape::plain(ReportFormat::Markdown);
        check(
            &shape,
            &json!({"status": "success", "format": "markdown", "content": "# A"}),
            Ok(("success", "# A")),
        );
        check(&shape, &json!({"status": "partial", "content": "a"}), Ok(("partial", "a")));
        check(&shape, &json!({"status": "done", "content": "a"}), Err("`status` must be"));
        check(&shape, &json!({"status": "success"}), Err("the field `content` of the report is missing"));
        check(
            &shape,
            &json!({"status": "success", "format": "json", "content": "a"}),
            Err("`format` must be"),
        );
        check(&shape, &json!({"content": "a"}), Err("missing field `status`"));
        check(&shape, &json!({"status": "success", "content": "```\na"}), Err("not closed"));
    }

    #[test]
    fn json_report_must_match_its_schema() {
        let shape = with_schema();
        check(&shape, &json!({"status": "success", "content_json": {"n": 1}}), Ok(("success", r#"{"n":1}"#)));
        check(
            &shape,
            &json!({"status": "success", "content": "```json\n{\"n\": 2}\n```"}),
            Ok(("success", r#"{"n":2}"#)),
        );
        check(&shape, &json!({"status": "success", "content_json": {"n": "1"}}), Err("n"));
        check(&shape, &json!({"status": "success", "content": "{"}), Err("not JSON"));
        check(
            &shape,
            &json!({"status": "success"}),
            Err("the field `content_json` of the report is missing"),
        );
    }

    #[test]
    fn json_report_written_as_text_drops_nulls_of_optional_properties() {
        let schema =
            json!({"type": "object", "properties": {"n": {"type": "integer"}, "unit": {"type": "string"}}});
        let shape = ReportShape::json(Arc::new(schema)).unwrap();
        let read = |text: &str| shape.read_text(None, text).map(|report| report.content.as_text());
        assert_eq!(read(r#"{"n": 1, "unit": null}"#), Ok(r#"{"n":1}"#.into()));
        assert_eq!(read(r#"{"n": 1, "unit": "m"}"#), Ok(r#"{"n":1,"unit":"m"}"#.into()));
        assert!(read(r#"{"n": true}"#).is_err());
    }

    #[test]
    fn truncated_report_is_rejected() {
        let shape = ReportShape::plain(ReportFormat::Text);
        let error = shape
            .read(&RawArguments::from_text(r#"{"status": "success", "content": "half a sen"#))
            .unwrap_err();
        assert!(error.contains("are cut off"), "{error}");
    }

    #[test]
    fn invalid_output_schema_is_rejected_on_construction() {
        let error = ReportShape::json(Arc::new(json!({"type": "no such type"}))).unwrap_err();
        assert!(error.starts_with("haft cannot use the output schema"), "{error}");
    }

    #[test]
    fn report_matching_the_tool_schema_is_accepted_in_every_format() {
        for format in ReportFormat::ALL {
            let shape = ReportShape::plain(format);
            let tool = shape.tool();
            let field = if format.is_structured() { "content_json" } else { "content" };
            assert_eq!(tool.input_schema["required"], json!(["status", "format", field]));
            let content = match format {
                ReportFormat::Json => json!({"a": 1}),
                ReportFormat::SlackBlockKit => json!([{"type": "divider"}]),
                _ => json!("words"),
            };
            let call = json!({"status": "success", "format": format.name(), field: content});
            assert_eq!(
                Schema::compile(&tool.input_schema).check(&call, call.to_string().len()),
                Ok(()),
                "{format:?}"
            );
            assert!(shape.read(&RawArguments::from_value(&call)).is_ok(), "{format:?}");
        }
    }

    #[test]
    fn report_metadata_is_passed_through() {
        let shape = ReportShape::plain(ReportFormat::Text);
        let call = json!({"status": "success", "content": "a", "metadata": {"k": [1]}});
        assert_eq!(shape.read(&RawArguments::from_value(&call)).unwrap().metadata["k"], json!([1]));
    }
}

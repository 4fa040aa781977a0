//! Turns one operation into a tool.

use haft_core::name::{GroupName, ToolName};
use haft_core::tool::{ToolDefinition, ToolFacts};
use http::HeaderValue;
use serde_json::{Value, json};
use url::Url;

use super::super::request::OperationPlan;
use super::super::tool::ExpectedContent;
use super::body::body;
use super::description;
use super::documents::Node;
use super::parameters::{self, parameters};
use super::schema::{Direction, SchemaInliner};
use haft_core::settings::method::Method;

/// The maximum number of content types that are examined in one body or response.
pub(super) const MEDIA_TYPES_MAX: usize = 50;

/// One operation (path and method) of an OpenAPI document.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenApiOperation<'a> {
    pub(super) path: &'a str,
    pub(super) method: Method,
    /// The path item, which all methods of the path share.
    pub(super) item: Node<'a>,
    pub(super) node: Node<'a>,
}

/// A converted operation, without its name and without the parts that all operations of the service share.
#[derive(Debug)]
pub(super) struct ConvertedOperation {
    pub(super) plan: OperationPlan,
    pub(super) description: String,
    pub(super) input_schema: Value,
    pub(super) output_schema: Option<Value>,
    pub(super) expected: ExpectedContent,
}

impl OpenApiOperation<'_> {
    /// Converts the operation into a tool, or returns the reason why it cannot become one.
    pub(super) fn made(&self, base: &Url, schemas: &SchemaInliner) -> Result<ConvertedOperation, String> {
        let mut all = parameters(&self.item, &self.node, schemas)?;
        let path = parameters::path(self.path, &mut all)?;
        let mut properties = parameters::properties(&all);
        let required = all.iter().filter(|described| described.required);
        let mut required: Vec<String> =
            required.map(|described| described.parameter.argument.clone()).collect();
        let body = body(&self.node, schemas, &properties)?;
        let body = body.map(|body| {
            properties.extend(body.properties);
            required.extend(body.required);
            body.plan
        });
        let answer = self.answer(schemas);
        Ok(ConvertedOperation {
            plan: OperationPlan {
                method: self.method,
                base: base.clone(),
                path,
                parameters: all.into_iter().map(|described| described.parameter).collect(),
                body,
                accept: answer.accept,
            },
            description: description::of_operation(
                &format!("{} {}", self.method.name(), self.path),
                self.node.text("summary"),
                self.node.text("description"),
                answer.description,
            ),
            input_schema: json!({
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            }),
            output_schema: answer.schema,
            expected: answer.expected,
        })
    }

    /// Describes the response of a successful call.
    fn answer(&self, schemas: &SchemaInliner) -> OperationResponse<'_> {
        let Some(response) = self.success() else { return OperationResponse::default() };
        let description = response.text("description");
        let Some(content) = response.get("content") else {
            return OperationResponse { description, ..OperationResponse::default() };
        };
        let json = content.members().take(MEDIA_TYPES_MAX).find(|(media_type, _)| is_json(media_type));
        let chosen = json.or_else(|| content.members().next());
        let only_json = content.members().take(MEDIA_TYPES_MAX).all(|(media_type, _)| is_json(media_type));
        OperationResponse {
            description,
            accept: chosen.and_then(|(media_type, _)| HeaderValue::from_str(media_type).ok()),
            schema: json
                .and_then(|(_, media)| media.get("schema"))
                .map(|schema| schemas.whole(&schema, Direction::Response))
                .filter(|schema| schema.as_object().is_some_and(|members| !members.is_empty())),
            expected: if json.is_some() && only_json {
                ExpectedContent::Json
            } else {
                ExpectedContent::Anything
            },
        }
    }

    fn success(&self) -> Option<Node<'_>> {
        let responses = self.node.get("responses")?;
        let exact = ["200", "201", "202", "203", "204", "206", "2XX", "2xx", "default"];
        exact.into_iter().find_map(|status| responses.get(status))
    }
}

#[derive(Default)]
struct OperationResponse<'a> {
    description: Option<&'a str>,
    accept: Option<HeaderValue>,
    schema: Option<Value>,
    expected: ExpectedContent,
}

fn is_json(media_type: &str) -> bool {
    let plain = media_type.split(';').next().unwrap_or_default().trim();
    plain == "application/json" || plain.ends_with("+json")
}

/// Returns the definition for the model.
pub(super) fn definition(name: ToolName, spec: &str, made: &ConvertedOperation) -> ToolDefinition {
    ToolDefinition {
        name,
        description: made.description.clone(),
        input_schema: made.input_schema.clone(),
        output_schema: made.output_schema.clone(),
        effects: made.plan.method.effects(),
        groups: GroupName::new(spec).into_iter().collect(),
        facts: ToolFacts::default(),
        raw: None,
    }
}

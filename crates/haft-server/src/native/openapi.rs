//! The `OpenAPI` document of the native API, built from the list of routes.

use axum::Json;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{NativeReply, NativeRoute, ROUTES};

/// The path prefix of the native API. Paths in the document are relative to it.
const BASE: &str = "/api/v1";

/// `GET /api/v1/openapi.json`: returns the `OpenAPI` document of the native API.
pub(super) async fn show() -> Json<Value> {
    Json(document())
}

/// Builds the `OpenAPI` document of the native API.
fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation(route, &mut generator);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "haft", "version": env!("CARGO_PKG_VERSION")},
        "servers": [{"url": BASE}],
        "security": [{"bearer": []}],
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
        "paths": paths,
    })
}

fn operation(route: &NativeRoute, generator: &mut SchemaGenerator) -> Value {
    let of_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let of_path = of_path
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    let of_query = route.query.iter().map(|(name, kind, description)| {
        json!({"name": name, "in": "query", "description": description, "schema": {"type": kind.name()}})
    });
    let parameters: Vec<Value> = of_path.chain(of_query).collect();
    let status = match route.reply {
        NativeReply::Accepted(_) => "202",
        NativeReply::Json(_) | NativeReply::Other(_) | NativeReply::Events => "200",
    };
    let (media_type, description, schema) = match route.reply {
        NativeReply::Json(schema) | NativeReply::Accepted(schema) => {
            ("application/json", route.summary, schema(generator).to_value())
        }
        NativeReply::Other(description) => ("application/json", description, json!({"type": "object"})),
        NativeReply::Events => ("text/event-stream", route.summary, json!({"type": "string"})),
    };
    let mut operation = json!({
        "summary": route.summary,
        "parameters": parameters,
        "responses": {
            status: {"description": description, "content": {media_type: {"schema": schema}}},
            "default": {"description": "An error, with `error.type`, `error.code` and `error.message`."},
        },
    });
    if let Some(body) = route.body {
        let schema = body(generator).to_value();
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema}}});
    }
    operation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openapi_document_describes_every_route_with_its_parameters() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let described: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(described, ROUTES.len(), "two routes have the same path and method");
        for route in &ROUTES {
            let operation = &document["paths"][route.path][route.method];
            let in_path =
                operation["parameters"].as_array().unwrap().iter().filter(|one| one["in"] == "path");
            assert_eq!(in_path.count(), route.path.matches('{').count(), "{}", route.path);
            assert!(route.summary.ends_with('.'), "{}", route.path);
            let replies = operation["responses"].as_object().unwrap();
            let content = replies.values().filter_map(|reply| reply.get("content")).collect::<Vec<_>>();
            assert!(content.len() == 1 && !content[0].to_string().contains("$ref"), "{content:?}");
        }
        let types = |path: &str| {
            let all = document["paths"][path]["get"]["parameters"].as_array().unwrap().iter();
            let of_query = all.filter(|one| one["in"] == "query");
            of_query.map(|one| one["schema"]["type"].as_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(types("/runs"), ["integer", "integer"]);
        assert_eq!(types("/runs/{id}/outputs/{handle}"), ["integer", "integer", "string"]);
        assert!(document["paths"]["/runs"]["post"]["responses"]["202"].is_object());
        let run = &document["paths"]["/runs/{id}"]["get"]["responses"]["200"]["content"];
        assert!(run["application/json"]["schema"]["properties"]["status"]["oneOf"].is_array(), "{run}");
    }
}

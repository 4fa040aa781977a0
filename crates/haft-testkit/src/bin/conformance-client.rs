//! The client that the official conformance suite drives: lists the tools of the server at its last argument and calls each.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a driver for tests: what fails is to be seen")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::arguments::{ArgumentLimits, Arguments};
use haft_core::event::NoEvents;
use haft_core::glob::ToolGlob;
use haft_core::name::Namespace;
use haft_core::provider::{CallContext, Principal, ToolProvider};
use haft_core::tool::{CallId, ToolDefinition};
use haft_core::validate::Schema;
use haft_tools::mcp::{
    Connect, Elicited, Elicitor, HealthProbe, McpProvider, ParamHeaders, Protocol, Server, ServerConfig,
    Surroundings, Wanted,
};
use serde_json::{Map, Value, json};

/// A person who accepts every default.
struct Defaults;

impl Elicitor for Defaults {
    fn elicit<'a>(&'a self, _: &'a str, request: Value) -> BoxFuture<'a, Elicited> {
        let properties = request["requestedSchema"]["properties"].as_object().cloned().unwrap_or_default();
        let chosen = properties.into_iter().filter_map(|(name, schema)| Some((name, chosen(&schema)?)));
        let content = Value::Object(chosen.collect());
        Box::pin(async move { Elicited::Accepted(content) })
    }
}

fn chosen(schema: &Value) -> Option<Value> {
    schema.get("default").cloned()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let url = std::env::args().next_back().unwrap();
    let context: Value = std::env::var("MCP_CONFORMANCE_CONTEXT")
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let config = ServerConfig {
        name: "conformance".into(),
        namespace: Namespace::new("conformance").unwrap(),
        connect: Connect::Remote { url: url.parse().unwrap(), headers: Vec::new(), protocol: Protocol::Http },
        request_timeout: Duration::from_secs(20),
        startup_timeout: Duration::from_secs(20),
        health_probe: HealthProbe::Ping,
        wanted: Wanted {
            allowed: vec![ToolGlob::new("*").unwrap()],
            param_headers: ParamHeaders::Sent,
            ..Wanted::default()
        },
        digest: String::new(),
    };
    let around = Surroundings { elicitor: Some(Arc::new(Defaults)), ..Surroundings::default() };
    let server = Arc::new(Server::new(config, &around));
    if let Err(error) = server.start().await {
        eprintln!("{error}");
        std::process::exit(1);
    }
    let provider = McpProvider::new(server);
    for tool in provider.tools().iter() {
        call(&provider, tool, &context).await;
    }
    provider.shutdown().await;
}

async fn call(provider: &McpProvider, tool: &ToolDefinition, context: &Value) {
    for arguments in arguments_for(tool, context) {
        // The suite also sends what a schema would refuse: it is the protocol that is looked at here.
        let any = Schema::compile(&json!({ "type": "object" }));
        let parsed = Arguments::from_text(arguments.to_string()).parse(&ArgumentLimits::default());
        let Some(valid) = parsed.ok().and_then(|parsed| any.validate(parsed).ok()) else { continue };
        let cx = CallContext::new(CallId("1".into()), Principal::local(), None, Arc::new(NoEvents));
        match provider.call(&tool.name, &valid, &cx).await {
            Ok(output) => eprintln!("{}: {}", tool.name, output.as_text()),
            Err(error) => eprintln!("{}: {error}", tool.name),
        }
    }
}

/// What the suite wants called, else arguments made up from the schema.
fn arguments_for(tool: &ToolDefinition, context: &Value) -> Vec<Value> {
    let calls = context["toolCalls"].as_array().or_else(|| context["tool_calls"].as_array());
    let wanted: Vec<Value> = calls
        .into_iter()
        .flatten()
        .filter(|call| call["name"] == tool.name.as_str())
        .map(|call| call["arguments"].clone())
        .collect();
    if wanted.is_empty() { vec![made_up(&tool.input_schema)] } else { wanted }
}

fn made_up(schema: &Value) -> Value {
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let filled: Map<String, Value> =
        properties.into_iter().map(|(name, property)| (name, sample(&property))).collect();
    Value::Object(filled)
}

fn sample(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("number" | "integer") => json!(5),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => made_up(schema),
        Some(_) | None => json!("text"),
    }
}

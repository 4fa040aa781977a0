//! The client that the official MCP conformance suite runs. It lists the tools of the server whose address is its last
//! argument, and calls each tool.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "this program is a test driver, and its failures must be visible"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::arguments::{ArgumentLimits, RawArguments};
use haft_core::event::NoEvents;
use haft_core::glob::ToolGlob;
use haft_core::name::Namespace;
use haft_core::provider::{CallContext, ToolProvider};
use haft_core::run::context::RunContext;
use haft_core::tool::{CallId, ToolDefinition};
use haft_core::validate::Schema;
use haft_tools::mcp::{
    Authorizer, ConnectTarget, ElicitationAnswer, ElicitationSupport, Elicitor, HealthProbe,
    IdentityProvider, McpEnvironment, McpProvider, OauthConfig, OauthConsent, OauthGrantConfig, ParamHeaders,
    PreregisteredClient, RemoteTransport, ServerConfig, SigningKey, SupervisedServer, TokenFile,
    ToolSelection,
};
use serde_json::{Map, Value, json};
use url::Url;

/// A simulated user who accepts every default.
struct DefaultsElicitor;

impl Elicitor for DefaultsElicitor {
    fn elicit<'a>(&'a self, _: &'a str, request: Value) -> BoxFuture<'a, ElicitationAnswer> {
        let properties = request["requestedSchema"]["properties"].as_object().cloned().unwrap_or_default();
        let chosen = properties.into_iter().filter_map(|(name, schema)| Some((name, chosen(&schema)?)));
        let content = Value::Object(chosen.collect());
        Box::pin(async move { ElicitationAnswer::Accepted(content) })
    }
}

/// The URL at which the suite publishes the metadata document of the client.
const CLIENT_METADATA: &str = "https://conformance-test.local/client-metadata.json";

/// A simulated user who consents to the login: the suite answers the first request with the final redirect.
struct ConsentingBrowser;

impl OauthConsent for ConsentingBrowser {
    fn redirect_uri(&self) -> String {
        "http://localhost:3000/callback".into()
    }

    fn ask<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Url, String>> {
        Box::pin(async move {
            let straight = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
            let straight = straight.build().map_err(|error| error.to_string())?;
            let answer = straight.get(url.clone()).send().await.map_err(|error| error.to_string())?;
            let back = answer.headers().get("location").and_then(|value| value.to_str().ok());
            back.and_then(|back| url.join(back).ok())
                .ok_or_else(|| "the authorization server sent no redirect".into())
        })
    }
}

fn authorizer(url: &Url, context: &Value, directory: &Path) -> Authorizer {
    let text = |name: &str| context[name].as_str().map(str::to_owned);
    let key = text("private_key_pem").map(|pem| Arc::new(SigningKey::of_pem(&pem).unwrap()));
    let oauth = OauthConfig {
        issuer: None,
        client: text("client_id").map(|id| PreregisteredClient {
            id,
            secret: text("client_secret").map(Into::into),
            key,
        }),
        client_metadata_url: CLIENT_METADATA.parse().ok(),
        scopes: Vec::new(),
        grant: grant(&text, directory),
    };
    let file = TokenFile::new(directory, "conformance", url);
    Authorizer::new("conformance", url, oauth, file, Some(Arc::new(ConsentingBrowser))).unwrap()
}

/// Chooses the grant of the scenario. If the suite passes a token in its context, writes the token to a file, as a
/// platform such as Kubernetes would do.
fn grant(text: &dyn Fn(&str) -> Option<String>, directory: &Path) -> OauthGrantConfig {
    let file = |token: String| {
        let path = directory.join("assertion");
        std::fs::write(&path, token).unwrap();
        path
    };
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    match scenario.trim_start_matches("auth/") {
        "client-credentials-basic" | "client-credentials-jwt" => OauthGrantConfig::ClientCredentials,
        "wif-jwt-bearer" => OauthGrantConfig::JwtBearer { assertion: file(text("valid_jwt").unwrap()) },
        "enterprise-managed-authorization" => OauthGrantConfig::Enterprise {
            id_token: file(text("idp_id_token").unwrap()),
            provider: IdentityProvider {
                issuer: text("idp_issuer").unwrap(),
                client: PreregisteredClient { id: text("idp_client_id").unwrap(), secret: None, key: None },
            },
        },
        _ => OauthGrantConfig::Person,
    }
}

fn chosen(schema: &Value) -> Option<Value> {
    schema.get("default").cloned()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let url: Url = std::env::args().next_back().unwrap().parse().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let context: Value = std::env::var("MCP_CONFORMANCE_CONTEXT")
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let config = ServerConfig {
        name: "conformance".into(),
        namespace: Namespace::new("conformance").unwrap(),
        connect: ConnectTarget::Remote {
            auth: Some(Arc::new(authorizer(&url, &context, directory.path()))),
            url,
            headers: Vec::new(),
            protocol: RemoteTransport::Http,
            guard: None,
        },
        request_timeout: Duration::from_secs(20),
        startup_timeout: Duration::from_secs(20),
        health_probe: HealthProbe::Ping,
        wanted: ToolSelection {
            allowed: vec![ToolGlob::new("*").unwrap()],
            param_headers: ParamHeaders::Sent,
            ..ToolSelection::default()
        },
        roots: Vec::new(),
        sampling: None,
        secrets: Vec::new(),
        digest: String::new(),
    };
    let environment =
        McpEnvironment { elicitation: ElicitationSupport::Offered, ..McpEnvironment::default() };
    let server = Arc::new(SupervisedServer::new(config, &environment));
    if let Err(error) = server.start().await {
        eprintln!("{error}");
        std::process::exit(1);
    }
    let provider = McpProvider::new(server);
    let run = Arc::new(RunContext { elicitor: Some(Arc::new(DefaultsElicitor)), ..RunContext::default() });
    let tools = provider.tools();
    for tool in tools.iter() {
        call(&provider, &run, tool, arguments_for(tool, &tools, &context)).await;
    }
    provider.shutdown().await;
}

async fn call(provider: &McpProvider, run: &Arc<RunContext>, tool: &ToolDefinition, calls: Vec<Value>) {
    for arguments in calls {
        // The suite also sends arguments that the tool's schema would reject, because it tests the protocol, not the
        // schema.
        let any = Schema::compile(&json!({ "type": "object" }));
        let parsed = RawArguments::from_text(arguments.to_string()).parse(&ArgumentLimits::default());
        let Some(valid) = parsed.ok().and_then(|parsed| any.validate(parsed).ok()) else { continue };
        let cx = CallContext::new(CallId("1".into()), Arc::clone(run), None, Arc::new(NoEvents));
        match provider.call(&tool.name, &valid, &cx).await {
            Ok(output) => eprintln!("{}: {}", tool.name, output.as_text()),
            Err(error) => eprintln!("{}: {error}", tool.name),
        }
    }
}

/// The tool to which the client passes the schema of another tool, so that the suite can check the received schema.
const SCHEMA_ECHO: &str = "json_schema_echo";

/// Returns the arguments that the suite requires, or else arguments generated from the schema.
fn arguments_for(tool: &ToolDefinition, tools: &[ToolDefinition], context: &Value) -> Vec<Value> {
    if tool.name.as_str() == SCHEMA_ECHO {
        let others = tools.iter().filter(|other| other.name != tool.name);
        return others.map(|other| json!({"schema": other.input_schema})).collect();
    }
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

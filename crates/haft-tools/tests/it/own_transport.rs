//! Tests of an MCP server over a custom transport.
#![allow(clippy::unwrap_used, reason = "a failed helper must fail the test")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::arguments::{ArgumentLimits, RawArguments};
use haft_core::event::NoEvents;
use haft_core::glob::ToolGlob;
use haft_core::name::{Namespace, ToolName};
use haft_core::provider::{CallContext, ToolProvider};
use haft_core::tool::CallId;
use haft_core::validate::Schema;
use haft_tools::mcp::{
    ConnectTarget, ForgetOutcome, HealthProbe, Inbox, McpEnvironment, McpOutgoingMessage, McpProvider,
    RequestId, ServerConfig, SupervisedServer, ToolSelection, Transport, TransportFailure, TransportOpener,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// A server in the same process that answers every message at once.
struct InProcessOpener;

impl TransportOpener for InProcessOpener {
    fn name(&self) -> &'static str {
        "in-process"
    }

    fn open(&self, inbox: Arc<dyn Inbox>) -> BoxFuture<'_, Result<Arc<dyn Transport>, TransportFailure>> {
        Box::pin(async { Ok(Arc::new(EchoTransport(inbox)) as Arc<dyn Transport>) })
    }
}

struct EchoTransport(Arc<dyn Inbox>);

impl Transport for EchoTransport {
    fn send(&self, message: McpOutgoingMessage) -> Result<(), TransportFailure> {
        let Some(id) = message.id else { return Ok(()) };
        let asked: Value = serde_json::from_str(&message.text).unwrap();
        let result = match &*message.method {
            "server/discover" => {
                json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } })
            }
            "tools/list" => json!({ "tools": [{ "name": "shout" }] }),
            _ => {
                let words = asked["params"]["arguments"]["words"].as_str().unwrap().to_uppercase();
                json!({ "content": [{ "type": "text", "text": words }] })
            }
        };
        self.0.received(&json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string(), Some(id));
        Ok(())
    }

    fn forget(&self, _: RequestId) -> ForgetOutcome {
        ForgetOutcome::NeedsCancellation
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.0.closed(TransportFailure::Closed("closed".into())) })
    }
}

/// A server whose connection opens only when the test permits it.
struct GatedOpener(Semaphore);

impl TransportOpener for GatedOpener {
    fn name(&self) -> &'static str {
        "gated"
    }

    fn open(&self, inbox: Arc<dyn Inbox>) -> BoxFuture<'_, Result<Arc<dyn Transport>, TransportFailure>> {
        Box::pin(async {
            self.0.acquire().await.unwrap().forget();
            Ok(Arc::new(EchoTransport(inbox)) as Arc<dyn Transport>)
        })
    }
}

fn config(opener: Arc<dyn TransportOpener>) -> ServerConfig {
    ServerConfig {
        name: "mine".into(),
        namespace: Namespace::new("mine").unwrap(),
        connect: ConnectTarget::Own(opener),
        request_timeout: Duration::from_secs(20),
        startup_timeout: Duration::from_secs(20),
        health_probe: HealthProbe::Ping,
        wanted: ToolSelection { allowed: vec![ToolGlob::new("*").unwrap()], ..ToolSelection::default() },
        roots: Vec::new(),
        sampling: None,
        secrets: Vec::new(),
        digest: String::new(),
    }
}

#[tokio::test]
async fn custom_mcp_transport_serves_tool_calls() {
    let server =
        Arc::new(SupervisedServer::new(config(Arc::new(InProcessOpener)), &McpEnvironment::default()));
    server.start().await.unwrap();
    assert_eq!(server.status().transport, Some("in-process"));
    let provider = McpProvider::new(server);
    let parsed =
        RawArguments::from_text(r#"{"words": "so it is"}"#).parse(&ArgumentLimits::default()).unwrap();
    let arguments = Schema::compile(&json!({ "type": "object" })).validate(parsed).unwrap();
    let cx = CallContext::new(CallId("1".into()), Arc::default(), None, Arc::new(NoEvents));
    let output = provider.call(&ToolName::new("shout").unwrap(), &arguments, &cx).await.unwrap();
    assert_eq!(output.as_text(), "SO IT IS");
    provider.shutdown().await;
}

#[tokio::test]
async fn slow_server_offers_its_tools_when_it_is_ready() {
    let gated = Arc::new(GatedOpener(Semaphore::new(0)));
    let server = Arc::new(SupervisedServer::new(config(Arc::clone(&gated) as _), &McpEnvironment::default()));
    let run = McpProvider::new(Arc::clone(&server)).waiting_at_most(Duration::from_millis(1));
    let late = run.warmup().await.unwrap_err();
    assert_eq!(
        late.message,
        "MCP server `mine` is still starting after 1 ms; its tools will be available later"
    );
    assert!(run.tools().is_empty() && run.is_late());
    gated.0.add_permits(1);
    server.start().await.unwrap();
    assert!(run.tools().len() == 1 && !run.is_late());
    let next = McpProvider::new(server).waiting_at_most(Duration::from_millis(1));
    next.warmup().await.unwrap();
    assert_eq!(next.tools().len(), 1);
}

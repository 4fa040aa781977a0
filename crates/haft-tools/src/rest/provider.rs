//! The provider of all HTTP tools.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::digest::Digest;
use haft_core::duration_text;
use haft_core::event::CallProgress;
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::ToolDefinition;
use haft_core::validate::ValidArguments;
use secrecy::ExposeSecret;
use serde_json::json;

use super::client::{broken, media_type};
use super::credential::{Credential, add_header};
use super::redact;
use super::request::{self, RestRequest};
use super::response::{RestResponse, output};
use super::stream::StreamReader;
use super::tool::RestTool;
use haft_core::redact::SecretRedactor;
use haft_core::settings::rest::StreamSettings;

/// The provider of all HTTP tools.
pub struct RestTools {
    namespace: Namespace,
    definitions: Arc<[ToolDefinition]>,
    tools: HashMap<ToolName, RestTool>,
}

/// The namespace of these tools in exposed names.
const NAMESPACE: &str = "rest";

/// The maximum size of a response body after decompression, in bytes.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

impl RestTools {
    /// Creates the provider. Tool names must be unique: of two equal names, only the last tool could be called.
    pub fn new(mut tools: Vec<RestTool>) -> Self {
        for tool in &mut tools {
            tool.definition.facts.host = Some(tool.plan.host().into());
        }
        let definitions = tools.iter().map(|tool| tool.definition.clone()).collect();
        let tools = tools.into_iter().map(|tool| (tool.definition.name.clone(), tool)).collect();
        Self { namespace: Namespace::sanitize(NAMESPACE), definitions, tools }
    }

    async fn perform(
        &self,
        tool: &ToolName,
        arguments: &ValidArguments,
        cx: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        let unknown = || ToolError::new(ToolErrorKind::UnknownTool, format!("there is no tool `{tool}`"));
        let tool = self.tools.get(tool).ok_or_else(unknown)?;
        let plain = request::build(tool, arguments.value())?;
        let (sent, response) = send(tool, &plain).await?;
        let secrets = tool.used_credentials().filter_map(Credential::secret);
        let withheld = redact::of(&sent, secrets);
        let status = response.status().as_u16();
        cx.note("http_status", json!(status));
        match &tool.streaming {
            Some(streaming) if response.status().is_success() => {
                stream(response, streaming, &withheld, cx).await
            }
            Some(_) | None => {
                let (media_type, bytes) = tool.service.client.whole(response, ANSWER_BYTES_MAX).await?;
                output(
                    RestResponse { status, media_type, bytes: withheld.redact_bytes(bytes) },
                    tool.expected,
                )
            }
        }
    }
}

/// Sends a request with its credentials. If the server answers 401 and the token can be renewed, sends the request once
/// more with a new token.
async fn send(tool: &RestTool, plain: &RestRequest) -> Result<(RestRequest, reqwest::Response), ToolError> {
    let sent = completed(tool, plain).await?;
    let response = tool.service.client.send(&sent).await?;
    if response.status() != http::StatusCode::UNAUTHORIZED || !forget_token(tool, &sent).await {
        return Ok((sent, response));
    }
    let sent = completed(tool, plain).await?;
    let response = tool.service.client.send(&sent).await?;
    Ok((sent, response))
}

/// Returns the request with the service's headers and the tool's credentials added.
async fn completed(tool: &RestTool, plain: &RestRequest) -> Result<RestRequest, ToolError> {
    let mut request = plain.clone();
    for (name, value) in &tool.service.headers {
        add_header(&mut request, name.clone(), value.expose_secret())?;
    }
    for credential in tool.used_credentials() {
        credential.add_to(&mut request).await?;
    }
    Ok(request)
}

/// Removes the refused token from the cache. Returns true if the tool can request a new token.
async fn forget_token(tool: &RestTool, refused: &RestRequest) -> bool {
    let mut found = false;
    for credential in tool.used_credentials() {
        match credential {
            Credential::ClientCredentials(credentials) => {
                credentials.forget(refused).await;
                found = true;
            }
            Credential::Key { .. } | Credential::Basic { .. } | Credential::Bearer(_) => {}
        }
    }
    found
}

async fn stream(
    mut response: reqwest::Response,
    streaming: &StreamSettings,
    withheld: &SecretRedactor,
    cx: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let found = media_type(&response);
    let mut reader = StreamReader::new(streaming);
    let mut shown = withheld.redact_stream();
    let report = |text: String| {
        if !text.is_empty() {
            cx.progress(CallProgress::Output(text));
        }
    };
    let all = async {
        while let Some(piece) = response.chunk().await.map_err(broken)? {
            let added = reader.push(&piece).map_err(|_| too_much(streaming))?;
            report(shown.push(&added));
            if reader.is_done() {
                break;
            }
        }
        Ok(())
    };
    let ended = tokio::time::timeout(streaming.timeout, all).await;
    ended.unwrap_or_else(|_| Err(too_long(streaming)))?;
    report(shown.end());
    let answer = withheld.redact(reader.finish());
    if answer.is_empty() {
        let found = found.unwrap_or_else(|| "no media type".into());
        let message = format!(
            "the response stream ({found}) contained no answer; check the `streaming` fields of the tool"
        );
        return Err(ToolError::new(ToolErrorKind::Failed, message));
    }
    Ok(ToolOutput::text(answer))
}

fn too_much(streaming: &StreamSettings) -> ToolError {
    let message = format!("the response stream is longer than {} bytes", streaming.bytes_max);
    ToolError::new(ToolErrorKind::Failed, message)
}

fn too_long(streaming: &StreamSettings) -> ToolError {
    let message =
        format!("the response stream did not end within {}", duration_text::in_words(streaming.timeout));
    ToolError::new(ToolErrorKind::Timeout, message)
}

/// Returns the digest of a request and of the headers and credentials that are added when it is sent. The request
/// contains the operator's URL and body, so the digest changes with them too.
fn digest_of(tool: &RestTool, request: &RestRequest) -> Digest {
    let RestRequest { method, url, headers, body } = request;
    let mut parts: Vec<&[u8]> = vec![method.name().as_bytes(), url.as_str().as_bytes()];
    for (name, value) in headers {
        parts.extend([name.as_str().as_bytes(), value.as_bytes()]);
    }
    if let Some(body) = body {
        parts.extend([body.media_type.as_bytes(), &body.bytes]);
    }
    for (name, value) in &tool.service.headers {
        parts.extend([name.as_str().as_bytes(), value.expose_secret().as_bytes()]);
    }
    for credential in tool.used_credentials() {
        parts.extend(credential.identity().map(str::as_bytes));
    }
    Digest::of_parts(parts)
}

impl ToolProvider for RestTools {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Rest
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        self.definitions.clone()
    }

    fn source_digest(&self, tool: &ToolName, arguments: &ValidArguments) -> Option<Digest> {
        let tool = self.tools.get(tool)?;
        request::build(tool, arguments.value()).ok().map(|request| digest_of(tool, &request))
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(self.perform(tool, arguments, cx))
    }
}

impl fmt::Debug for RestTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestTools").field("tools", &self.definitions.len()).finish_non_exhaustive()
    }
}

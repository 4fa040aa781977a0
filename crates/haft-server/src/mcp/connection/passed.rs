//! Passes requests about single resources and prompts to the upstream server that has them.

use std::sync::{Arc, Mutex, PoisonError};

use haft_core::approval::ApprovalId;
use haft_core::arguments::RawArguments;
use haft_core::event::CallProgress;
use haft_core::output::{OutputContent, ToolOutput};
use haft_core::result::{ProtocolError, ToolError, ToolErrorKind};
use haft_core::tool::{CallId, ToolCall};
use haft_engine::{CallOptions, RunContext};
use haft_tools::mcp::{PassedMethod, PassedRequest, URL_REQUIRED};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::calls::{RequestedNotices, new_call_id};
use super::lists::{read_stored, unknown_resource};
use super::opened::OpenedClient;
use super::rounds::{RequestRound, RoundParams};
use super::user_step::{StepOutcome, UserStep};
use super::{ClientConnection, LIST_TTL_MS};
use crate::mcp::address::{AddressOwner, stored_handle};
use crate::mcp::era::RequestEra;
use crate::mcp::message::{
    self, ClientRequest, GatewayError, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND,
};
use crate::mcp::object::RawObject;
use crate::mcp::older_content::ContentPlace;
use crate::mcp::passed_methods::ContentMethod;
use crate::mcp::questions::SingleCallQuestions;
use crate::mcp::result::with_era;
use crate::mcp::rewrite;
use crate::mcp::upstream::{UpstreamList, UpstreamRefusal, UpstreamServers, among};

/// The subject of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PassedSubject {
    Resource { uri: String },
    Subscription { uri: String, method: PassedMethod },
    Prompt { name: String, arguments: Option<String> },
    Completion { reference: CompletionReference, rest: String },
}

/// The prompt or resource template whose argument is completed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CompletionReference {
    Prompt(String),
    Template(String),
}

impl PassedSubject {
    fn read(method: &str, params: Option<&RawValue>) -> Result<Self, GatewayError> {
        #[derive(Deserialize)]
        struct UriParams {
            uri: String,
        }
        #[derive(Deserialize)]
        struct PromptParams {
            name: String,
            arguments: Option<Box<RawValue>>,
        }
        let uri = || message::params::<UriParams>(params).map(|params| params.uri);
        match method {
            "resources/read" => Ok(Self::Resource { uri: uri()? }),
            "resources/subscribe" => Ok(Self::Subscription { uri: uri()?, method: PassedMethod::Subscribe }),
            "resources/unsubscribe" => {
                Ok(Self::Subscription { uri: uri()?, method: PassedMethod::Unsubscribe })
            }
            "prompts/get" => {
                let PromptParams { name, arguments } = message::params(params)?;
                Ok(Self::Prompt { name, arguments: arguments.map(|raw| raw.get().to_owned()) })
            }
            _ => Self::completion(params),
        }
    }

    fn completion(params: Option<&RawValue>) -> Result<Self, GatewayError> {
        #[derive(Deserialize)]
        struct CompletionParams {
            #[serde(rename = "ref")]
            reference: Reference,
            argument: Box<RawValue>,
            context: Option<Box<RawValue>>,
        }
        #[derive(Deserialize)]
        #[serde(tag = "type")]
        enum Reference {
            #[serde(rename = "ref/prompt")]
            Prompt { name: String },
            #[serde(rename = "ref/resource")]
            Resource { uri: String },
        }
        let CompletionParams { reference, argument, context } = message::params(params)?;
        let reference = match reference {
            Reference::Prompt { name } => CompletionReference::Prompt(name),
            Reference::Resource { uri } => CompletionReference::Template(uri),
        };
        let context = context.map(|context| format!(",\"context\":{}", context.get())).unwrap_or_default();
        Ok(Self::Completion { reference, rest: format!("\"argument\":{}{context}", argument.get()) })
    }

    /// Returns the text that identifies the subject, for the digest of a repeated request.
    fn identity(&self) -> (&str, &str) {
        match self {
            Self::Resource { uri } | Self::Subscription { uri, .. } => (uri, ""),
            Self::Prompt { name, arguments } => (name, arguments.as_deref().unwrap_or_default()),
            Self::Completion { reference, rest } => match reference {
                CompletionReference::Prompt(name) | CompletionReference::Template(name) => (name, rest),
            },
        }
    }
}

/// The maximum size of a result that reads content, in bytes.
const CONTENT_BYTES_MAX: usize = 16 << 20;

/// A request to the server that has the subject.
#[derive(Debug)]
struct ServerRequest {
    server: usize,
    method: PassedMethod,
    /// The name or URI that the server uses.
    own: String,
    /// The members of `params`, without braces.
    fields: String,
}

impl ServerRequest {
    /// Returns the method by whose name rules decide; `None` for a request that reads no content.
    fn content_method(&self) -> Option<ContentMethod> {
        match self.method {
            PassedMethod::ReadResource => Some(ContentMethod::ReadResource),
            PassedMethod::GetPrompt => Some(ContentMethod::GetPrompt),
            PassedMethod::Complete => Some(ContentMethod::Complete),
            PassedMethod::Subscribe
            | PassedMethod::Unsubscribe
            | PassedMethod::ListResources
            | PassedMethod::ListTemplates
            | PassedMethod::ListPrompts => None,
        }
    }

    /// Returns the result for the client, with the URIs that the client knows.
    fn result(&self, sent: String, opened: &OpenedClient) -> String {
        let addresses = &opened.shared.upstreams.addresses;
        let uri = |own: &str| addresses.uri(self.server, own);
        match self.method {
            PassedMethod::ReadResource if addresses.is_bare() => cacheable(&sent),
            PassedMethod::ReadResource => {
                let rewritten = rewrite::read_result(&sent, &uri);
                drop(sent);
                cacheable(&rewritten)
            }
            PassedMethod::GetPrompt if !addresses.is_bare() => rewrite::prompt_result(&sent, &uri),
            PassedMethod::GetPrompt
            | PassedMethod::Complete
            | PassedMethod::Subscribe
            | PassedMethod::Unsubscribe
            | PassedMethod::ListResources
            | PassedMethod::ListTemplates
            | PassedMethod::ListPrompts => sent,
        }
    }
}

/// Converts an error to the form in the usage records.
fn as_tool_error(error: &GatewayError) -> ToolError {
    let GatewayError { code, message, data } = error.clone();
    let protocol = ProtocolError { code, message: message.clone(), data };
    ToolError::new(ToolErrorKind::Failed, message).with_protocol(Some(protocol))
}

/// A request of a client, with the way to ask its user.
struct PassedCall {
    id: String,
    /// The id that the client gave the request.
    request: Box<RawValue>,
    era: RequestEra,
    asker: Arc<SingleCallQuestions>,
}

impl ClientConnection {
    pub(super) async fn begin_passed(
        self: &Arc<Self>,
        request: ClientRequest,
        era: RequestEra,
        notices: RequestedNotices,
    ) {
        let params = request.params.as_deref();
        let read = PassedSubject::read(&request.method, params)
            .and_then(|subject| Ok((subject, RoundParams::read(params, era)?, self.open_for(era)?)));
        let (subject, params, opened) = match read {
            Ok(read) => read,
            Err(error) => return self.fail(Some(&request.id), &error).await,
        };
        let connection = Arc::clone(self);
        self.start(request, move |request| async move {
            let call = new_call_id();
            let (name, rest) = subject.identity();
            let approval = ApprovalId::of_call(opened.shared.place, &CallId(call.clone()));
            let round = RequestRound {
                id: request.id.clone(),
                era,
                digest: connection.request_digest([&request.method, name, rest]),
                params,
                approval: Some(approval),
                notices,
                watched: connection.notices.watch(&call),
            };
            let asker = Arc::new(connection.questions.with_call(approval));
            let passed = PassedCall { id: call, request: request.id.clone(), era, asker };
            let work = Arc::clone(&connection).pass(Arc::clone(&opened), subject, passed);
            let outcome = Box::pin(connection.in_rounds(&opened, round, work)).await;
            (request, outcome)
        })
        .await;
    }

    async fn pass(
        self: Arc<Self>,
        opened: Arc<OpenedClient>,
        subject: PassedSubject,
        call: PassedCall,
    ) -> Result<String, GatewayError> {
        match self.answer(&opened, subject, &call).await {
            Ok(result) => {
                let _turn = self.out.conversion_turn(result.len()).await;
                Ok(with_era(result, call.era))
            }
            Err(error) => Err(in_era(error, call.era)),
        }
    }

    async fn answer(
        self: &Arc<Self>,
        opened: &Arc<OpenedClient>,
        subject: PassedSubject,
        call: &PassedCall,
    ) -> Result<String, GatewayError> {
        let request = match subject {
            PassedSubject::Resource { uri } if stored_handle(&uri).is_some() => {
                return read_own_output(opened, &uri, call).await.map(|result| cacheable(&result));
            }
            PassedSubject::Subscription { uri, method } => {
                return self.subscribe(opened, uri, method, call).await;
            }
            PassedSubject::Resource { uri } => self.resource_request(opened, &uri).await?,
            PassedSubject::Prompt { name, arguments } => {
                self.prompt_request(opened, &name, arguments.as_deref()).await?
            }
            PassedSubject::Completion { reference, rest } => {
                self.completion_request(opened, reference, &rest).await?
            }
        };
        let request = Arc::new(request);
        match self.ask(opened, &request, call).await {
            Ok(sent) => {
                let _turn = self.out.conversion_turn(sent.len()).await;
                let result = request.result(sent, opened);
                if request.method == PassedMethod::GetPrompt {
                    return Ok(self.known_content(result, ContentPlace::Prompt));
                }
                Ok(result)
            }
            // A server without completions has no suggestions.
            Err(error) if request.method == PassedMethod::Complete && error.code == METHOD_NOT_FOUND => {
                Ok(r#"{"completion":{"values":[],"hasMore":false}}"#.into())
            }
            Err(error) => Err(error),
        }
    }

    async fn resource_request(
        &self,
        opened: &OpenedClient,
        uri: &str,
    ) -> Result<ServerRequest, GatewayError> {
        let (server, own) = self.uri_owner(opened, uri).await.ok_or_else(|| unknown_resource(uri))?;
        let fields = format!("\"uri\":{}", Value::from(own.as_str()));
        Ok(ServerRequest { server, method: PassedMethod::ReadResource, own, fields })
    }

    async fn subscribe(
        self: &Arc<Self>,
        opened: &Arc<OpenedClient>,
        uri: String,
        method: PassedMethod,
        call: &PassedCall,
    ) -> Result<String, GatewayError> {
        let owner = match stored_handle(&uri) {
            Some(_) => None,
            None => Some(self.uri_owner(opened, &uri).await.ok_or_else(|| unknown_resource(&uri))?),
        };
        let is_subscription = method == PassedMethod::Subscribe;
        // Add the URI before the server is asked. Otherwise the end of another request would stop the watch.
        let is_new = is_subscription && opened.add_watched_uri(&uri)?;
        let asked = match owner {
            None => Ok(()),
            Some((server, own)) => {
                let fields = format!("\"uri\":{}", Value::from(own.as_str()));
                if is_subscription {
                    opened.watch_resource(&uri, (server, &own));
                }
                let request = Arc::new(ServerRequest { server, method, own, fields });
                self.ask(opened, &request, call).await.map(drop)
            }
        };
        let is_watched = if is_subscription { asked.is_ok() || !is_new } else { asked.is_err() };
        if !is_watched {
            opened.watched_uris().remove(&uri);
            opened.release_watches();
        }
        asked.map(|()| "{}".into())
    }

    async fn prompt_request(
        &self,
        opened: &OpenedClient,
        name: &str,
        arguments: Option<&str>,
    ) -> Result<ServerRequest, GatewayError> {
        let (server, own) = self.prompt_owner(opened, name).await?;
        let arguments = arguments.map(|raw| format!(",\"arguments\":{raw}")).unwrap_or_default();
        let fields = format!("\"name\":{}{arguments}", Value::from(own.as_str()));
        Ok(ServerRequest { server, method: PassedMethod::GetPrompt, own, fields })
    }

    async fn completion_request(
        &self,
        opened: &OpenedClient,
        reference: CompletionReference,
        rest: &str,
    ) -> Result<ServerRequest, GatewayError> {
        let (server, named, own) = match reference {
            CompletionReference::Prompt(name) => {
                let (server, own) = self.prompt_owner(opened, &name).await?;
                (server, "\"type\":\"ref/prompt\",\"name\"", own)
            }
            CompletionReference::Template(uri) => {
                let owner = self.uri_owner(opened, &uri).await;
                let (server, own) = owner.ok_or_else(|| unknown_resource(&uri))?;
                (server, "\"type\":\"ref/resource\",\"uri\"", own)
            }
        };
        let fields = format!("\"ref\":{{{named}:{}}},{rest}", Value::from(own.as_str()));
        Ok(ServerRequest { server, method: PassedMethod::Complete, own, fields })
    }

    /// Sends a request to one server, and returns the JSON of its result. If the server requires a login, asks the user to
    /// log in.
    async fn ask(
        self: &Arc<Self>,
        opened: &Arc<OpenedClient>,
        request: &Arc<ServerRequest>,
        call: &PassedCall,
    ) -> Result<String, GatewayError> {
        let mut rounds = 0;
        loop {
            let answered = match request.content_method() {
                Some(method) => self.send_governed(opened, (request, method), call).await,
                None => self.send(opened, request, &call.id).await.map(String::from),
            };
            let (step, refusal) = match answered {
                Ok(result) => return Ok(result),
                Err(UpstreamRefusal::LoginRequired(refusal)) => (UserStep::Login(request.server), refusal),
                Err(UpstreamRefusal::Other(refusal)) if refusal.code == URL_REQUIRED => {
                    (UserStep::OpenUrls(request.server, refusal.data.clone()), refusal)
                }
                Err(UpstreamRefusal::Other(refusal)) => return Err(refusal),
            };
            if !may_ask_for_login(request.method, call.era) || rounds >= step.rounds_max() {
                return Err(refusal);
            }
            rounds += 1;
            match Box::pin(self.request_step(opened, &step, (call.era, &*call.asker))).await {
                StepOutcome::Repeat => {}
                StepOutcome::Reply(error) => return Err(error),
                StepOutcome::Failed(reason) => {
                    let reason = opened.shared.upstreams.without_addresses(&reason);
                    return Err(GatewayError::new(refusal.code, format!("{}: {reason}", refusal.message)));
                }
                StepOutcome::NotOffered => return Err(refusal),
            }
        }
    }

    /// Sends a request that reads content, after the stages that every call passes.
    async fn send_governed(
        self: &Arc<Self>,
        opened: &Arc<OpenedClient>,
        (request, method): (&Arc<ServerRequest>, ContentMethod),
        call: &PassedCall,
    ) -> Result<String, UpstreamRefusal> {
        let shared = &opened.shared;
        let name =
            shared.passed.name(shared.upstreams.servers[request.server].namespace(), method).to_owned();
        let recorded = ToolCall {
            id: CallId(call.id.clone()),
            name: name.clone(),
            arguments: RawArguments::from_text(format!("{{{}}}", request.fields)),
        };
        let options = CallOptions {
            context: self.content_context(opened, method, call),
            place: shared.place,
            journal: Some(Arc::clone(&shared.journal)),
            ..CallOptions::default()
        };
        let refused = Arc::new(Mutex::new(None));
        let work = {
            let (connection, opened) = (Arc::clone(self), Arc::clone(opened));
            let (request, id, refused) = (Arc::clone(request), call.id.clone(), Arc::clone(&refused));
            let reply = call.request.clone();
            async move {
                let read = connection.send(&opened, &request, &id).await.and_then(within_limit);
                let held = read.and_then(|text| {
                    let held = connection.hold_result(&reply, text.len());
                    held.map(|()| text).map_err(UpstreamRefusal::Other)
                });
                held.map(ToolOutput::text).map_err(|refusal| {
                    let error = as_tool_error(refusal.error());
                    *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
                    error
                })
            }
        };
        let result = shared.passed.execute(recorded, options, work).await;
        let error = match result.outcome {
            Ok(output) => return whole_result(output),
            Err(error) => error,
        };
        let by_server = refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        Err(by_server.unwrap_or_else(|| self.refused_by_stage(opened, &name, &error)))
    }

    /// Returns the context of a request that reads content. In the revision without a handshake, the reply to a completion
    /// must not contain a question, so the client's user cannot approve it.
    fn content_context(
        self: &Arc<Self>,
        opened: &OpenedClient,
        method: ContentMethod,
        call: &PassedCall,
    ) -> Arc<RunContext> {
        match (method, call.era) {
            (ContentMethod::Complete, RequestEra::Stateless(_)) => Arc::clone(&opened.context),
            (ContentMethod::Complete | ContentMethod::ReadResource | ContentMethod::GetPrompt, era) => {
                self.call_context(opened, (&call.request, era), &call.asker)
            }
        }
    }

    /// Returns the error for a request that a stage refused, with a hint for the user.
    fn refused_by_stage(&self, opened: &OpenedClient, name: &str, error: &ToolError) -> UpstreamRefusal {
        let hint = (opened.shared.gateway.hints)(error, name, &self.user.principal);
        let hint = hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        let message = opened.shared.upstreams.without_addresses(&error.message);
        UpstreamRefusal::Other(GatewayError::new(INTERNAL_ERROR, format!("{message}{hint}")))
    }

    /// Sends a request to its server. Its progress is sent to the client, like the progress of a tool.
    async fn send(
        &self,
        opened: &OpenedClient,
        request: &ServerRequest,
        call: &str,
    ) -> Result<Box<str>, UpstreamRefusal> {
        let progress = |progress: CallProgress| self.notices.progress(call, &progress);
        let passed = PassedRequest {
            method: request.method,
            fields: request.fields.clone(),
            // A completion has no header with a name.
            name: (request.method != PassedMethod::Complete).then_some(&request.own),
            caller: opened.caller(call),
        };
        opened.shared.upstreams.pass(request.server, &passed, &progress).await.map(Into::into)
    }

    /// Finds the offered server of a URI, and the URI that this server uses.
    pub(super) async fn uri_owner(&self, opened: &OpenedClient, uri: &str) -> Option<(usize, String)> {
        let (upstreams, offered) = self.offered(opened).await;
        match among(upstreams.addresses.uri_owner(uri), &offered) {
            AddressOwner::Server(server, own) => Some((server, own.to_owned())),
            AddressOwner::Any(own) => {
                let listed = self.merged(opened, UpstreamList::Resources).await.owner(own);
                let server = match listed {
                    Some(server) => Some(server),
                    None => self.merged(opened, UpstreamList::Templates).await.template_owner(own),
                };
                server.map(|server| (server, own.to_owned()))
            }
            AddressOwner::Unknown => None,
        }
    }

    async fn prompt_owner(&self, opened: &OpenedClient, name: &str) -> Result<(usize, String), GatewayError> {
        let (upstreams, offered) = self.offered(opened).await;
        let owner = match among(upstreams.addresses.prompt_owner(name), &offered) {
            AddressOwner::Server(server, own) => Some((server, own.to_owned())),
            AddressOwner::Any(own) => {
                let listed = self.merged(opened, UpstreamList::Prompts).await.owner(own);
                listed.map(|server| (server, own.to_owned()))
            }
            AddressOwner::Unknown => None,
        };
        owner.ok_or_else(|| GatewayError::new(INVALID_PARAMS, format!("there is no prompt `{name}`")))
    }

    async fn offered<'a>(&self, opened: &'a OpenedClient) -> (&'a UpstreamServers, Vec<usize>) {
        let shared = &opened.shared;
        shared.until_ready().await;
        (&shared.upstreams, shared.offered_upstreams())
    }
}

/// Reads a stored output of the client, and records the request like a call. It needs no rule: the client already has
/// the output.
async fn read_own_output(
    opened: &OpenedClient,
    uri: &str,
    call: &PassedCall,
) -> Result<String, GatewayError> {
    let recorded = ToolCall::new(&call.id, "resources/read", &json!({ "uri": uri }));
    let options = CallOptions {
        context: Arc::clone(&opened.context),
        place: opened.shared.place,
        ..CallOptions::default()
    };
    let work =
        async { read_stored(opened, uri).await.map(ToolOutput::text).map_err(|error| as_tool_error(&error)) };
    let result = opened.shared.orchestrator.record(recorded, &options, work).await;
    match result.outcome {
        Ok(output) => Ok(output.as_text()),
        Err(ToolError { protocol: Some(error), .. }) => {
            let ProtocolError { code, message, data } = *error;
            Err(GatewayError { code, message, data })
        }
        Err(error) => Err(GatewayError::new(INTERNAL_ERROR, error.message)),
    }
}

/// Refuses a result that is too large for a client.
fn within_limit(sent: Box<str>) -> Result<String, UpstreamRefusal> {
    let bytes = sent.len();
    if bytes <= CONTENT_BYTES_MAX {
        return Ok(sent.into());
    }
    let message = format!("the result has {bytes} bytes; the limit is {CONTENT_BYTES_MAX} bytes");
    Err(UpstreamRefusal::Other(GatewayError::new(INTERNAL_ERROR, message)))
}

/// Returns the JSON of a result, unless an output limit of the operator has changed it.
fn whole_result(mut output: ToolOutput) -> Result<String, UpstreamRefusal> {
    // Do not copy the text, because it can be large.
    let text = match output.content.pop() {
        Some(OutputContent::Text(text)) if output.content.is_empty() => text,
        Some(_) | None => String::new(),
    };
    if RawObject::of(&text).is_some() {
        return Ok(text);
    }
    let message = "the result is larger than the limit that the operator set for this method";
    Err(UpstreamRefusal::Other(GatewayError::new(INTERNAL_ERROR, message)))
}

/// Returns true if the reply to a request may ask the user to log in. In revisions without a handshake, only replies to
/// `tools/call`, `resources/read` and `prompts/get` may contain questions. A client needs no login to stop
/// watching a resource.
fn may_ask_for_login(method: PassedMethod, era: RequestEra) -> bool {
    match (method, era) {
        (PassedMethod::ReadResource | PassedMethod::GetPrompt, _)
        | (PassedMethod::Complete | PassedMethod::Subscribe, RequestEra::Handshake) => true,
        (PassedMethod::Complete | PassedMethod::Subscribe, RequestEra::Stateless(_))
        | (
            PassedMethod::Unsubscribe
            | PassedMethod::ListResources
            | PassedMethod::ListTemplates
            | PassedMethod::ListPrompts,
            _,
        ) => false,
    }
}

/// Adds the members about caching that protocol revisions without sessions require. The content that one principal
/// reads must not be cached for others.
fn cacheable(result: &str) -> String {
    let Some(mut object) = RawObject::of(result) else { return result.to_owned() };
    if object.get("ttlMs").is_none() {
        object.set("ttlMs", LIST_TTL_MS.to_string());
    }
    object.set("cacheScope", "\"private\"");
    object.to_string()
}

/// Sets the error code for an unknown resource, which depends on the protocol revision. The revision without sessions has
/// no code for URLs that a user must open.
fn in_era(error: GatewayError, era: RequestEra) -> GatewayError {
    match era {
        RequestEra::Stateless(_) if error.code == RESOURCE_NOT_FOUND => {
            GatewayError { code: INVALID_PARAMS, ..error }
        }
        RequestEra::Stateless(_) if error.code == URL_REQUIRED => {
            GatewayError::new(INTERNAL_ERROR, error.message)
        }
        RequestEra::Stateless(_) | RequestEra::Handshake => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, params: &str) -> Result<PassedSubject, i64> {
        let params = RawValue::from_string(params.to_owned()).unwrap();
        PassedSubject::read(method, Some(&params)).map_err(|error| error.code)
    }

    #[test]
    fn invalid_parameters_are_refused_before_a_server_is_asked() {
        let uri = || "a:b".to_owned();
        assert_eq!(read("resources/read", r#"{"uri":"a:b"}"#), Ok(PassedSubject::Resource { uri: uri() }));
        let rest = r#""argument":{"name":"n","value":"v"},"context":{}"#.to_owned();
        assert_eq!(
            read(
                "completion/complete",
                r#"{"ref":{"type":"ref/resource","uri":"a:b"},"argument":{"name":"n","value":"v"},"context":{}}"#
            ),
            Ok(PassedSubject::Completion { reference: CompletionReference::Template(uri()), rest })
        );
        for (method, params) in [
            ("resources/read", "{}"),
            ("resources/read", r#"{"uri":7}"#),
            ("resources/subscribe", "[]"),
            ("prompts/get", r#"{"arguments":{}}"#),
            ("completion/complete", r#"{"ref":{"type":"ref/tool"},"argument":{}}"#),
            ("completion/complete", r#"{"ref":{"type":"ref/prompt","name":"x"}}"#),
        ] {
            assert_eq!(read(method, params), Err(INVALID_PARAMS), "{method} {params}");
        }
    }
}

//! Passes requests about single resources and prompts to the upstream server that has them.

use std::sync::Arc;

use haft_core::approval::ApprovalId;
use haft_core::client_relay::ClientRelay;
use haft_core::event::CallProgress;
use haft_core::output::ToolOutput;
use haft_core::result::{ProtocolError, ToolError, ToolErrorKind};
use haft_core::tool::{CallId, ToolCall};
use haft_engine::CallOptions;
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

impl PassedSubject {
    /// Returns the call that the usage records contain for a request that reads content; `None` for subscriptions and
    /// completions.
    fn accounted(&self, call: &str) -> Option<ToolCall> {
        let (name, arguments) = match self {
            Self::Resource { uri } => ("resources/read", json!({ "uri": uri })),
            Self::Prompt { name, arguments } => {
                ("prompts/get", json!({ "name": name, "arguments": arguments }))
            }
            Self::Subscription { .. } | Self::Completion { .. } => return None,
        };
        Some(ToolCall::new(call, name, &arguments))
    }
}

/// Converts an answer to the form in the usage records.
fn as_output(answer: Result<String, GatewayError>) -> Result<ToolOutput, ToolError> {
    answer.map(ToolOutput::text).map_err(|GatewayError { code, message, data }| {
        let protocol = ProtocolError { code, message: message.clone(), data };
        ToolError::new(ToolErrorKind::Failed, message).with_protocol(Some(protocol))
    })
}

fn of_output(outcome: Result<ToolOutput, ToolError>) -> Result<String, GatewayError> {
    match outcome {
        Ok(output) => Ok(output.as_text()),
        Err(ToolError { protocol: Some(error), .. }) => {
            let ProtocolError { code, message, data } = *error;
            Err(GatewayError { code, message, data })
        }
        Err(error) => Err(GatewayError::new(INTERNAL_ERROR, error.message)),
    }
}

/// A request of a client, with the way to ask its user.
struct PassedCall {
    id: String,
    era: RequestEra,
    asker: Arc<dyn ClientRelay>,
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
            };
            let asker = connection.call_asker(approval);
            let passed = PassedCall { id: call.clone(), era, asker };
            let work = Arc::clone(&connection).pass(Arc::clone(&opened), subject, passed);
            let waiting = Box::pin(connection.in_rounds(&opened, round, work));
            let outcome = connection.with_notices(&call, (&request.id, notices), waiting).await;
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
        let outcome = match subject.accounted(&call.id) {
            Some(recorded) => {
                let work = async { as_output(self.answer(&opened, subject, &call).await) };
                let options = CallOptions {
                    context: Arc::clone(&opened.context),
                    place: opened.shared.place,
                    ..CallOptions::default()
                };
                let result = opened.shared.orchestrator.record(recorded, &options, work).await;
                of_output(result.outcome)
            }
            None => self.answer(&opened, subject, &call).await,
        };
        match outcome {
            Ok(result) => Ok(with_era(&result, call.era)),
            Err(error) => Err(in_era(error, call.era)),
        }
    }

    async fn answer(
        &self,
        opened: &OpenedClient,
        subject: PassedSubject,
        call: &PassedCall,
    ) -> Result<String, GatewayError> {
        match subject {
            PassedSubject::Resource { uri } => self.read_resource(opened, &uri, call).await,
            PassedSubject::Subscription { uri, method } => self.subscribe(opened, uri, method, call).await,
            PassedSubject::Prompt { name, arguments } => {
                self.get_prompt(opened, &name, arguments.as_deref(), call).await
            }
            PassedSubject::Completion { reference, rest } => {
                self.complete(opened, reference, &rest, call).await
            }
        }
    }

    async fn read_resource(
        &self,
        opened: &OpenedClient,
        uri: &str,
        call: &PassedCall,
    ) -> Result<String, GatewayError> {
        if stored_handle(uri).is_some() {
            return read_stored(opened, uri).await.map(|result| cacheable(&result));
        }
        let addresses = &opened.shared.upstreams.addresses;
        let (server, own) = self.uri_owner(opened, uri).await.ok_or_else(|| unknown_resource(uri))?;
        let fields = format!("\"uri\":{}", Value::from(own.as_str()));
        let read = self.ask(opened, server, PassedMethod::ReadResource, (&own, fields), call).await?;
        let rewritten = if addresses.is_bare() {
            read.get().to_owned()
        } else {
            rewrite::read_result(read.get(), &|own| addresses.uri(server, own))
        };
        Ok(cacheable(&rewritten))
    }

    async fn subscribe(
        &self,
        opened: &OpenedClient,
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
                self.ask(opened, server, method, (&own, fields), call).await.map(drop)
            }
        };
        let is_watched = if is_subscription { asked.is_ok() || !is_new } else { asked.is_err() };
        if !is_watched {
            opened.watched_uris().remove(&uri);
            opened.release_watches();
        }
        asked.map(|()| "{}".into())
    }

    async fn get_prompt(
        &self,
        opened: &OpenedClient,
        name: &str,
        arguments: Option<&str>,
        call: &PassedCall,
    ) -> Result<String, GatewayError> {
        let (server, own) = self.prompt_owner(opened, name).await?;
        let arguments = arguments.map(|raw| format!(",\"arguments\":{raw}")).unwrap_or_default();
        let fields = format!("\"name\":{}{arguments}", Value::from(own.as_str()));
        let got = self.ask(opened, server, PassedMethod::GetPrompt, (&own, fields), call).await?;
        let addresses = &opened.shared.upstreams.addresses;
        if addresses.is_bare() {
            return Ok(got.get().to_owned());
        }
        Ok(rewrite::prompt_result(got.get(), &|own| addresses.uri(server, own)))
    }

    async fn complete(
        &self,
        opened: &OpenedClient,
        reference: CompletionReference,
        rest: &str,
        call: &PassedCall,
    ) -> Result<String, GatewayError> {
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
        let completed = self.ask(opened, server, PassedMethod::Complete, (&own, fields), call).await;
        match completed {
            Ok(completed) => Ok(completed.get().to_owned()),
            // A server without completions has no suggestions.
            Err(error) if error.code == METHOD_NOT_FOUND => {
                Ok(r#"{"completion":{"values":[],"hasMore":false}}"#.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a request to one server. Its progress is sent to the client, like the progress of a tool. If the server
    /// requires a login, asks the user to log in.
    async fn ask(
        &self,
        opened: &OpenedClient,
        server: usize,
        method: PassedMethod,
        (name, fields): (&str, String),
        call: &PassedCall,
    ) -> Result<Box<RawValue>, GatewayError> {
        let caller = opened.caller(&call.id);
        let progress = |progress: CallProgress| self.progress.send(&call.id, Some(&progress));
        // A completion has no header with a name.
        let name = (method != PassedMethod::Complete).then_some(name);
        let request = PassedRequest { method, fields, name, caller };
        let upstreams = &opened.shared.upstreams;
        let mut rounds = 0;
        loop {
            let (step, refusal) = match upstreams.pass(server, &request, &progress).await {
                Ok(result) => return Ok(result),
                Err(UpstreamRefusal::LoginRequired(refusal)) => (UserStep::Login(server), refusal),
                Err(UpstreamRefusal::Other(refusal)) if refusal.code == URL_REQUIRED => {
                    (UserStep::OpenUrls(server, refusal.data.clone()), refusal)
                }
                Err(UpstreamRefusal::Other(refusal)) => return Err(refusal),
            };
            if !may_ask_for_login(method, call.era) || rounds >= step.rounds_max() {
                return Err(refusal);
            }
            rounds += 1;
            match Box::pin(self.request_step(opened, &step, (call.era, &*call.asker))).await {
                StepOutcome::Repeat => {}
                StepOutcome::Reply(error) => return Err(error),
                StepOutcome::Failed(reason) => {
                    let reason = upstreams.without_addresses(&reason);
                    return Err(GatewayError::new(refusal.code, format!("{}: {reason}", refusal.message)));
                }
                StepOutcome::NotOffered => return Err(refusal),
            }
        }
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

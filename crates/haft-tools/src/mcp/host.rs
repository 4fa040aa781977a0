//! The client side of a connection: answers the server's requests and handles its notifications.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use haft_core::approval::ApprovalId;
use haft_core::client_relay::{ClientRelay, RelayedLog, RelayedRequest};
use haft_core::elicitation::ElicitationAnswer;
use haft_core::position::CallOperation;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast};
use url::Url;

use super::in_flight::{InFlight, InFlightCalls, RequestingCall};
use super::log_level::RequestedLogLevels;
use super::log_ring::LogRing;
use super::news::{LogRecord, ServerNews};
use super::refusal::ServerRequestRefusal;
use super::sampling::SamplingPolicy;
use super::trace::{ServerTrace, TraceLineKind};
use super::trace_parent::{self, TraceParents};
use super::watched_resources::WatchedResources;
use haft_core::redact::SecretRedactor;

/// The maximum length of an excerpt of a notification or of stray output in the log, in characters.
const EXCERPT_CHARS_MAX: usize = 500;

/// The maximum size of an elicitation request that haft shows to a user, in bytes.
const QUESTION_BYTES_MAX: usize = 64 << 10;

/// The maximum size of a request that is passed to the client of a gateway, in bytes. A prompt for a model may contain
/// images.
const RELAYED_BYTES_MAX: usize = 4 << 20;

/// The maximum number of elicitation requests during one call.
const ASKED_MAX: u32 = 32;

/// The method of a request for the directories that the client works in.
const ROOTS: &str = "roots/list";

/// The method of a question to a user.
const ELICITATION: &str = "elicitation/create";

/// The method of a request to a model.
const SAMPLING: &str = "sampling/createMessage";

/// Selects whether the client announces elicitation. Some servers list fewer tools to clients without it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ElicitationSupport {
    Offered,
    /// The client of the gateway can show forms, but does not apply the default values of their fields.
    WithoutDefaults,
    /// The client of the gateway can ask its user to open a URL, but cannot show forms.
    UrlOnly,
    #[default]
    NotOffered,
}

/// The capabilities of a gateway's client that the servers behind the gateway may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own in the protocol")]
pub struct RelayedCapabilities {
    /// The client can ask its user to open a URL.
    pub url_elicitation: bool,
    /// The client can send sampling requests to its model.
    pub sampling: bool,
    /// These sampling requests may define tools.
    pub sampling_tools: bool,
    /// These sampling requests may include the context of servers.
    pub sampling_context: bool,
    /// The client can name the directories that it works in.
    pub roots: bool,
    /// The client announces when these directories change.
    pub roots_change: bool,
}

/// The client side of one connection.
pub(super) struct Host {
    pub(super) server: String,
    /// Selects whether the client announces elicitation. The run of each call determines the user to ask.
    pub(super) elicitation: ElicitationSupport,
    /// The capabilities of the gateway's client that this connection announces to the server.
    pub(super) relayed: RelayedCapabilities,
    /// The directories of the `roots` capability. The list is empty unless configured, because some servers treat the
    /// roots as the only directories that they may touch.
    pub(super) roots: Vec<PathBuf>,
    /// The limits of the server's sampling requests; `None` if the operator does not allow sampling.
    pub(super) sampling: Option<SamplingPolicy>,
    pub(super) calls: InFlightCalls,
    /// The client of a gateway that has exactly one client. It also answers requests for roots that belong to no call;
    /// with several clients, haft could not know which of them must answer.
    pub(super) only_client: OnceLock<Weak<dyn ClientRelay>>,
    pub(super) log: Arc<LogRing>,
    /// The secrets that the server may repeat and that logs must not contain.
    pub(super) withheld: Arc<SecretRedactor>,
    /// The host and port of a remote server.
    pub(super) address: SecretRedactor,
    pub(super) trace: Option<ServerTrace>,
    /// Looks up the spans of calls, if tracing is enabled.
    pub(super) parents: Option<Arc<dyn TraceParents>>,
    /// Notified when the server announces a changed tool list.
    pub(super) tools_changed: Arc<Notify>,
    /// Receives the other notifications, for the clients of a gateway.
    pub(super) news: broadcast::Sender<ServerNews>,
    pub(super) watched: Arc<WatchedResources>,
    /// The levels of log messages that the clients of a gateway request.
    pub(super) log_levels: Arc<RequestedLogLevels>,
}

impl Host {
    /// Returns the client capabilities to announce.
    pub(super) fn capabilities(&self) -> Value {
        let mut capabilities = serde_json::Map::new();
        if let Some(kinds) = self.elicitation_kinds() {
            capabilities.insert("elicitation".into(), kinds);
        }
        if !self.roots.is_empty() || self.relayed.roots {
            let changes = if self.roots_change() { json!({ "listChanged": true }) } else { json!({}) };
            capabilities.insert("roots".into(), changes);
        }
        if self.sampling.is_some() || self.relayed.sampling {
            let mut parts = serde_json::Map::new();
            // haft's own sampler supports neither part.
            if self.is_relayed(SAMPLING) {
                let RelayedCapabilities { sampling_tools, sampling_context, .. } = self.relayed;
                let declared = [("tools", sampling_tools), ("context", sampling_context)];
                let declared = declared.into_iter().filter(|(_, is_declared)| *is_declared);
                parts.extend(declared.map(|(name, _)| (name.to_owned(), json!({}))));
            }
            capabilities.insert("sampling".into(), Value::Object(parts));
        }
        Value::Object(capabilities)
    }

    fn elicitation_kinds(&self) -> Option<Value> {
        let form = match self.elicitation {
            ElicitationSupport::NotOffered => return None,
            ElicitationSupport::UrlOnly => return Some(json!({ "url": {} })),
            ElicitationSupport::WithoutDefaults => json!({}),
            ElicitationSupport::Offered => json!({ "applyDefaults": true }),
        };
        let mut kinds = json!({ "form": form });
        if self.relayed.url_elicitation {
            kinds["url"] = json!({});
        }
        Some(kinds)
    }

    /// Refuses a question of a kind that the client of the gateway does not support.
    fn check_kind(&self, params: &str) -> Result<(), ServerRequestRefusal> {
        let reason = match (is_about_url(params), self.elicitation, self.relayed.url_elicitation) {
            (true, _, false) => "the client cannot ask its user to open a URL",
            (false, ElicitationSupport::UrlOnly, _) => "the client does not support forms",
            (true, _, true)
            | (
                false,
                ElicitationSupport::Offered
                | ElicitationSupport::WithoutDefaults
                | ElicitationSupport::NotOffered,
                _,
            ) => return Ok(()),
        };
        Err(ServerRequestRefusal::Wrong(reason.into()))
    }

    /// Returns the JSON result of a request from the server. Elicitation and sampling belong to a tool call: the
    /// principal of the call answers, and the run of the call pays. `key` identifies the request among several requests
    /// that the server sends at once.
    pub(super) async fn answer(
        &self,
        method: &str,
        params: Option<&RawValue>,
        (key, asker): (Option<&str>, &RequestingCall),
    ) -> Result<String, ServerRequestRefusal> {
        if let RequestingCall::Call(call) = asker
            && self.is_relayed(method)
            && let Some(relay) = &call.caller.run.relay
        {
            count_question(call)?;
            let params = relayed_params(params)?;
            if method == SAMPLING && !self.relayed.sampling_tools && has_tools(params) {
                let reason = "the client does not support tools in sampling requests";
                return Err(ServerRequestRefusal::Wrong(reason.into()));
            }
            if method == ELICITATION {
                self.check_kind(params)?;
            }
            let own = ApprovalId::of_call(call.caller.place, &call.caller.call);
            let request = RelayedRequest { call: Some(own), server: &self.server, key, method, params };
            return tokio::select! {
                biased;
                () = call.over() => Err(ServerRequestRefusal::Declined("the tool call has ended".into())),
                relayed = relay.relay(request) => match relayed {
                    Ok(result) => Ok(String::from(Box::<str>::from(result))),
                    Err(reason) => Err(ServerRequestRefusal::Declined(reason)),
                },
            };
        }
        if method == ROOTS
            && self.is_relayed(method)
            && matches!(asker, RequestingCall::None)
            && let Some(client) = self.only_client.get().and_then(Weak::upgrade)
        {
            let params = relayed_params(params)?;
            let request = RelayedRequest { call: None, server: &self.server, key, method, params };
            let relayed = client.relay(request).await.map_err(ServerRequestRefusal::Declined);
            return relayed.map(|result| String::from(Box::<str>::from(result)));
        }
        if self.is_relayed(method) {
            call_of(asker)?;
        }
        let params = params.ok_or_else(|| ServerRequestRefusal::Wrong("the request has no `params`".into()));
        match (method, &self.sampling) {
            ("ping", _) => Ok("{}".into()),
            (ROOTS, _) if !self.roots.is_empty() => Ok(self.list_roots().to_string()),
            (ELICITATION, _) => {
                let request = readable(params?)?;
                let call = call_of(asker)?;
                count_question(call)?;
                tokio::select! {
                    biased;
                    () = call.over() => Err(ServerRequestRefusal::Declined("the tool call has ended".into())),
                    elicited = self.elicited(request, call) => Ok(elicitation_result(elicited).to_string()),
                }
            }
            (SAMPLING, Some(policy)) => {
                let written = match call_of(asker) {
                    Ok(call) => policy.answer(&self.server, params?, call).await,
                    Err(refusal) => Err(refusal),
                };
                if let Err(refusal) = &written {
                    self.log.note(&format!("haft refused a sampling request: {}", refusal.reason()));
                }
                written
            }
            (_, _) => Err(ServerRequestRefusal::NotSupported),
        }
    }

    /// Returns true if haft announces changes of the roots to the server. The roots of the configuration do not change.
    pub(super) fn roots_change(&self) -> bool {
        self.relayed.roots_change && self.is_relayed(ROOTS)
    }

    /// Returns true for requests that the client of a gateway answers. The operator's settings for the server take
    /// precedence.
    fn is_relayed(&self, method: &str) -> bool {
        match method {
            ELICITATION => self.elicitation != ElicitationSupport::NotOffered,
            SAMPLING => self.relayed.sampling && self.sampling.is_none(),
            ROOTS => self.relayed.roots && self.roots.is_empty(),
            _ => false,
        }
    }

    /// Asks the user of the run; declines the request if the run has no user.
    async fn elicited(&self, request: Value, call: &InFlight) -> ElicitationAnswer {
        match &call.caller.run.elicitor {
            Some(elicitor) => elicitor.elicit(&self.server, request).await,
            None => ElicitationAnswer::Declined,
        }
    }

    /// Writes a log record to the log of the server, and passes it to the client of a gateway whose call caused it. All
    /// clients get a record outside of calls. No client gets a record if calls of several clients may have caused it.
    pub(super) fn logged(&self, params: Option<&RawValue>, origin: &RequestingCall) {
        let text = params.map_or("", RawValue::get);
        self.log.note(&excerpt(text));
        let Some(record) = LogRecord::read(&self.withheld.redact(text.to_owned())) else { return };
        match origin {
            RequestingCall::Call(call) => {
                if let Some(relay) = &call.caller.run.relay {
                    let LogRecord { level, params } = &record;
                    relay.log(RelayedLog { call: &call.caller.call, level, params });
                }
            }
            // Ignore the send error: without a gateway there is no receiver.
            RequestingCall::None => drop(self.news.send(ServerNews::Log(record))),
            RequestingCall::Ambiguous => {}
        }
    }

    pub(super) fn notified(&self, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/tools/list_changed" => self.tools_changed.notify_one(),
            "notifications/prompts/list_changed" => drop(self.news.send(ServerNews::PromptsChanged)),
            "notifications/resources/list_changed" => drop(self.news.send(ServerNews::ResourcesChanged)),
            "notifications/resources/updated" => {
                let uri = params.and_then(ServerNews::updated_uri);
                uri.map(|uri| self.news.send(ServerNews::ResourceUpdated(uri)));
            }
            "notifications/elicitation/complete" => {
                let id = params.and_then(ServerNews::completed_id);
                id.map(|id| self.news.send(ServerNews::UrlCompleted(id)));
            }
            "notifications/subscriptions/acknowledged" => self.watched.acknowledged(params),
            // A cancelled request needs no action, because the server ignores a late answer
            // to it.
            _ => {}
        }
    }

    /// Returns the trace context of a call.
    pub(super) fn trace_parent(&self, operation: &CallOperation) -> Option<String> {
        let span = self.parents.as_ref().and_then(|parents| parents.of(operation));
        span.or_else(|| trace_parent::of_session(operation))
    }

    /// Sends a message to the operator's trace, if enabled.
    pub(super) fn trace(&self, what: TraceLineKind, text: &str) {
        if let Some(trace) = &self.trace {
            trace.write(what, text);
        }
    }

    pub(super) fn noise(&self, text: &str) {
        self.log.note(&format!("haft ignored output that is not a JSON-RPC message: {}", excerpt(text)));
    }

    fn list_roots(&self) -> Value {
        let addresses = self.roots.iter().filter_map(|path| Url::from_directory_path(path).ok());
        let root = |url: Url| json!({ "uri": url.as_str().trim_end_matches('/') });
        json!({ "roots": addresses.map(root).collect::<Vec<_>>() })
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Counts one more elicitation request of a call. Refuses it beyond the limit.
fn count_question(call: &InFlight) -> Result<(), ServerRequestRefusal> {
    if call.asked.fetch_add(1, Ordering::Relaxed) < ASKED_MAX {
        return Ok(());
    }
    Err(ServerRequestRefusal::Declined(format!(
        "the MCP server asked the user too often; the limit is {ASKED_MAX} requests per call"
    )))
}

/// Returns true if a question asks the user to open a URL.
fn is_about_url(params: &str) -> bool {
    #[derive(Deserialize)]
    struct QuestionKind<'a> {
        #[serde(borrow)]
        mode: Option<std::borrow::Cow<'a, str>>,
    }
    serde_json::from_str::<QuestionKind<'_>>(params).is_ok_and(|params| params.mode.as_deref() == Some("url"))
}

/// Returns true if a sampling request defines tools.
fn has_tools(params: &str) -> bool {
    #[derive(Deserialize)]
    struct SamplingTools {
        tools: Option<IgnoredAny>,
    }
    serde_json::from_str::<SamplingTools>(params).is_ok_and(|params| params.tools.is_some())
}

fn relayed_params(params: Option<&RawValue>) -> Result<&str, ServerRequestRefusal> {
    let params = params.map_or("{}", RawValue::get);
    if params.len() <= RELAYED_BYTES_MAX {
        return Ok(params);
    }
    let reason =
        format!("the request of the MCP server has {} bytes; the limit is {RELAYED_BYTES_MAX}", params.len());
    Err(ServerRequestRefusal::Wrong(reason))
}

fn call_of(asker: &RequestingCall) -> Result<&InFlight, ServerRequestRefusal> {
    match asker {
        RequestingCall::Call(call) => Ok(call),
        RequestingCall::None => Err(ServerRequestRefusal::Declined(
            "the request belongs to no tool call, because no tool call is in flight".into(),
        )),
        RequestingCall::Ambiguous => {
            let reason = "tool calls of several runs are in flight, and the request does not say which call it belongs to";
            Err(ServerRequestRefusal::Declined(reason.into()))
        }
    }
}

fn readable(params: &RawValue) -> Result<Value, ServerRequestRefusal> {
    let bytes = params.get().len();
    if bytes > QUESTION_BYTES_MAX {
        let reason = format!("the elicitation request has {bytes} bytes; the limit is {QUESTION_BYTES_MAX}");
        return Err(ServerRequestRefusal::Wrong(reason));
    }
    serde_json::from_str(params.get()).map_err(|error| ServerRequestRefusal::Wrong(error.to_string()))
}

fn elicitation_result(elicited: ElicitationAnswer) -> Value {
    match elicited {
        ElicitationAnswer::Accepted(content) => json!({ "action": "accept", "content": content }),
        ElicitationAnswer::Declined => json!({ "action": "decline" }),
        ElicitationAnswer::Cancelled => json!({ "action": "cancel" }),
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_CHARS_MAX).collect()
}

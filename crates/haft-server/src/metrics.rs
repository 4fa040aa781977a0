//! `/metrics`: counters of requests, runs, models and tools in the Prometheus text format.
//!
//! Every label has a bounded number of values: routes and statuses come from tables, tools that clients name share the
//! label `client`, and tools beyond [`TOOLS_MAX`] have the label `other`. No label contains an id, a principal or content.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use haft_config::ResolvedConfig;
use haft_config::skills::Skills;
use haft_core::event::{Event, EventSink, ToolReference};
use haft_core::name::Namespace;
use haft_core::provider::ProviderKind;
use haft_core::run::event::RunEvent;
use haft_runtime::{CIRCUIT_STATES, RunQueueStats, SERVER_STATES};
use http::{HeaderValue, header};

use crate::mcp::http::HttpGateway;
use crate::pending_approvals::PendingApprovalStats;
use crate::server::ServerState;
use crate::store_errors::StoreKind;

/// The maximum number of tools that have a label of their own.
const TOOLS_MAX: usize = 100;

/// The maximum number of MCP servers that have a label of their own. A configuration rarely has more.
const SERVERS_MAX: usize = 100;

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// The values that other parts of the server supply when a client requests the metrics.
#[derive(Debug, Default)]
struct ServerGauges {
    active_responses: usize,
    queue: RunQueueStats,
    approvals: PendingApprovalStats,
    /// The states of the MCP servers that runs use.
    servers: ServerStates,
    /// The states of the upstream servers of the gateway; `None` without a gateway.
    gateway_servers: Option<ServerStates>,
    /// The model providers, each with the state of its circuit breaker.
    circuits: Vec<(String, &'static str)>,
}

/// The number of connections to the configured MCP servers, by server name and state.
type ServerStates = BTreeMap<(String, &'static str), u64>;

/// The counters of a server. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics(Arc<Mutex<MetricValues>>);

#[derive(Debug, Default)]
struct MetricValues {
    /// The requests, by route and status.
    requests: BTreeMap<(&'static str, u16), Timing>,
    /// The refused requests, by the name of the limit.
    refused: BTreeMap<&'static str, u64>,
    failed_logins: u64,
    /// The configuration reloads, by outcome.
    reloads: BTreeMap<&'static str, u64>,
    approvals_expired: u64,
    /// The attempts and deliveries of webhooks, by outcome.
    webhooks: BTreeMap<&'static str, u64>,
    access_log_errors: u64,
    audit_log_errors: u64,
    /// The failed writes, by store.
    store_errors: BTreeMap<StoreKind, u64>,
    /// The fetches of issuer keys, by outcome.
    jwks_fetches: BTreeMap<&'static str, u64>,
    runs_started: u64,
    /// The finished runs, by the reason for the end.
    runs_finished: BTreeMap<&'static str, u64>,
    turns: u64,
    /// The model requests, by outcome.
    model_requests: BTreeMap<&'static str, Timing>,
    input_tokens: u64,
    output_tokens: u64,
    cost_nano_usd: u64,
    /// The namespaces of the MCP servers that the operator configured.
    servers: BTreeSet<String>,
    /// The tools that have a label of their own.
    tools: BTreeSet<String>,
    /// The tool calls, by tool and outcome.
    tool_calls: BTreeMap<(String, &'static str), Timing>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Timing {
    count: u64,
    seconds: f64,
}

impl Timing {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.seconds += time.as_secs_f64();
    }
}

/// The gateway whose upstream servers the metrics count, if the server has one.
#[derive(Clone)]
pub(crate) struct GatewayServers(pub(crate) Option<Arc<HttpGateway>>);

/// Serves the metrics. The router lets only keys with the scope `admin` through.
pub(crate) async fn show(
    State(state): State<Arc<ServerState>>,
    Extension(GatewayServers(gateway)): Extension<GatewayServers>,
) -> Response {
    let gauges = ServerGauges {
        active_responses: state.active_responses(),
        queue: state.runtime.queue().stats(),
        approvals: state.approval_stats(),
        servers: server_states(&state, state.runtime.mcp_server_states()),
        gateway_servers: gateway.map(|gateway| server_states(&state, gateway.server_states())),
        circuits: state.runtime.provider_circuits(),
    };
    let text = state.metrics.text(&gauges);
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
}

/// Counts the states of the configured MCP servers. Servers that clients name by their URL have no label, because the
/// number of their names is not bounded.
fn server_states(state: &ServerState, running: Vec<(String, &'static str)>) -> ServerStates {
    let (config, skills) = (state.runtime.config(), state.runtime.skills());
    let enabled = config.mcp_servers.iter().filter(|(_, server)| server.enabled).map(|(name, _)| name);
    let of_skills = skills.skills.iter().flat_map(|skill| skill.servers.keys());
    let names: BTreeSet<&String> = enabled.chain(of_skills).take(SERVERS_MAX).collect();
    let mut counts: ServerStates =
        names.iter().flat_map(|name| SERVER_STATES.map(|state| (((*name).clone(), state), 0))).collect();
    for server in running {
        if let Some(count) = counts.get_mut(&server) {
            *count += 1;
        }
    }
    counts
}

impl Metrics {
    pub(crate) fn request(&self, route: &'static str, status: u16, time: Duration) {
        self.values().requests.entry((route, status)).or_default().add(time);
    }

    pub(crate) fn refused(&self, limit: &'static str) {
        *self.values().refused.entry(limit).or_default() += 1;
    }

    pub(crate) fn failed_login(&self) {
        self.values().failed_logins += 1;
    }

    pub(crate) fn reloaded(&self, outcome: &'static str) {
        *self.values().reloads.entry(outcome).or_default() += 1;
    }

    /// Sets the MCP servers whose tools have labels of their own.
    pub(crate) fn set_servers(&self, config: &ResolvedConfig, skills: &Skills) {
        let of_skills = skills.skills.iter().flat_map(|skill| skill.servers.keys());
        let names = config.mcp_servers.keys().chain(of_skills);
        self.values().servers = names.map(|name| Namespace::sanitize(name).as_str().to_owned()).collect();
    }

    pub(crate) fn approvals_expired(&self, count: usize) {
        self.values().approvals_expired += count as u64;
    }

    /// Counts an attempt or a delivery of a webhook.
    pub(crate) fn webhook(&self, outcome: &'static str) {
        *self.values().webhooks.entry(outcome).or_default() += 1;
    }

    pub(crate) fn access_log_error(&self) {
        self.values().access_log_errors += 1;
    }

    pub(crate) fn audit_log_error(&self) {
        self.values().audit_log_errors += 1;
    }

    /// Counts data that could not be stored.
    pub(crate) fn store_error(&self, kind: StoreKind) {
        *self.values().store_errors.entry(kind).or_default() += 1;
    }

    /// Counts a fetch of an issuer's keys.
    pub(crate) fn jwks_fetch(&self, outcome: &'static str) {
        *self.values().jwks_fetches.entry(outcome).or_default() += 1;
    }

    fn text(&self, gauges: &ServerGauges) -> String {
        let values = self.values();
        let mut text = MetricsText::default();
        values.write_server(&mut text, gauges.active_responses);
        write_queue(&mut text, &gauges.queue);
        let help = "Connections of runs to configured MCP servers, by state.";
        write_servers(&mut text, ("haft_mcp_servers", help), &gauges.servers);
        if let Some(servers) = &gauges.gateway_servers {
            let help = "Connections of the clients of /mcp to configured MCP servers, by state.";
            write_servers(&mut text, ("haft_mcp_gateway_servers", help), servers);
        }
        write_circuits(&mut text, &gauges.circuits);
        values.write_approvals(&mut text, gauges.approvals);
        values.write_runs(&mut text);
        text.0
    }

    fn values(&self) -> MutexGuard<'_, MetricValues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the events of all runs.
impl EventSink for Metrics {
    fn emit(&self, event: Event) {
        match &event {
            Event::ToolFinished { tool, failure, latency, .. } => {
                let outcome = failure.map_or("ok", |kind| kind.name());
                self.values().tool_call(tool, outcome, *latency);
            }
            Event::ModelFinished { account, .. } => {
                let outcome = account.failure.map_or("ok", |kind| kind.name());
                let mut values = self.values();
                values.model_requests.entry(outcome).or_default().add(account.latency);
                let usage = account.usage.unwrap_or_default();
                values.input_tokens = values.input_tokens.saturating_add(usage.input);
                values.output_tokens = values.output_tokens.saturating_add(usage.output);
                let cost = account.cost.map_or(0, |cost| cost.nano_usd);
                values.cost_nano_usd = values.cost_nano_usd.saturating_add(cost);
            }
            Event::Run { event, .. } => self.run_event(event),
            Event::ToolStarted { .. } | Event::ToolProgress { .. } | Event::ModelStarted { .. } => {}
        }
    }
}

impl Metrics {
    fn run_event(&self, event: &RunEvent) {
        match event {
            RunEvent::Began(_) => self.values().runs_started += 1,
            RunEvent::Asked => self.values().turns += 1,
            RunEvent::Finished { finish, .. } => {
                *self.values().runs_finished.entry(finish.reason.name()).or_default() += 1;
            }
            RunEvent::Model(_) | RunEvent::Called(_) | RunEvent::Answered(_) | RunEvent::Noted(_) => {}
        }
    }
}

impl MetricValues {
    fn tool_call(&mut self, tool: &ToolReference, outcome: &'static str, latency: Duration) {
        let label = self.tool_label(tool);
        self.tool_calls.entry((label, outcome)).or_default().add(latency);
    }

    /// Returns the label of a tool. Models invent names, and clients choose the names of their functions and servers:
    /// neither may use up the labels of the operator's tools.
    fn tool_label(&mut self, tool: &ToolReference) -> String {
        let ToolReference::Known(known) = tool else { return "other".to_owned() };
        let is_of_operator = match known.identity.kind {
            ProviderKind::Builtin | ProviderKind::Rest | ProviderKind::Agent => true,
            ProviderKind::Mcp => self.servers.contains(known.identity.namespace.as_str()),
            ProviderKind::Client => false,
        };
        if !is_of_operator {
            return "client".to_owned();
        }
        let name = tool.name();
        let has_label =
            self.tools.contains(name) || (self.tools.len() < TOOLS_MAX && self.tools.insert(name.to_owned()));
        if has_label { name.to_owned() } else { "other".to_owned() }
    }

    fn write_server(&self, text: &mut MetricsText, active_responses: usize) {
        text.head("haft_http_requests_total", "counter", "HTTP requests, by route and status.");
        for ((route, status), timing) in &self.requests {
            let status = status.to_string();
            text.row("haft_http_requests_total", &[("route", route), ("status", &status)], timing.count);
        }
        text.head(
            "haft_http_request_seconds_total",
            "counter",
            "Time from a request to the head of its reply.",
        );
        for ((route, status), timing) in &self.requests {
            let status = status.to_string();
            let labels = [("route", *route), ("status", &status)];
            text.row("haft_http_request_seconds_total", &labels, timing.seconds);
        }
        text.head(
            "haft_rate_limited_total",
            "counter",
            "Requests refused because their key reached a limit.",
        );
        for (limit, count) in &self.refused {
            text.row("haft_rate_limited_total", &[("limit", limit)], count);
        }
        text.one(
            "haft_failed_logins_total",
            "counter",
            "Requests without a valid API key.",
            self.failed_logins,
        );
        text.head("haft_config_reloads_total", "counter", "Reloads of the configuration, by outcome.");
        for (outcome, count) in &self.reloads {
            text.row("haft_config_reloads_total", &[("outcome", outcome)], count);
        }
        text.head("haft_jwks_fetches_total", "counter", "Fetches of token issuer keys, by outcome.");
        for (outcome, count) in &self.jwks_fetches {
            text.row("haft_jwks_fetches_total", &[("outcome", outcome)], count);
        }
        let help = "Lines that could not be written to the access log.";
        text.one("haft_access_log_errors_total", "counter", help, self.access_log_errors);
        let help = "Lines that could not be written to the audit log.";
        text.one("haft_audit_log_errors_total", "counter", help, self.audit_log_errors);
        text.head(
            "haft_store_errors_total",
            "counter",
            "Failed writes to the stores of the server, by store.",
        );
        for kind in StoreKind::ALL {
            let count = self.store_errors.get(&kind).copied().unwrap_or_default();
            text.row("haft_store_errors_total", &[("store", kind.label())], count);
        }
        text.one("haft_responses_active", "gauge", "Responses in progress.", active_responses);
    }

    fn write_approvals(&self, text: &mut MetricsText, pending: PendingApprovalStats) {
        text.one("haft_approvals_pending", "gauge", "Approval requests without an answer.", pending.requests);
        let oldest = pending.oldest_age.as_secs_f64();
        text.one(
            "haft_approvals_oldest_age_seconds",
            "gauge",
            "Age of the oldest unanswered approval request.",
            oldest,
        );
        let help = "Approval requests that expired without an answer.";
        text.one("haft_approvals_expired_total", "counter", help, self.approvals_expired);
        text.head(
            "haft_webhooks_total",
            "counter",
            "Failed attempts and deliveries of webhooks, by outcome.",
        );
        for (outcome, count) in &self.webhooks {
            text.row("haft_webhooks_total", &[("outcome", outcome)], count);
        }
    }

    fn write_runs(&self, text: &mut MetricsText) {
        text.one(
            "haft_runs_started_total",
            "counter",
            "Started runs, including runs of sub-agents.",
            self.runs_started,
        );
        text.head("haft_runs_finished_total", "counter", "Ended runs, by the reason for the end.");
        for (reason, count) in &self.runs_finished {
            text.row("haft_runs_finished_total", &[("reason", reason)], count);
        }
        text.one("haft_turns_total", "counter", "Model replies that runs used (turns).", self.turns);
        text.head("haft_model_requests_total", "counter", "Model requests, by outcome.");
        for (outcome, timing) in &self.model_requests {
            text.row("haft_model_requests_total", &[("outcome", outcome)], timing.count);
        }
        text.head("haft_model_seconds_total", "counter", "Duration of model requests.");
        for (outcome, timing) in &self.model_requests {
            text.row("haft_model_seconds_total", &[("outcome", outcome)], timing.seconds);
        }
        text.head("haft_tokens_total", "counter", "Tokens used by models.");
        text.row("haft_tokens_total", &[("kind", "input")], self.input_tokens);
        text.row("haft_tokens_total", &[("kind", "output")], self.output_tokens);
        let (whole, nano) = (self.cost_nano_usd / 1_000_000_000, self.cost_nano_usd % 1_000_000_000);
        let cost = format!("{whole}.{nano:09}");
        text.one("haft_cost_usd_total", "counter", "Cost of requests to models with a known price.", cost);
        text.head("haft_tool_calls_total", "counter", "Tool calls, by tool and outcome.");
        for ((tool, outcome), timing) in &self.tool_calls {
            text.row("haft_tool_calls_total", &[("tool", tool), ("outcome", outcome)], timing.count);
        }
        text.head("haft_tool_seconds_total", "counter", "Duration of tool calls, by tool and outcome.");
        for ((tool, outcome), timing) in &self.tool_calls {
            text.row("haft_tool_seconds_total", &[("tool", tool), ("outcome", outcome)], timing.seconds);
        }
    }
}

fn write_queue(text: &mut MetricsText, queue: &RunQueueStats) {
    text.one("haft_runs_running", "gauge", "Runs in progress.", queue.running);
    text.one("haft_run_queue_depth", "gauge", "Runs that wait in the queue.", queue.waiting);
    let oldest = queue.oldest_wait.as_secs_f64();
    text.one(
        "haft_run_queue_oldest_wait_seconds",
        "gauge",
        "Time that the oldest waiting run has waited.",
        oldest,
    );
    let help = "Admitted runs, including runs that did not wait.";
    text.one("haft_run_queue_admitted_total", "counter", help, queue.admitted_total);
    let waited = queue.waited_total.as_secs_f64();
    text.one("haft_run_queue_wait_seconds_total", "counter", "Total time that admitted runs waited.", waited);
    text.head("haft_run_queue_refused_total", "counter", "Runs refused because the queue was full.");
    let refused = [("tenant", queue.refused_for_tenant_total), ("server", queue.refused_for_all_total)];
    for (limit, count) in refused {
        text.row("haft_run_queue_refused_total", &[("limit", limit)], count);
    }
}

fn write_servers(text: &mut MetricsText, (name, help): (&str, &str), servers: &ServerStates) {
    text.head(name, "gauge", help);
    for ((server, state), count) in servers {
        text.row(name, &[("server", server), ("state", state)], count);
    }
}

fn write_circuits(text: &mut MetricsText, circuits: &[(String, &'static str)]) {
    let help =
        "Model providers in fallback chains, by state: 1 for the current state. Runs skip an open one.";
    text.head("haft_model_provider_circuit", "gauge", help);
    for (provider, current) in circuits {
        for state in CIRCUIT_STATES {
            let labels = [("provider", provider.as_str()), ("state", state)];
            text.row("haft_model_provider_circuit", &labels, u8::from(state == *current));
        }
    }
}

/// Builds the Prometheus text format.
#[derive(Debug, Default)]
struct MetricsText(String);

impl MetricsText {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn row(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let _ = writeln!(self.0, "{name}{{{}}} {value}", labels.join(","));
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use haft_core::event::KnownTool;
    use haft_core::name::ToolName;
    use haft_core::naming::ToolIdentity;

    use super::*;

    fn known(kind: ProviderKind, namespace: &str, name: &str) -> ToolReference {
        let tool = ToolName::new(name).unwrap();
        let namespace = Namespace::new(namespace).unwrap();
        let identity = ToolIdentity { kind, namespace, tool: tool.clone() };
        ToolReference::Known(Arc::new(KnownTool { exposed: tool, identity, description: "".into() }))
    }

    #[test]
    fn tool_labels_have_a_bounded_number_of_escaped_values() {
        let metrics = Metrics::default();
        metrics.values().servers = ["docs".to_owned()].into();
        for number in 0..2 * TOOLS_MAX {
            // Count the tools of clients and models first: they must not use up the labels for the tools of the
            // operator.
            let far = known(ProviderKind::Mcp, "far", &format!("far__{number}"));
            metrics.values().tool_call(&far, "ok", Duration::ZERO);
            let function = known(ProviderKind::Client, "client", &format!("function_{number}"));
            metrics.values().tool_call(&function, "ok", Duration::ZERO);
            let written = ToolReference::Written(format!("made up {number}"));
            metrics.values().tool_call(&written, "unknown_tool", Duration::ZERO);
        }
        for number in 0..2 * TOOLS_MAX {
            let tool = known(ProviderKind::Mcp, "docs", &format!("docs__{number}"));
            metrics.values().tool_call(&tool, "ok", Duration::from_millis(500));
        }
        let text = metrics.text(&ServerGauges::default());
        let rows = text.lines().filter(|line| line.starts_with("haft_tool_calls_total{")).count();
        assert_eq!(rows, TOOLS_MAX + 3, "the other rows are `client`, and `other` with two outcomes");
        assert!(text.contains(r#"haft_tool_calls_total{tool="docs__0",outcome="ok"} 1"#), "{text}");
        assert!(text.contains(r#"haft_tool_calls_total{tool="client",outcome="ok"} 400"#), "{text}");
        let mut escaped = MetricsText::default();
        escaped.row("m", &[("tool", "a\"\n")], 1);
        assert_eq!(escaped.0, "m{tool=\"a\\\"\\n\"} 1\n");
        assert!(text.contains(r#"haft_tool_calls_total{tool="other",outcome="unknown_tool"} 200"#), "{text}");
        assert!(!text.contains("made up"), "{text}");
    }

    #[test]
    fn every_metric_has_help_and_type() {
        let metrics = Metrics::default();
        metrics.request("/v1/responses", 200, Duration::from_millis(250));
        metrics.refused("requests");
        let text = metrics.text(&ServerGauges { active_responses: 3, ..ServerGauges::default() });
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
        }
        let rows = [
            r#"haft_http_requests_total{route="/v1/responses",status="200"} 1"#,
            r#"haft_http_request_seconds_total{route="/v1/responses",status="200"} 0.25"#,
            "haft_responses_active 3",
            r#"haft_rate_limited_total{limit="requests"} 1"#,
        ];
        for row in rows {
            assert!(text.contains(row), "{row}: {text}");
        }
    }
}

//! `Server`: binds the address, serves requests, and shuts down gracefully.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use haft_config::ResolvedConfig;
use haft_config::resolved::{ServeRunLimits, ServeSettings};
use haft_config::skills::{SkillError, Skills};
use haft_core::event::EventSink;
use haft_core::principal::Principal;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_runtime::runs::{RunAdmission, RunPermit};
use haft_runtime::{RunQueueLimits, Runtime};
use haft_store::access_log::AccessLogFile;
use haft_store::api_keys::ApiKeyStore;
use haft_store::audit_log::AuditEvent;
use haft_store::conversations::ConversationStore;
use haft_store::idempotency::FileIdempotencyKeys;
use haft_store::responses::ResponseStore;
use haft_store::retention::TenantData;
use haft_store::seal_keys::SealKeyStore;
use haft_store::workspaces::WorkspaceStore;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::accept;
use crate::access::AccessRules;
use crate::agents::{AgentCatalog, CurrentAgents};
use crate::audit::AuditLog;
use crate::auth::{KeyRing, now_ms};
use crate::error::{ApiError, ApiErrorKind};
use crate::failed_logins::FailedLogins;
use crate::mcp::McpGateway;
use crate::mcp::http::{GatewayAccess, HttpGateway};
use crate::metrics::Metrics;
use crate::pending_approvals::{self, PendingApprovalStats, PendingApprovals};
use crate::rate_limit::{self, RateLimits, ResponseSlot};
use crate::responses::{
    Continuations, CutRequests, LiveResponses, RESTART_S, continue_unfinished, read_unfinished,
};
use crate::router::router;
use crate::server_threads::ServerThreads;
use crate::settings::{AuthMode, ServerSettings};
use crate::storage_limits::{self, TenantSizes};
use crate::store_errors::StoreErrors;
use crate::sweeper::sweep_repeatedly;
use crate::tls::ServerTls;
use crate::token::AccessTokens;
use crate::tool_switchboard::ToolSwitchboard;
use crate::unknown_fields::UnknownFields;
use crate::used_approvals::UsedApprovals;
use crate::waiting_calls::{self, WaitingCalls};
use crate::webhook::Webhook;

/// A server that is bound to its address. It serves requests when [`run`](Server::run) is called.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<ServerState>,
    threads: ServerThreads,
    mcp: Option<MountedMcp>,
}

/// The MCP gateway of a server.
pub(crate) struct MountedMcp {
    pub(crate) gateway: Arc<HttpGateway>,
    pub(crate) routes: ServedRoutes,
}

/// Selects the routes of a server with an MCP gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServedRoutes {
    /// The server has all routes.
    All,
    /// The server has only the MCP gateway and the health checks.
    McpOnly,
}

/// The state that all handlers share.
pub(crate) struct ServerState {
    pub(crate) settings: ServerSettings,
    pub(crate) runtime: Runtime,
    pub(crate) agents: CurrentAgents,
    pub(crate) access: AccessRules,
    pub(crate) keys: KeyRing,
    pub(crate) tokens: AccessTokens,
    /// The TLS certificate; `None` for plain HTTP.
    tls: Option<ServerTls>,
    pub(crate) responses: ResponseStore,
    pub(crate) conversations: ConversationStore,
    pub(crate) idempotency: FileIdempotencyKeys,
    pub(crate) seal_keys: SealKeyStore,
    pub(crate) workspaces: WorkspaceStore,
    pub(crate) tenant_data: TenantData,
    pub(crate) tenant_sizes: TenantSizes,
    pub(crate) live: Arc<LiveResponses>,
    pub(crate) continuations: Continuations,
    pub(crate) pending_approvals: PendingApprovals,
    /// The calls of MCP clients that wait for approval.
    pub(crate) waiting_calls: WaitingCalls,
    pub(crate) used_approvals: UsedApprovals,
    pub(crate) cut_requests: CutRequests,
    pub(crate) webhook: Webhook,
    pub(crate) metrics: Metrics,
    pub(crate) store_errors: Arc<StoreErrors>,
    pub(crate) unknown_fields: UnknownFields,
    pub(crate) limits: RateLimits,
    pub(crate) failed_logins: FailedLogins,
    pub(crate) access_log: AccessLogFile,
    pub(crate) audit: AuditLog,
    pub(crate) switchboard: ToolSwitchboard,
    /// True after the server was asked to stop.
    stopping: watch::Sender<bool>,
    /// The number of responses and compactions that are in progress.
    active: watch::Sender<usize>,
    /// The time at which the server started, in seconds since 1970.
    pub(crate) started_s: u64,
}

impl ServerState {
    /// Returns true if the server was asked to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the server is asked to stop.
    pub(crate) async fn stopped(&self) {
        // Waiting cannot fail, because the sender lives as long as this state.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Returns the number and the age of the approval requests that wait, of responses and of MCP clients.
    pub(crate) fn approval_stats(&self) -> PendingApprovalStats {
        let now_ms = now_ms();
        self.pending_approvals.stats(now_ms).and(self.waiting_calls.stats(now_ms))
    }

    /// Returns the number of responses in progress.
    pub(crate) fn active_responses(&self) -> usize {
        *self.active.borrow()
    }

    /// Waits until no response and no compaction is in progress.
    async fn drained(&self) {
        let _ = self.active.subscribe().wait_for(|active| *active == 0).await;
    }
}

/// A guard that counts a response or a compaction as in progress. Dropping the guard ends the count.
pub(crate) struct ActiveWork {
    state: Arc<ServerState>,
    /// Counts the response towards the limit of its key.
    _slot: Option<ResponseSlot>,
}

impl ActiveWork {
    /// Begins work for a new request, unless the server is stopping.
    pub(crate) fn admit(state: &Arc<ServerState>) -> Result<Self, ApiError> {
        // Count the work before the check. Otherwise the server could stop between the two, and would not wait.
        let active = Self::begin(state);
        if state.is_stopping() {
            let message = "the server is stopping and accepts no new responses";
            return Err(ApiError::new(ApiErrorKind::Unavailable, message).after(RESTART_S));
        }
        Ok(active)
    }

    pub(crate) fn begin(state: &Arc<ServerState>) -> Self {
        Self::continued(state, rate_limit::take_slot())
    }

    /// Counts a response of an earlier process as in progress. Never refuses it, because the earlier process has
    /// accepted it.
    pub(crate) fn continued(state: &Arc<ServerState>, slot: Option<ResponseSlot>) -> Self {
        state.active.send_modify(|active| *active += 1);
        Self { state: Arc::clone(state), _slot: slot }
    }

    pub(crate) fn state(&self) -> &Arc<ServerState> {
        &self.state
    }
}

/// Admits a run that an MCP client starts, unless the server is stopping. The server waits for the run when it stops, as
/// it waits for a response.
fn admit_run(state: &Arc<ServerState>, owner: &Principal) -> Result<RunPermit, ToolError> {
    let stopping = |error: ApiError| {
        let wait = error.retry_after_s.map(|seconds| format!("; try again in {seconds} s"));
        let message = format!("{}{}", error.message, wait.unwrap_or_default());
        ToolError::new(ToolErrorKind::Unavailable, message)
    };
    let active = ActiveWork::admit(state).map_err(stopping)?;
    Ok(RunPermit::holding(Some((active, rate_limit::admit_run(state, owner)?))))
}

impl Drop for ActiveWork {
    fn drop(&mut self) {
        self.state.active.send_modify(|active| *active -= 1);
    }
}

/// The files of a running server, as a reload has read them.
#[derive(Debug)]
pub struct ReloadedFiles {
    /// The configuration.
    pub config: ResolvedConfig,
    /// The agents that requests can name.
    pub agents: AgentCatalog,
    /// The skills that requests can trigger.
    pub skills: Skills,
    /// The MCP gateway with the new configuration and agents; `None` for a server without a gateway.
    pub gateway: Option<McpGateway>,
}

/// Replaces the configuration, the agents and the skills of a running server, and counts reloads in the metrics.
pub struct ConfigReloads {
    state: Arc<ServerState>,
    mcp: Option<Arc<HttpGateway>>,
    /// A second runtime, which runs only the agents of the MCP gateway; `None` if the server's runtime runs them.
    runtime: Option<Runtime>,
    /// The URL of this server for a browser on the same machine; `None` if the server also listens for other machines.
    own_address: Option<String>,
}

impl ConfigReloads {
    /// Also reloads `runtime`, which runs the agents of the MCP gateway; `None` if the server's own runtime runs them.
    #[must_use]
    pub fn with_runtime(mut self, runtime: Option<Runtime>) -> Self {
        self.runtime = runtime;
        self
    }

    /// Uses the new files for later runs and for later calls of MCP clients, and returns the warnings about the files.
    /// If an agent or a skill has an error that it did not have before, or the server cannot use the certificate or the
    /// secret of the webhook, keeps all old files and returns the errors.
    pub async fn apply(&self, files: ReloadedFiles) -> Result<Vec<String>, Vec<String>> {
        let ReloadedFiles { config, agents, skills, gateway } = files;
        let mut errors = agents.new_errors(&self.state.agents.get());
        errors.extend(new_skill_errors(&skills, &self.state.runtime.skills()));
        errors.extend(webhook_problem(&config.serve).map(|problem| ServeError::Webhook(problem).to_string()));
        let certificate = match self.new_certificate(&config.serve) {
            Ok(certificate) if errors.is_empty() => certificate,
            certificate => {
                errors.extend(certificate.err().map(|error| error.to_string()));
                self.refuse();
                return Err(errors);
            }
        };
        if let Some((tls, next)) = self.state.tls.as_ref().zip(certificate) {
            tls.replace(next);
        }
        let mut warnings: Vec<String> = agents.warnings().chain(skill_warnings(&skills)).collect();
        let address = browser_address(&config.serve, self.own_address.as_deref());
        self.state.agents.replace(agents);
        warnings.extend(self.apply_config(config, skills).await);
        // Reload the gateway last, because the runs of its agents need the new configuration.
        if let Some((mcp, gateway)) = self.mcp.as_ref().zip(gateway) {
            mcp.replace(gateway, address);
        }
        Ok(warnings)
    }

    /// Reads the files of the certificate again; `None` if the server or the new configuration has no certificate.
    fn new_certificate(&self, serve: &ServeSettings) -> Result<Option<ServerTls>, ServeError> {
        let files = self.state.tls.as_ref().and(serve.tls.as_ref());
        files.map(ServerTls::load).transpose().map_err(ServeError::Tls)
    }

    async fn apply_config(&self, config: ResolvedConfig, skills: Skills) -> Vec<String> {
        self.state.metrics.reloaded("ok");
        self.state.metrics.set_servers(&config, &skills);
        self.state.runtime.queue().set_limits(queue_limits(&config.serve));
        self.state.tokens.replace(config.serve.clone());
        if let Some(runtime) = &self.runtime {
            // Ignore the warnings of this runtime, because the server's runtime returns the same warnings.
            runtime.reload_with_skills(config.clone(), skills.clone()).await;
        }
        let warnings = self.state.runtime.reload_with_skills(config, skills).await;
        self.state.audit.note(AuditEvent::ConfigReloaded);
        warnings
    }

    /// Counts a reload with an invalid configuration. The old configuration stays in use.
    pub fn refuse(&self) {
        self.state.metrics.reloaded("refused");
        self.state.audit.note(AuditEvent::ConfigRefused);
    }
}

impl fmt::Debug for ConfigReloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigReloads")
    }
}

/// Returns the errors in the files of skills that had no error before.
fn new_skill_errors(skills: &Skills, before: &Skills) -> Vec<String> {
    let is_new = |error: &&SkillError| before.errors.iter().all(|old| old.path != error.path);
    skills.errors.iter().filter(is_new).map(ToString::to_string).collect()
}

/// Returns the warnings about the skills that the server does not use.
fn skill_warnings(skills: &Skills) -> impl Iterator<Item = String> {
    skills.errors.iter().map(|error| format!("the server ignores a skill with an error: {error}"))
}

/// Returns the address that a user's browser can open: the public address, or the address of this machine.
fn browser_address(serve: &ServeSettings, own: Option<&str>) -> Option<String> {
    serve.public_url.clone().or_else(|| own.map(str::to_owned))
}

fn webhook_problem(serve: &ServeSettings) -> Option<String> {
    serve.approval_webhook.as_ref().and_then(|webhook| webhook.secret.clone().err())
}

fn queue_limits(serve: &ServeSettings) -> RunQueueLimits {
    let ServeRunLimits { concurrent_runs_max, waiting_runs_max } = serve.run_limits;
    RunQueueLimits { concurrent_runs_max, waiting_runs_max }
}

/// The time that connections have to close after their last response, and that suspended runs have to write their
/// journals.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The reason why a server does not start.
#[derive(Debug)]
pub enum ServeError {
    /// A server without API keys must not be reachable from other machines.
    OpenWithoutKeys {
        /// The requested address.
        address: SocketAddr,
    },
    /// The address cannot be bound.
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The operating system error.
        error: io::Error,
    },
    /// The file with the API keys cannot be read.
    Keys(io::Error),
    /// The file with the tools that were turned off cannot be read.
    Switches(io::Error),
    /// The certificate or its private key cannot be used.
    Tls(String),
    /// The secret of the webhook cannot be used.
    Webhook(String),
    /// The threads that serve connections cannot be started.
    Threads(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenWithoutKeys { address } => {
                write!(f, "a server without API keys may listen only on a loopback address; got {address}")
            }
            Self::Bind { address, error } => write!(f, "the server cannot listen on {address}: {error}"),
            Self::Keys(error) => write!(f, "the server cannot read its API keys: {error}"),
            Self::Switches(error) => {
                write!(f, "the server cannot read which tools are turned off: {error}")
            }
            Self::Webhook(problem) => write!(f, "the server cannot sign its webhooks: {problem}"),
            Self::Threads(error) => write!(f, "the server cannot start its threads: {error}"),
            Self::Tls(problem) => write!(f, "the server cannot use the TLS certificate: {problem}"),
        }
    }
}

impl std::error::Error for ServeError {}

impl Server {
    /// Binds the address. Requests wait until [`run`](Self::run) is called.
    pub async fn bind(
        settings: ServerSettings,
        runtime: Runtime,
        agents: AgentCatalog,
    ) -> Result<Self, ServeError> {
        let address = settings.address;
        webhook_problem(&settings.serve).map_or(Ok(()), |problem| Err(ServeError::Webhook(problem)))?;
        runtime.queue().set_limits(queue_limits(&settings.serve));
        if settings.auth == AuthMode::NoAuth && !address.ip().is_loopback() {
            return Err(ServeError::OpenWithoutKeys { address });
        }
        let keys = KeyRing::open(ApiKeyStore::of(runtime.home())).map_err(ServeError::Keys)?;
        let tls = settings.serve.tls.as_ref().map(ServerTls::load).transpose().map_err(ServeError::Tls)?;
        let unusable = |error| ServeError::Bind { address, error };
        let listener = TcpListener::bind(address).await.map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let access = AccessRules::of(&settings, address);
        let home = runtime.home();
        let (responses, conversations) = (ResponseStore::of(home), ConversationStore::of(home));
        let idempotency = FileIdempotencyKeys::of(home);
        let (metrics, log) = (Metrics::default(), settings.log.clone());
        let store_errors = Arc::new(StoreErrors::new(metrics.clone(), log.clone()));
        let limits = RateLimits::of(home, Arc::clone(&store_errors));
        metrics.set_servers(&runtime.config(), &runtime.skills());
        runtime.watch(Arc::new(metrics.clone()));
        runtime.watch(Arc::new(limits.clone()));
        let tokens = AccessTokens::new(settings.serve.clone(), metrics.clone());
        let access_log = AccessLogFile::of(home);
        let audit = AuditLog::of(home, metrics.clone());
        runtime.watch(Arc::new(audit.clone()));
        let seal_keys = SealKeyStore::of(home);
        let workspaces = WorkspaceStore::of(home);
        let (pending_approvals, used_approvals) = (PendingApprovals::of(home), UsedApprovals::of(home));
        let tenant_data = TenantData::of(home);
        let switchboard = ToolSwitchboard::open(&runtime).map_err(ServeError::Switches)?;
        let state = ServerState {
            settings,
            runtime,
            agents: CurrentAgents::new(agents),
            access,
            keys,
            tokens,
            tls,
            responses,
            conversations,
            idempotency,
            seal_keys,
            workspaces,
            tenant_data,
            tenant_sizes: TenantSizes::default(),
            live: Arc::default(),
            continuations: Continuations::default(),
            pending_approvals,
            waiting_calls: WaitingCalls::default(),
            used_approvals,
            cut_requests: CutRequests::default(),
            webhook: Webhook::new(metrics.clone()),
            store_errors,
            unknown_fields: UnknownFields::new(log),
            metrics,
            limits,
            failed_logins: FailedLogins::default(),
            access_log,
            audit,
            switchboard,
            stopping: watch::Sender::new(false),
            active: watch::Sender::new(0),
            started_s: now_ms() / 1000,
        };
        let threads = ServerThreads::start().map_err(ServeError::Threads)?;
        Ok(Self { listener, address, state: Arc::new(state), threads, mcp: None })
    }

    /// Adds the MCP gateway at `/mcp`.
    #[must_use]
    pub fn with_mcp(mut self, gateway: McpGateway, routes: ServedRoutes) -> Self {
        let access = GatewayAccess { auth: self.state.settings.auth, routes };
        // Without the native API, no caller could decide about a call that waits for approval.
        let approvers = match (self.state.settings.auth, routes) {
            (AuthMode::Keys, ServedRoutes::All) => Some(waiting_calls::approvers(&self.state)),
            (AuthMode::NoAuth, _) | (_, ServedRoutes::McpOnly) => None,
        };
        let address = browser_address(&self.state.settings.serve, self.own_address().as_deref());
        let gateway = HttpGateway::new(gateway, (access, approvers), address);
        self.mcp = Some(MountedMcp { gateway, routes });
        self
    }

    /// Returns the address that a browser on this machine can open, if the server listens only on this machine.
    fn own_address(&self) -> Option<String> {
        self.address.ip().is_loopback().then(|| self.url())
    }

    /// Returns the agents that requests can use now.
    pub fn agents(&self) -> Arc<AgentCatalog> {
        self.state.agents.get()
    }

    /// Returns the runtime, which all runs share.
    pub fn runtime(&self) -> &Runtime {
        &self.state.runtime
    }

    /// Returns the check that a run of this server's runtime must pass if it is started without a request for a
    /// response. An example is the run of an agent that a client calls through the MCP gateway. The check covers the
    /// disk space and the limits of the key.
    pub fn run_admission(&self) -> RunAdmission {
        let state = Arc::clone(&self.state);
        Arc::new(move |owner: &Principal| {
            storage_limits::check(&state, owner).map_err(ToolError::from)?;
            admit_run(&state, owner)
        })
    }

    /// Returns the check for runs of a runtime that is not the server's own, as in `haft mcp serve --http`. The check
    /// enforces the limits of the API key. From this call on, the tokens and the cost of that runtime count. The check
    /// ignores the disk space, because the limits of `serve` are not meant for the data of the local user.
    pub fn run_admission_to(&self, runtime: &Runtime) -> RunAdmission {
        runtime.watch(Arc::new(self.state.limits.clone()));
        let state = Arc::clone(&self.state);
        Arc::new(move |owner: &Principal| admit_run(&state, owner))
    }

    /// Returns the sinks that record the calls of MCP clients: the metrics, the audit log, and the tokens and the cost of
    /// the key. The runs of agents have these sinks already.
    pub fn call_sinks(&self) -> Vec<Arc<dyn EventSink>> {
        let ServerState { metrics, audit, limits, .. } = &*self.state;
        vec![Arc::new(metrics.clone()), Arc::new(audit.clone()), Arc::new(limits.clone())]
    }

    /// Returns a handle that replaces the configuration while the server runs.
    pub fn reloads(&self) -> ConfigReloads {
        let mcp = self.mcp.as_ref().map(|mounted| Arc::clone(&mounted.gateway));
        ConfigReloads { state: Arc::clone(&self.state), mcp, runtime: None, own_address: self.own_address() }
    }

    /// Returns the server's URL, built from its address.
    pub fn url(&self) -> String {
        let scheme = if self.state.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the address that the server listens on. If port 0 was requested, it has the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests until `stop` resolves. After that, `/readyz` fails and no run starts. Responses and compactions
    /// in progress have the drain timeout to finish. Background responses are suspended as soon as no tool runs, and the
    /// next process continues them.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) {
        let Self { listener, state, threads, mcp, .. } = self;
        let app = router(&state, mcp.as_ref());
        state.audit.note(AuditEvent::ServerStarted);
        let serves_api = !matches!(mcp, Some(MountedMcp { routes: ServedRoutes::McpOnly, .. }));
        // A server with only the MCP gateway does not sweep: it stores no responses, and the limits of `serve` are not
        // meant for the data of the local user.
        let sweeping = serves_api.then(|| tokio::spawn(sweep_repeatedly(Arc::clone(&state))));
        if serves_api {
            read_unfinished(&state);
            threads.handles().spawn(continue_unfinished(Arc::clone(&state)));
            tokio::spawn(pending_approvals::expire(Arc::clone(&state)));
            // Read the unannounced approval requests before the server accepts requests, because the responses of this
            // process announce their approval requests themselves.
            let unannounced = state.pending_approvals.unannounced();
            tokio::spawn(pending_approvals::announce_again(Arc::clone(&state), unannounced));
        }
        let mcp = mcp.map(|mounted| mounted.gateway);
        let (closing, closed) = oneshot::channel();
        let (drained, sessions) = (Arc::clone(&state), mcp.clone());
        let signal = async move {
            stop.await;
            drained.stopping.send_replace(true);
            // End the sessions of the gateway now. Otherwise their streams would stay open for the whole drain timeout.
            if let Some(sessions) = sessions {
                sessions.end_sessions();
            }
            // Keep the listener open during the drain timeout, so that a load balancer can read the state from
            // `/readyz`.
            if timeout(drained.settings.drain_timeout, drained.drained()).await.is_err() {
                drained.live.suspend_all();
                let _ = timeout(CLOSE_TIMEOUT, drained.drained()).await;
            }
            let _ = closing.send(());
        };
        let (serving, handles) = (Arc::clone(&state), threads.handles().clone());
        let mut served = tokio::spawn(async move {
            let settings = (&serving.settings, &handles);
            accept::serve(listener, app, settings, serving.tls.as_ref(), signal).await;
        });
        tokio::select! {
            _ = &mut served => {}
            Ok(()) = closed => drop(timeout(CLOSE_TIMEOUT, &mut served).await),
        }
        served.abort();
        if let Some(sweeping) = sweeping {
            sweeping.abort();
        }
        if let Some(mcp) = mcp {
            mcp.close().await;
        }
        state.runtime.shut_down().await;
        threads.stop().await;
        state.audit.note(AuditEvent::ServerStopped);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

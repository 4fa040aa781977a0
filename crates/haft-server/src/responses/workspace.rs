//! The workspace of a response: its directory, and the monitoring of its size.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use haft_config::resolved::{McpEndpoint, WorkspaceScope};
use haft_core::principal::Principal;
use haft_runtime::{RunHandle, WorkspaceSpec};
use haft_store::tenant::directory_of;
use haft_store::workspaces::{WorkspaceLease, WorkspaceName, occupied_bytes};
use tokio::task::JoinHandle;

use super::blocking;
use super::object::ResponseEnd;
use crate::auth::Caller;
use crate::error::{ApiError, ApiErrorKind};
use crate::server::ServerState;
use crate::storage_limits::RETRY_AFTER_S;

/// The shortest time between two measurements of a workspace. A command can exceed the limit for this time.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);

/// The minimum pause after a measurement, as a multiple of its duration. It limits the share of time that measurements
/// use.
const MEASURE_SHARE: u32 = 10;

/// The stable error code for a workspace that is too large.
pub(super) const QUOTA_CODE: &str = "workspace_quota_exceeded";

/// The workspace of a run that can run commands or read files. It stays in use until this value is dropped.
#[derive(Debug)]
pub(crate) struct ResponseWorkspace {
    lease: WorkspaceLease,
    /// The directory that commands see as `/tmp`.
    tmp: PathBuf,
    bytes_max: u64,
}

impl ResponseWorkspace {
    /// Returns the name of the workspace, for the stored response.
    pub(crate) fn name(&self) -> &str {
        self.lease.name().text()
    }
}

/// Opens the workspace of a new run. `known` is the name of the workspace that the conversation already has, and `id`
/// is the id of the response. A run that cannot use files works in the workspace of its owner, so that it can share MCP
/// servers with earlier runs. It needs the workspace only for servers that are processes, because only these write
/// files.
pub(crate) async fn open(
    state: &ServerState,
    caller: &Caller,
    uses_files: bool,
    known: Option<&str>,
    id: &str,
) -> Result<(WorkspaceSpec, Option<ResponseWorkspace>), ApiError> {
    let spec = |directory: PathBuf| WorkspaceSpec { directory, ..state.settings.workspace.clone() };
    let name = match &state.runtime.config().serve.workspaces.scope {
        WorkspaceScope::Directory(path) => return Ok((spec(path.clone()), None)),
        WorkspaceScope::Tenant => WorkspaceName::Tenant,
        WorkspaceScope::Conversation if !uses_files && !has_server_processes(state) => {
            return of_principal(state, &caller.principal).map(|spec| (spec, None));
        }
        WorkspaceScope::Conversation if !uses_files => WorkspaceName::Subject,
        WorkspaceScope::Conversation => match known.map(WorkspaceName::of_text) {
            Some(known @ WorkspaceName::Conversation(_)) => known,
            // The conversation used no files before, or it began in an earlier version, when all subjects of the tenant
            // shared one workspace.
            Some(WorkspaceName::Tenant | WorkspaceName::Subject) | None => {
                WorkspaceName::Conversation(id.to_owned())
            }
        },
    };
    let opened = lease(state, &caller.principal, name).await?;
    opened.check().await?;
    Ok((spec(opened.lease.directory().to_owned()), Some(opened)))
}

/// Opens the workspace of a run that continues. Creates an empty workspace if the old one expired in the meantime.
pub(crate) async fn reopen(
    state: &ServerState,
    owner: &Principal,
    name: Option<&str>,
) -> Result<Option<ResponseWorkspace>, ApiError> {
    match name {
        Some(name) => lease(state, owner, WorkspaceName::of_text(name)).await.map(Some),
        None => Ok(None),
    }
}

async fn lease(
    state: &ServerState,
    owner: &Principal,
    name: WorkspaceName,
) -> Result<ResponseWorkspace, ApiError> {
    let (store, opener) = (state.workspaces.clone(), owner.clone());
    let lease = blocking(move || store.open(&opener, name)).await?;
    let spec = WorkspaceSpec { directory: lease.directory().to_owned(), ..state.settings.workspace.clone() };
    let tmp = spec.private_tmp(owner, state.runtime.home());
    Ok(ResponseWorkspace { lease, tmp, bytes_max: state.runtime.config().serve.workspaces.bytes_max })
}

/// Returns true if a run may start an MCP server as a process.
fn has_server_processes(state: &ServerState) -> bool {
    let (config, skills) = (state.runtime.config(), state.runtime.skills());
    let of_skills = skills.skills.iter().flat_map(|skill| skill.servers.values());
    let mut servers = config.mcp_servers.values().chain(of_skills).filter(|server| server.enabled);
    servers.any(|server| matches!(server.reach, Ok(McpEndpoint::Process { .. })))
}

/// Returns the workspace for listing the tools of a principal. Runs that cannot use files work in the same workspace,
/// so they can use the MCP servers that the listing started.
pub(crate) fn of_listing(state: &ServerState, owner: &Principal) -> Result<WorkspaceSpec, ApiError> {
    match &state.runtime.config().serve.workspaces.scope {
        WorkspaceScope::Directory(path) => {
            Ok(WorkspaceSpec { directory: path.clone(), ..state.settings.workspace.clone() })
        }
        WorkspaceScope::Tenant | WorkspaceScope::Conversation => {
            if has_server_processes(state) {
                // Open the workspace, so that it has a record and expires. The listing ends before that, so it need not
                // hold the lease.
                let opened = state.workspaces.open(owner, WorkspaceName::Subject);
                opened.map_err(|error| unusable(&error))?;
            }
            of_principal(state, owner)
        }
    }
}

fn unusable(error: &io::Error) -> ApiError {
    ApiError::new(
        ApiErrorKind::ServerError,
        format!("the server cannot create the workspace of the run: {error}"),
    )
}

/// Returns a workspace with the directory of a principal, below haft's own workspace.
pub(crate) fn of_principal(state: &ServerState, owner: &Principal) -> Result<WorkspaceSpec, ApiError> {
    let root = state.runtime.home().workspace();
    let directory = root.join(directory_of(owner.tenant())).join(directory_of(owner.subject()));
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| unusable(&error))?;
    Ok(WorkspaceSpec { directory, ..state.settings.workspace.clone() })
}

impl ResponseWorkspace {
    /// Refuses a run in a workspace that is too large.
    async fn check(&self) -> Result<(), ApiError> {
        if self.measure().await {
            return Ok(());
        }
        let message = format!("{}; start a new conversation", too_large(self.bytes_max));
        let error = ApiError::new(ApiErrorKind::TooManyRequests, message).with_code(QUOTA_CODE);
        // A client must not retry by itself: only a person or another run can remove files.
        Err(error.not_retryable().after(RETRY_AFTER_S))
    }

    /// Returns true if the size of the workspace is within the limit. Returns false if the size cannot be measured.
    async fn measure(&self) -> bool {
        is_within(self.lease.directory().to_owned(), self.tmp.clone(), self.bytes_max).await
    }

    /// Watches the size while the run works, and cancels a run that exceeds the limit.
    pub(crate) fn watch(self, handle: RunHandle) -> WatchedWorkspace {
        let exceeded = Arc::new(AtomicBool::new(false));
        let (directory, tmp) = (self.lease.directory().to_owned(), self.tmp.clone());
        let (flag, bytes_max) = (Arc::clone(&exceeded), self.bytes_max);
        let task = tokio::spawn(async move {
            let mut pause = MEASURE_INTERVAL;
            loop {
                tokio::time::sleep(pause).await;
                let begun = Instant::now();
                if !is_within(directory.clone(), tmp.clone(), bytes_max).await {
                    flag.store(true, Ordering::Release);
                    return handle.cancel();
                }
                pause = MEASURE_INTERVAL.max(begun.elapsed() * MEASURE_SHARE);
            }
        });
        WatchedWorkspace { workspace: self, exceeded, task }
    }
}

async fn is_within(directory: PathBuf, tmp: PathBuf, bytes_max: u64) -> bool {
    let measured = tokio::task::spawn_blocking(move || {
        let bytes = occupied_bytes(&directory, bytes_max)?;
        occupied_bytes(&tmp, bytes_max).map(|more| bytes.saturating_add(more))
    });
    matches!(measured.await, Ok(Ok(bytes)) if bytes <= bytes_max)
}

fn too_large(bytes_max: u64) -> String {
    format!("the files of the workspace and its `/tmp` have more than {bytes_max} bytes")
}

/// The workspace of a run in progress, whose size is watched.
#[derive(Debug)]
pub(crate) struct WatchedWorkspace {
    workspace: ResponseWorkspace,
    exceeded: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl WatchedWorkspace {
    /// Returns the name of the workspace, for the stored response.
    pub(crate) fn name(&self) -> &str {
        self.workspace.name()
    }

    /// Returns the end of a response whose run was cancelled because of the size of its workspace.
    pub(crate) fn failure(&self) -> Option<ResponseEnd> {
        let failed = || {
            let message = format!("{}; the server stopped the run", too_large(self.workspace.bytes_max));
            ResponseEnd::failed("too_many_requests", QUOTA_CODE, message).after(RETRY_AFTER_S)
        };
        self.exceeded.load(Ordering::Acquire).then(failed)
    }
}

impl Drop for WatchedWorkspace {
    fn drop(&mut self) {
        self.task.abort();
    }
}

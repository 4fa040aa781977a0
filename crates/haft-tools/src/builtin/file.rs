//! Sends requests to the sandboxed file worker, after a fast policy check with a readable error.

use std::path::{Path, PathBuf};

use haft_core::output::ToolOutput;
use haft_core::provider::CallContext;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_sandbox::{
    SandboxMode, SandboxPolicy, SandboxStatus, WorkerPool, WorkspaceScan, is_read_blocked, is_write_allowed,
    is_write_blocked,
};
use serde_json::json;

use super::changes::note_changes;
use crate::files::{FileErrorKind, FileReply, FileRequest, FileText};
use crate::worker_request::exchange;

/// The access to a file that a tool needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileToolAccess {
    Read,
    Write,
}

/// Returns the path for the worker, or an error if the policy forbids the access.
///
/// The check runs on a blocking thread, because file system access may hang and must not block the runtime.
pub(super) async fn admit(
    written: &str,
    purpose: FileToolAccess,
    policy: &SandboxPolicy,
) -> Result<String, ToolError> {
    if written.is_empty() {
        return Err(ToolError::new(ToolErrorKind::InvalidArguments, "Error: the path is empty"));
    }
    let path = policy.workspace().join(written);
    let policy = policy.clone();
    let checked = tokio::task::spawn_blocking(move || check(path, purpose, &policy)).await;
    checked.map_err(|error| {
        ToolError::new(ToolErrorKind::Internal, "haft could not check whether the path is allowed")
            .with_source(error)
    })?
}

fn check(path: PathBuf, purpose: FileToolAccess, policy: &SandboxPolicy) -> Result<String, ToolError> {
    match purpose {
        FileToolAccess::Read if is_read_blocked(&path, policy) => {
            return Err(denied(format!("Read denied: {} is a protected path", path.display())));
        }
        FileToolAccess::Write if is_write_blocked(&path, policy) => {
            return Err(denied(format!("Write denied: {} is a protected path", path.display())));
        }
        FileToolAccess::Write if !is_write_allowed(&path, policy) => return Err(outside(&path, policy)),
        FileToolAccess::Read | FileToolAccess::Write => {}
    }
    path.into_os_string()
        .into_string()
        .map_err(|_| ToolError::new(ToolErrorKind::InvalidArguments, "Error: the path is not UTF-8"))
}

fn outside(path: &Path, policy: &SandboxPolicy) -> ToolError {
    let roots: Vec<String> = policy.writable_roots().iter().map(|root| root.display().to_string()).collect();
    let mode = match policy.mode() {
        mode @ (SandboxMode::Workspace | SandboxMode::Network | SandboxMode::Full) => mode.name(),
    };
    denied(format!(
        "Write denied: {} is outside the directories that {mode} mode may write: {}",
        path.display(),
        roots.join(", ")
    ))
}

fn denied(message: String) -> ToolError {
    ToolError::new(ToolErrorKind::Denied, message)
}

/// Executes the request in a sandboxed worker.
pub(super) async fn ask(
    request: &FileRequest,
    files: &WorkerPool,
    cx: &CallContext,
) -> Result<FileText, ToolError> {
    let unavailable = |error: &dyn std::fmt::Display| {
        ToolError::new(
            ToolErrorKind::Unavailable,
            format!("the process that runs the file tools failed: {error}"),
        )
    };
    let mut worker = files.take().await.map_err(|error| unavailable(&error))?;
    note_confinement(cx, worker.confinement());
    // On an error or a cancellation, drop the worker, which kills it. Otherwise the rest of its reply could be mistaken
    // for the next reply.
    let reply: FileReply =
        exchange(&mut worker.channel, request).await.map_err(|error| unavailable(&error))?;
    files.give_back(worker);
    reply.map_err(|error| ToolError::new(kind(error.kind), error.message))
}

/// Executes a request that writes one file. Records a new repository, or a file that other programs may execute, in the
/// receipt.
pub(super) async fn ask_to_write(
    path: &str,
    request: &FileRequest,
    files: &WorkerPool,
    cx: &CallContext,
) -> Result<FileText, ToolError> {
    let before = scan_around(path, files.policy()).await;
    let result = ask(request, files, cx).await;
    note_changes(cx, &before, &scan_around(path, files.policy()).await);
    result
}

async fn scan_around(path: &str, policy: &SandboxPolicy) -> WorkspaceScan {
    let (roots, path) = (policy.granted_by_operator(), PathBuf::from(path));
    tokio::task::spawn_blocking(move || WorkspaceScan::around(&roots, &path)).await.unwrap_or_default()
}

/// Returns the worker's text as a tool output, without truncating it.
pub(super) fn whole(text: FileText) -> ToolOutput {
    ToolOutput::text(text.text)
}

fn kind(kind: FileErrorKind) -> ToolErrorKind {
    match kind {
        FileErrorKind::Denied => ToolErrorKind::Denied,
        FileErrorKind::Failed => ToolErrorKind::Failed,
    }
}

/// Records the active sandbox layers in the call's receipt.
pub(super) fn note_confinement(cx: &CallContext, confinement: &SandboxStatus) {
    let layers: Vec<&str> =
        confinement.layers.iter().filter(|layer| layer.active).map(|layer| layer.name.as_str()).collect();
    cx.note(
        "sandbox",
        json!({ "level": confinement.level.name(), "layers": layers, "weaker": confinement.weaker }),
    );
}

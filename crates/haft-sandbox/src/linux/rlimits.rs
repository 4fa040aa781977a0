//! Resource limits for a command.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::namespaces::{self, LevelAttempt};
use super::stage::{InStage, StageError};
use crate::message::SandboxLayer;
use haft_core::settings::limits::CommandLimits;

/// The scope of the memory limit of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryLimitScope {
    OfEachProcess,
    /// A control group limits the memory of all processes of the call together.
    OfTheCall,
}

/// Sets the limits. Keeps a hard limit that is already lower.
pub(super) fn apply(
    attempt: LevelAttempt,
    memory: MemoryLimitScope,
    limits: &CommandLimits,
) -> Result<SandboxLayer, StageError> {
    lower(Resource::Nofile, limits.open_files_max)?;
    lower(Resource::Fsize, limits.file_bytes_max)?;
    lower(Resource::Cpu, limits.cpu_seconds_max)?;
    // RLIMIT_AS is not used, because Node, Go and Java reserve far more address space than they use.
    lower(Resource::Data, limits.memory_bytes_max)?;
    lower(Resource::Core, 0)?;
    if attempt == LevelAttempt::UserNamespaces {
        // Set this limit only in a user namespace, where the kernel counts only the processes of the call. Elsewhere,
        // the kernel would also count the user's other processes.
        lower(Resource::Nproc, limits.processes_max)?;
    }
    let memory = match memory {
        MemoryLimitScope::OfEachProcess => "memory per process",
        MemoryLimitScope::OfTheCall => "memory of the whole call",
    };
    let processes = if namespaces::bounds_processes(attempt) { "processes, " } else { "" };
    Ok(SandboxLayer::active(
        "limits",
        format!("{processes}open files, file size, CPU time, {memory}, no core dumps"),
    ))
}

fn lower(resource: Resource, value: u64) -> Result<(), StageError> {
    let now = getrlimit(resource);
    let value = now.maximum.map_or(value, |maximum| maximum.min(value));
    setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
        .stage("limits", format!("limiting {resource:?} to {value}"))
}

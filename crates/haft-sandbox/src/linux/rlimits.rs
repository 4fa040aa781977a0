//! Resource limits for a command.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::namespaces::{self, Attempt};
use super::stage::{Failure, InStage};
use crate::message::Layer;
use haft_core::settings::limits::Limits;

/// The scope of the memory limit, beyond the limit on each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    OfEachProcess,
    /// A control group counts all processes of the call together.
    OfTheCall,
}

/// Sets the limits; a hard limit that is already lower stays.
pub(super) fn apply(attempt: Attempt, memory: Memory, limits: &Limits) -> Result<Layer, Failure> {
    lower(Resource::Nofile, limits.open_files_max)?;
    lower(Resource::Fsize, limits.file_bytes_max)?;
    lower(Resource::Cpu, limits.cpu_seconds_max)?;
    // Not RLIMIT_AS: Node, Go and Java reserve far more address space than they ever use.
    lower(Resource::Data, limits.memory_bytes_max)?;
    lower(Resource::Core, 0)?;
    if attempt == Attempt::UserNamespaces {
        // The kernel counts these per user namespace, so the user's other processes do not count here.
        lower(Resource::Nproc, limits.processes_max)?;
    }
    let memory = match memory {
        Memory::OfEachProcess => "memory per process",
        Memory::OfTheCall => "memory of the whole call",
    };
    let processes = if namespaces::bounds_processes(attempt) { "processes, " } else { "" };
    Ok(Layer::active(
        "limits",
        format!("{processes}open files, file size, CPU time, {memory}, no core dumps"),
    ))
}

fn lower(resource: Resource, value: u64) -> Result<(), Failure> {
    let now = getrlimit(resource);
    let value = now.maximum.map_or(value, |maximum| maximum.min(value));
    setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
        .stage("limits", format!("limiting {resource:?} to {value}"))
}

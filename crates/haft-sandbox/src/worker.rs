//! Confined workers: haft's own functions that run in the sandbox. A worker starts once and serves many requests.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use tokio::net::UnixStream;

use crate::error::SandboxError;
use crate::launch::Launch;
use crate::launcher::Launcher;
use crate::message::{LaunchProgram, SandboxStatus};
use crate::plan::SandboxPlan;
use crate::policy::SandboxPolicy;
use crate::system::Lifeline;

/// One confined worker. Dropping it kills the process.
#[derive(Debug)]
pub struct SandboxedWorker {
    pub channel: UnixStream,
    confinement: SandboxStatus,
    plan: SandboxPlan,
    lifeline: Lifeline,
}

impl SandboxedWorker {
    /// Starts the named worker under the policy.
    pub async fn start(
        name: &str,
        policy: &SandboxPolicy,
        launcher: &Launcher,
    ) -> Result<Self, SandboxError> {
        Self::start_planned(name, policy, SandboxPlan::of(policy)?, launcher).await
    }

    async fn start_planned(
        name: &str,
        policy: &SandboxPolicy,
        plan: SandboxPlan,
        launcher: &Launcher,
    ) -> Result<Self, SandboxError> {
        let failed = |error: std::io::Error| SandboxError::launcher(&error);
        let (ours, theirs) = StdUnixStream::pair().map_err(failed)?;
        let mut lifeline = Lifeline::start(Launch {
            launcher,
            policy,
            plan: &plan,
            program: LaunchProgram::Worker(name.into()),
            words: &[],
            stdin: None,
            stdout: Stdio::from(OwnedFd::from(theirs)),
            stderr: Stdio::null(),
        })?;
        let confinement = lifeline.ready().await?;
        ours.set_nonblocking(true).map_err(failed)?;
        let channel = UnixStream::from_std(ours).map_err(failed)?;
        Ok(Self { channel, confinement, plan, lifeline })
    }

    pub fn confinement(&self) -> &SandboxStatus {
        &self.confinement
    }

    /// Stops the worker and waits until it has ended.
    pub async fn stop(self) {
        self.lifeline.cut().await;
    }
}

/// The maximum number of idle workers that a pool keeps for later calls.
const IDLE_WORKERS_MAX: usize = 4;

/// The idle workers of one kind under one policy.
#[derive(Debug)]
pub struct WorkerPool {
    name: &'static str,
    policy: SandboxPolicy,
    idle: Mutex<Vec<SandboxedWorker>>,
}

impl WorkerPool {
    pub fn new(name: &'static str, policy: SandboxPolicy) -> Self {
        Self { name, policy, idle: Mutex::default() }
    }

    pub fn policy(&self) -> &SandboxPolicy {
        &self.policy
    }

    /// Returns an idle worker, or starts a new one. Drops a worker whose plan is no longer valid, for example because a
    /// protected file was created after the worker started.
    pub async fn take(&self) -> Result<SandboxedWorker, SandboxError> {
        let plan = SandboxPlan::of(&self.policy)?;
        while let Some(worker) = self.pop() {
            if worker.plan == plan {
                return Ok(worker);
            }
        }
        SandboxedWorker::start_planned(self.name, &self.policy, plan, &Launcher::find()?).await
    }

    /// Returns a worker to the pool, ready for its next request. A worker in the middle of a request must be dropped
    /// instead.
    pub fn give_back(&self, worker: SandboxedWorker) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_WORKERS_MAX {
            idle.push(worker);
        }
    }

    /// Stops all idle workers and waits until they have ended.
    pub async fn stop(&self) {
        while let Some(worker) = self.pop() {
            worker.stop().await;
        }
    }

    fn pop(&self) -> Option<SandboxedWorker> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

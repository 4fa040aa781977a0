//! Confined workers: functions of ours that are started once and serve many requests.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use tokio::net::UnixStream;

use crate::error::SandboxError;
use crate::launch::Launch;
use crate::launcher::Launcher;
use crate::message::{Confinement, Program};
use crate::plan::Plan;
use crate::policy::Policy;
use crate::system::Lifeline;

/// One confined worker. Dropping it kills the process.
#[derive(Debug)]
pub struct Worker {
    pub channel: UnixStream,
    confinement: Confinement,
    plan: Plan,
    lifeline: Lifeline,
}

impl Worker {
    /// Starts the named worker under the policy.
    pub async fn start(name: &str, policy: &Policy, launcher: &Launcher) -> Result<Self, SandboxError> {
        Self::start_planned(name, policy, Plan::of(policy)?, launcher).await
    }

    async fn start_planned(
        name: &str,
        policy: &Policy,
        plan: Plan,
        launcher: &Launcher,
    ) -> Result<Self, SandboxError> {
        let failed = |error: std::io::Error| SandboxError::launcher(&error);
        let (ours, theirs) = StdUnixStream::pair().map_err(failed)?;
        let mut lifeline = Lifeline::start(Launch {
            launcher,
            policy,
            plan: &plan,
            program: Program::Worker(name.into()),
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

    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// Stops the worker and waits until it is gone.
    pub async fn stop(self) {
        self.lifeline.cut().await;
    }
}

/// The largest number of idle workers kept for later calls.
const IDLE_WORKERS_MAX: usize = 4;

/// Idle workers of one kind under one policy.
#[derive(Debug)]
pub struct Workers {
    name: &'static str,
    policy: Policy,
    idle: Mutex<Vec<Worker>>,
}

impl Workers {
    pub fn new(name: &'static str, policy: Policy) -> Self {
        Self { name, policy, idle: Mutex::default() }
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns an idle worker, or starts a new one. It drops a worker whose plan no longer holds, for example because a
    /// protected file has appeared since.
    pub async fn take(&self) -> Result<Worker, SandboxError> {
        let plan = Plan::of(&self.policy)?;
        while let Some(worker) = self.pop() {
            if worker.plan == plan {
                return Ok(worker);
            }
        }
        Worker::start_planned(self.name, &self.policy, plan, &Launcher::find()?).await
    }

    /// Returns a worker to the pool, ready for its next request. A worker in the middle of a request must be dropped
    /// instead.
    pub fn give_back(&self, worker: Worker) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_WORKERS_MAX {
            idle.push(worker);
        }
    }

    /// Stops all idle workers and waits until they are gone.
    pub async fn stop(&self) {
        while let Some(worker) = self.pop() {
            worker.stop().await;
        }
    }

    fn pop(&self) -> Option<Worker> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

//! Everything that is needed to start a confined process.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use crate::environment::environment;
use crate::launcher::Launcher;
use crate::message::LaunchProgram;
use crate::passwd;
use crate::plan::{SandboxPlan, UnixIdentity};
use crate::policy::SandboxPolicy;

/// The program to start, its plan and its streams.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) launcher: &'a Launcher,
    pub(crate) policy: &'a SandboxPolicy,
    pub(crate) plan: &'a SandboxPlan,
    pub(crate) program: LaunchProgram,
    /// The command line of a program; empty for a worker.
    pub(crate) words: &'a [OsString],
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Stdio,
    pub(crate) stderr: Stdio,
}

impl Launch<'_> {
    /// Builds the environment of the command and its launcher. No other variable of haft's own environment is passed
    /// on.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut built = environment(std::env::vars_os(), &self.policy.environment);
        if let Some(UnixIdentity { uid, .. }) = self.plan.identity {
            let nobody = || (uid.to_string(), self.plan.workspace.to_string_lossy().into_owned());
            let (name, home) = passwd::entry(uid).unwrap_or_else(nobody);
            built.retain(|(key, _)| key != "USER" && key != "HOME");
            built.extend([("USER".into(), name.into()), ("HOME".into(), home.into())]);
        }
        for given in &self.policy.variables {
            built.retain(|(key, _)| *key != given.name);
            built.push((given.name.clone(), given.value.clone()));
        }
        built
    }
}

//! Who decides about calls: the operator's rules, a person, and what that person said before.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haft_core::approval::{Answer, ApprovalRequest, Approver, Remembered};
use haft_core::digest::Digest;
use haft_core::name::ToolName;
use haft_core::rules::{Rules, Ruling};
use haft_core::validate::ValidArguments;

/// Without rules everything is allowed; without an approver what must be asked is denied.
#[derive(Clone, Default)]
pub struct Authority {
    pub rules: Rules,
    pub approver: Option<Arc<dyn Approver>>,
    /// Tools, by exposed name, one of whose arguments is a shell command line, and which.
    pub command_lines: HashMap<ToolName, String>,
    pub remembered: Memory,
}

impl Authority {
    /// The command line of a call, if the tool takes one.
    pub(crate) fn command_line<'a>(&self, tool: &ToolName, arguments: &'a ValidArguments) -> Option<&'a str> {
        arguments.value().get(self.command_lines.get(tool)?)?.as_str()
    }
}

/// What was answered for good, shared by all calls.
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<Mutex<Remembered>>);

impl Memory {
    pub fn new(remembered: Remembered) -> Self {
        Self(Arc::new(Mutex::new(remembered)))
    }

    /// What is remembered now, for whoever keeps it.
    pub fn snapshot(&self) -> Remembered {
        self.lock().clone()
    }

    pub(crate) fn covers(&self, rules: &Rules, ruling: &Ruling, digest: &Digest) -> bool {
        self.lock().covers(rules, ruling, digest)
    }

    pub(crate) fn remember(&self, request: &ApprovalRequest, answer: Answer) {
        self.lock().remember(request, answer);
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("rules", &self.rules)
            .field("approver", &self.approver.is_some())
            .field("command_lines", &self.command_lines)
            .finish_non_exhaustive()
    }
}

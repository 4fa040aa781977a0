//! The actions of one `claude` process that haft's hook has allowed.

use std::collections::VecDeque;

use super::control::CommandCall;

/// The maximum number of actions. The prompt follows the hook at once, so haft needs only the latest actions. The run
/// decides again about an older one.
const ALLOWED_ACTIONS_MAX: usize = 64;

/// The actions that the run has allowed. For each, the hook answered `ask`. If the permission prompt that follows has the
/// same arguments, haft grants the permission without a new decision.
#[derive(Debug, Default)]
pub(super) struct AllowedActions(VecDeque<CommandCall>);

impl AllowedActions {
    pub(super) fn add(&mut self, call: CommandCall) {
        if self.0.len() == ALLOWED_ACTIONS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(call);
    }

    /// Returns true if the call is the permission prompt for one of these actions.
    pub(super) fn cover(&self, prompt: &CommandCall) -> bool {
        self.0.iter().any(|hooked| prompt.repeats(hooked))
    }
}

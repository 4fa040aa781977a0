//! The permissions and limits of callers of the server, for API keys and access tokens alike.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A permission of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyScope {
    /// The routes below `/v1`, and `/mcp`.
    Api,
    /// The shell and file tools of the server, in the workspace of the caller.
    BuiltinTools,
    /// Decisions about calls that wait for approval.
    Approvals,
    /// Keys, configuration and the data of all tenants.
    Admin,
}

crate::name_table!(KeyScope {
    Api: "api",
    BuiltinTools: "builtin-tools",
    Approvals: "approvals",
    Admin: "admin",
});

impl fmt::Display for KeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The limits of a caller; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLimits {
    /// Requests below `/v1` and to `/mcp`, and the messages of a WebSocket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
    /// Input and output tokens of models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
    /// Responses that are in progress at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent_responses: Option<u32>,
    /// The cost of models in a month of UTC, in billionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nano_usd_per_month: Option<u64>,
}

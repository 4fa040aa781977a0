//! The permissions and limits of callers of the server, for both API keys and access tokens.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A permission that an API key or an access token gives its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyScope {
    /// Access to the routes below `/v1`, and to `/mcp`.
    Api,
    /// Use of the server's shell and file tools, in the workspace of the caller.
    BuiltinTools,
    /// The right to decide about calls that wait for approval.
    Approvals,
    /// Access to keys, to the configuration and to the data of all tenants.
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
    /// The maximum number of requests per minute below `/v1` and to `/mcp`, including the messages of a WebSocket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
    /// The maximum number of input and output tokens of models per minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
    /// The maximum number of responses that are in progress at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent_responses: Option<u32>,
    /// The maximum cost of models in a calendar month (UTC), in billionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nano_usd_per_month: Option<u64>,
}

//! The arguments of `haft serve` and `haft keys`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, Subcommand};
use haft_core::principal::Principal;
use haft_store::api_keys::KeyScope;

use super::FileArgs;

/// Serve the Open Responses API, for any OpenAI SDK
///
/// The first start creates an API key and prints it once. `haft keys` creates more keys.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft serve\n  haft serve --address 0.0.0.0:8484 --allow-host haft.example.com\n  haft serve --check"
)]
pub(crate) struct ServeArgs {
    /// The address to listen on
    #[arg(long, value_name = "IP:PORT", default_value_t = default_address())]
    pub(crate) address: SocketAddr,

    /// A host name that clients use for this server, in addition to localhost and the address
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,

    /// An origin whose web pages may send requests (CORS), such as `https://app.example.com`
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,

    /// Require no API key; allowed only on a loopback address
    #[arg(long)]
    pub(crate) no_auth: bool,

    /// Check the configuration, the API keys and the address, then exit
    #[arg(long)]
    pub(crate) check: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

fn default_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], haft_server::DEFAULT_PORT))
}

/// Create, list and revoke the API keys of `haft serve`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft keys create laptop\n  haft keys create ci --expires 90d --scope api\n  haft keys list\n  haft keys rotate key_1f2e3d4c5b6a\n  haft keys revoke key_1f2e3d4c5b6a"
)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Create an API key and print it; haft cannot show the key again
    #[command(
        after_help = "Examples:\n  haft keys create laptop\n  haft keys create ci --expires 90d --tenant acme --subject ci"
    )]
    Create(KeysCreateArgs),
    /// Replace an API key by a new one and print it; the old one stays valid for a while
    #[command(after_help = "Example:\n  haft keys rotate key_1f2e3d4c5b6a --overlap 24h")]
    Rotate(KeysRotateArgs),
    /// List the API keys, without their secrets
    #[command(after_help = "Examples:\n  haft keys list\n  haft keys list --json")]
    List {
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke API keys; a running server rejects them immediately
    #[command(after_help = "Example:\n  haft keys revoke key_1f2e3d4c5b6a")]
    Revoke {
        /// The key ids
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct KeysCreateArgs {
    /// A name that helps you to recognize the key
    pub(crate) name: String,

    /// The tenant (organisation) that the key belongs to; tenants share no data
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = tenant)]
    pub(crate) tenant: String,

    /// The user that requests with this key run as [default: the key name]
    #[arg(long, value_name = "NAME")]
    pub(crate) subject: Option<String>,

    /// A permission: api, builtin-tools, approvals or admin [default: api]
    #[arg(long = "scope", value_name = "SCOPE", value_parser = scope)]
    pub(crate) scopes: Vec<KeyScope>,

    /// The time after which the key expires, for example 12h or 90d [default: never]
    #[arg(long, value_name = "DURATION", value_parser = crate::settings::duration)]
    pub(crate) expires: Option<Duration>,

    /// The maximum number of requests per minute [default: no limit]
    #[arg(long, value_name = "COUNT")]
    pub(crate) requests_per_minute: Option<u32>,

    /// The maximum number of model tokens per minute [default: no limit]
    #[arg(long, value_name = "COUNT")]
    pub(crate) tokens_per_minute: Option<u64>,

    /// The maximum number of responses in progress at the same time [default: no limit]
    #[arg(long, value_name = "COUNT")]
    pub(crate) concurrent_responses: Option<u32>,

    /// The maximum cost of models per month, in US dollars [default: no limit]
    #[arg(long, value_name = "DOLLARS")]
    pub(crate) usd_per_month: Option<u32>,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KeysRotateArgs {
    /// The key id
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The time for which the old key stays valid, for example 10m, 24h, or 0 for a key that leaked
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = overlap)]
    pub(crate) overlap: Duration,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn overlap(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { crate::settings::duration(text) }
}

fn tenant(text: &str) -> Result<String, String> {
    if text == Principal::local().tenant() {
        // A key of this tenant could read and continue the sessions of the local user.
        return Err(format!(
            "the tenant `{text}` is reserved for the user at the terminal; choose another name"
        ));
    }
    if Principal::is_tenant_name(text) {
        return Ok(text.to_owned());
    }
    Err(format!("expected a name without `/`; got `{text}`"))
}

fn scope(text: &str) -> Result<KeyScope, String> {
    let names: Vec<&str> = KeyScope::ALL.iter().map(|scope| scope.name()).collect();
    KeyScope::from_name(text).ok_or_else(|| format!("expected one of {}; got `{text}`", names.join(", ")))
}

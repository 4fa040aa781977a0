//! `haft mcp login` and `haft mcp logout`: get and remove the token of a server.

use std::sync::Arc;

use haft_core::principal::Principal;
use haft_tools::mcp::{AuthError, Authorizer, KeyringPreference, LoopbackRedirect, OAuthGrant, OauthConsent};
use serde_json::json;

use super::super::args::FileArgs;
use super::super::cli_error::CliError;
use super::super::hints;
use super::super::settings;
use super::args::{McpLoginArgs, McpLogoutArgs};
use super::callback::TerminalConsent;
use super::{McpCommandOutput, unambiguous};
use haft_config::resolved::McpEndpoint;
use haft_runtime::wiring::{self, TokenStorage};

pub(super) async fn login(args: &McpLoginArgs) -> Result<McpCommandOutput, CliError> {
    let (reach, keyring) = reach(&args.files, &args.name)?;
    let consent: Option<Arc<dyn OauthConsent>> = match &reach {
        McpEndpoint::Remote { oauth, .. } if oauth.grant == OAuthGrant::Person => {
            let opened = LoopbackRedirect::open(oauth.redirect_port).await;
            Some(Arc::new(TerminalConsent(opened.map_err(|error| not_open(&error))?)))
        }
        McpEndpoint::Remote { .. } | McpEndpoint::Process { .. } => None,
    };
    let authorizer = authorizer(&args.name, &reach, keyring, consent)?;
    authorizer.login().await.map_err(|error| not_logged_in(&args.name, &error))?;
    let text = format!(
        "logged in at MCP server `{}`; test the server with `haft mcp test {}`",
        args.name, args.name
    );
    Ok(McpCommandOutput::new(text, json!({ "name": args.name, "loggedIn": true })))
}

pub(super) async fn logout(args: &McpLogoutArgs) -> Result<McpCommandOutput, CliError> {
    let (reach, keyring) = reach(&args.files, &args.name)?;
    let authorizer = authorizer(&args.name, &reach, keyring, None)?;
    let had = authorizer.forget().await.map_err(|error| {
        CliError::internal(format!("haft cannot remove the token of MCP server `{}`: {error}", args.name))
    })?;
    let text = if had {
        format!(
            "haft deleted the token of MCP server `{}` on this machine; the issuer still accepts the token until it expires",
            args.name
        )
    } else {
        format!("haft has no stored token for MCP server `{}`", args.name)
    };
    Ok(McpCommandOutput::new(text, json!({ "name": args.name, "forgotten": had })))
}

/// Returns the authorizer that holds the token of a server; `None` for a server that needs no login.
pub(super) fn authorizer_of(name: &str) -> Option<Authorizer> {
    let (reach, keyring) = reach(&FileArgs::default(), name).ok()?;
    authorizer(name, &reach, keyring, None).ok()
}

fn reach(files: &FileArgs, name: &str) -> Result<(McpEndpoint, KeyringPreference), CliError> {
    let config = settings::configuration(files)?.resolved;
    let reach = unambiguous(&config, name)?.reach.clone();
    Ok((reach.map_err(|reason| unusable(name, &reason))?, config.token_store))
}

fn authorizer(
    name: &str,
    reach: &McpEndpoint,
    keyring: KeyringPreference,
    consent: Option<Arc<dyn OauthConsent>>,
) -> Result<Authorizer, CliError> {
    let home = settings::home()?;
    let made = wiring::authorizer(
        name,
        reach,
        TokenStorage { home: &home, keyring, principal: &Principal::local() },
        consent,
    )
    .map_err(|reason| unusable(name, &reason))?;
    made.ok_or_else(|| {
        let hint =
            "a local server gets its credentials in `env`; a server with an `Authorization` header needs no login";
        CliError::input(format!("MCP server `{name}` does not use OAuth")).with_hint(hint)
    })
}

fn unusable(name: &str, reason: &str) -> CliError {
    CliError::input(format!("haft cannot use MCP server `{name}`: {reason}"))
}

fn not_open(error: &std::io::Error) -> CliError {
    let hint = "choose another port with `oauth.redirectPort`";
    CliError::unavailable(format!("haft cannot open a local port for the login redirect: {error}"))
        .with_hint(hint)
}

fn not_logged_in(name: &str, error: &AuthError) -> CliError {
    let message = format!("the login at MCP server `{name}` failed: {error}");
    CliError::unavailable(message).with_optional_hint(hints::login(name, error))
}

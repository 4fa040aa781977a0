//! `haft mcp login` and `haft mcp logout`: obtain and remove the token of a server.

use std::sync::Arc;

use haft_core::principal::Principal;
use haft_tools::mcp::{AuthError, Authorizer, Consent, Grant, Preference};
use serde_json::json;

use super::super::args::FileArgs;
use super::super::exit::Exit;
use super::super::hints;
use super::super::settings::{self, Refused};
use super::args::{LoginArgs, LogoutArgs};
use super::callback::Callback;
use super::{Answer, unambiguous};
use haft_config::resolved::McpReach;
use haft_runtime::wiring::{self, Keeping};

pub(super) async fn login(args: &LoginArgs) -> Result<Answer, Refused> {
    let (reach, keyring) = reach(&args.files, &args.name)?;
    let consent: Option<Arc<dyn Consent>> = match &reach {
        McpReach::Remote { oauth, .. } if oauth.grant == Grant::Person => {
            Some(Arc::new(Callback::open(oauth.redirect_port).await.map_err(|error| not_open(&error))?))
        }
        McpReach::Remote { .. } | McpReach::Process { .. } => None,
    };
    let authorizer = authorizer(&args.name, &reach, keyring, consent)?;
    authorizer.login().await.map_err(|error| not_logged_in(&args.name, &error))?;
    let text = format!("logged in at `{}`; try it with `haft mcp test {}`", args.name, args.name);
    Ok(Answer::new(text, json!({ "name": args.name, "loggedIn": true })))
}

pub(super) async fn logout(args: &LogoutArgs) -> Result<Answer, Refused> {
    let (reach, keyring) = reach(&args.files, &args.name)?;
    let authorizer = authorizer(&args.name, &reach, keyring, None)?;
    let had = authorizer.forget().await.map_err(|error| {
        (Exit::Internal, format!("the token of `{}` cannot be removed: {error}", args.name))
    })?;
    let text = if had {
        format!("the token of `{}` is forgotten here; its issuer still knows it until it expires", args.name)
    } else {
        format!("there was no token of `{}`", args.name)
    };
    Ok(Answer::new(text, json!({ "name": args.name, "forgotten": had })))
}

/// Returns the authorizer that holds the token of a server; `None` for a server without login.
pub(super) fn authorizer_of(name: &str) -> Option<Authorizer> {
    let (reach, keyring) = reach(&FileArgs::default(), name).ok()?;
    authorizer(name, &reach, keyring, None).ok()
}

fn reach(files: &FileArgs, name: &str) -> Result<(McpReach, Preference), Refused> {
    let config = settings::configuration(files)?.resolved;
    let reach = unambiguous(&config, name)?.reach.clone();
    Ok((reach.map_err(|reason| unusable(name, &reason))?, config.token_store))
}

fn authorizer(
    name: &str,
    reach: &McpReach,
    keyring: Preference,
    consent: Option<Arc<dyn Consent>>,
) -> Result<Authorizer, Refused> {
    let home = settings::home()?;
    let made = wiring::authorizer(
        name,
        reach,
        Keeping { home: &home, keyring, principal: &Principal::local() },
        consent,
    )
    .map_err(|reason| unusable(name, &reason))?;
    made.ok_or_else(|| {
        let hint =
            "a process gets what it needs in `env`, and an `Authorization` header says who you are already";
        (Exit::Input, format!("there is nothing to log in to at MCP server `{name}`\nhint: {hint}"))
    })
}

fn unusable(name: &str, reason: &str) -> Refused {
    (Exit::Input, format!("MCP server `{name}` cannot be used: {reason}"))
}

fn not_open(error: &std::io::Error) -> Refused {
    let hint = "`oauth.redirectPort` chooses another port";
    (Exit::Unavailable, format!("no port can be opened for the login to come back to: {error}\nhint: {hint}"))
}

fn not_logged_in(name: &str, error: &AuthError) -> Refused {
    let message = format!("not logged in at `{name}`: {error}");
    (Exit::Unavailable, hints::with(&message, hints::login(name, error)))
}

//! `haft approvals`: lists and revokes remembered approvals.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use haft_core::approval::shown;
use haft_core::grant::{Grant, GrantOwner, GrantScope};
use haft_core::grant_store::{GrantStore, GrantStoreError};
use haft_core::naming::ToolIdentity;
use haft_core::principal::Principal;
use haft_core::provider::ProviderKind;
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::sandbox::{ResourceAccess, SandboxBinding};
use haft_runtime::ReportingGrants;
use haft_sandbox::Home;
use haft_store::accounting::now_ms;
use haft_store::approvals_import::import;
use haft_store::grants::FileGrants;
use serde_json::{Value, json};

use super::args::ApprovalsCommand;
use super::cli_error::CliError;
use super::sessions::{age, span};
use super::settings;
use super::table::{Table, left, right};
use super::terminal;

/// The number of characters of an id that lists show.
const ID_CHARS: usize = 8;

/// The minimum number of characters of an id prefix that identifies a grant.
const ID_CHARS_MIN: usize = 4;

pub(super) async fn run(command: &ApprovalsCommand) -> ExitCode {
    let answer = match command {
        ApprovalsCommand::List { json, workspace, principal } => {
            list(*json, workspace.as_deref(), &owner(principal.as_ref())).await
        }
        ApprovalsCommand::Revoke { ids, all, json, principal } => {
            let words = if *all { None } else { Some(ids.as_slice()) };
            revoke(words, *json, &owner(principal.as_ref())).await
        }
    };
    match answer {
        Ok(answer) => terminal::answer(&answer),
        Err(error) => error.report(),
    }
}

/// Opens the store of remembered approvals. Prints a warning if approvals of an earlier haft version were dropped, and
/// whenever the store fails later.
pub(super) fn store(home: &Home) -> Arc<dyn GrantStore> {
    if let Some(warning) = import(home) {
        terminal::warn(&warning);
    }
    Arc::new(ReportingGrants::new(Arc::new(FileGrants::of(home)), |warning| terminal::warn(&warning)))
}

/// Returns the beginning of an id, in the form that lists show.
pub(super) fn short_id(grant: &Grant) -> String {
    grant.id.to_string().chars().take(ID_CHARS).collect()
}

/// Returns the tool name that models see by default, such as `docs__search`.
pub(super) fn tool_name(tool: &ToolIdentity) -> String {
    match tool.kind {
        ProviderKind::Builtin => tool.tool.to_string(),
        ProviderKind::Mcp | ProviderKind::Rest | ProviderKind::Agent | ProviderKind::Client => {
            format!("{}__{}", tool.namespace, tool.tool)
        }
    }
}

/// Returns the owner of the approvals: `principal`, or the local user if `principal` is `None`.
fn owner(principal: Option<&Principal>) -> GrantOwner {
    principal.map_or_else(|| GrantOwner::of(&Principal::local()), GrantOwner::of)
}

async fn list(as_json: bool, workspace: Option<&Path>, owner: &GrantOwner) -> Result<String, CliError> {
    let store = store(&settings::home()?);
    let grants = match workspace.map(resolved) {
        Some(workspace) => store.load(owner, &workspace.to_string_lossy()).await,
        None => store.list(owner).await,
    };
    let grants = grants.map_err(unreadable)?;
    if as_json {
        return Ok(format!("{:#}", Value::Array(grants.iter().map(as_value).collect())));
    }
    if grants.is_empty() {
        return Ok(
            "there are no remembered approvals; haft offers to remember one when it asks you to approve a call"
                .into(),
        );
    }
    Ok(table(&grants, now_ms()).text())
}

/// Revokes the named approvals; without names, all of them.
async fn revoke(words: Option<&[String]>, as_json: bool, owner: &GrantOwner) -> Result<String, CliError> {
    let store = store(&settings::home()?);
    let grants = store.list(owner).await.map_err(unreadable)?;
    let chosen = match words {
        None => grants.iter().collect(),
        Some(words) => words.iter().map(|word| find(&grants, word)).collect::<Result<Vec<_>, _>>()?,
    };
    for grant in &chosen {
        store.revoke(owner, grant.id).await.map_err(unwritable)?;
    }
    if as_json {
        let ids: Vec<String> = chosen.iter().map(|grant| grant.id.to_string()).collect();
        return Ok(json!({ "revoked": ids }).to_string());
    }
    let line = |grant: &&Grant| format!("revoked {}  {}\n", short_id(grant), grant.scope);
    Ok(chosen.iter().map(line).collect())
}

/// Finds a grant by the beginning of its id.
fn find<'g>(grants: &'g [Grant], word: &str) -> Result<&'g Grant, CliError> {
    const HINT: &str = "`haft approvals list` shows the ids";
    let written = word.to_ascii_lowercase();
    if written.len() < ID_CHARS_MIN {
        let message =
            format!("the approval id `{word}` is too short; give at least {ID_CHARS_MIN} characters");
        return Err(CliError::input(message).with_hint(HINT));
    }
    let fits = |grant: &&Grant| grant.id.to_string().starts_with(&written);
    match grants.iter().filter(fits).collect::<Vec<_>>().as_slice() {
        [grant] => Ok(grant),
        [] => {
            Err(CliError::input(format!("there is no remembered approval with the id `{word}`"))
                .with_hint(HINT))
        }
        several => {
            let message = format!("{} approval ids begin with `{word}`; give more characters", several.len());
            Err(CliError::input(message).with_hint(HINT))
        }
    }
}

/// Returns the canonical path, which sandbox policies use too. For a directory that no longer exists, returns the
/// absolute path.
fn resolved(directory: &Path) -> PathBuf {
    let absolute = || std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    directory.canonicalize().unwrap_or_else(|_| absolute())
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes the error by value")]
fn unreadable(error: GrantStoreError) -> CliError {
    let hint = "repair the file, or remove the file to forget all approvals in it";
    CliError::internal(format!("haft cannot read the remembered approvals: {error}")).with_hint(hint)
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes the error by value")]
fn unwritable(error: GrantStoreError) -> CliError {
    let hint = "set HAFT_HOME to a directory that you can write to";
    CliError::internal(format!("haft could not revoke the approval: {error}")).with_hint(hint)
}

/// Groups the grants by workspace.
fn table(grants: &[Grant], now_ms: u64) -> Table {
    let mut workspaces: Vec<Option<&str>> = grants.iter().map(workspace).collect();
    workspaces.sort_unstable();
    workspaces.dedup();
    let columns = [left("ID"), right("AGE"), left("SANDBOX"), left("TOOL"), left("ALLOWS")];
    let mut table = Table::new(columns);
    for place in workspaces {
        let place_name = place.map_or("any workspace (from an earlier version of haft)".to_owned(), shown);
        table.note(format!("in {place_name}:"));
        for grant in grants.iter().filter(|grant| workspace(grant) == place) {
            let tool = grant.target.as_ref().map_or("-".to_owned(), |target| tool_name(&target.tool));
            let end = end_of(grant, now_ms);
            table.row([
                short_id(grant),
                age(grant.decision.at_ms),
                sandbox(grant.confinement),
                tool,
                format!("{end}{}", grant.scope),
            ]);
        }
    }
    table
}

/// Returns the remaining time of a grant as text; empty if the grant does not expire.
fn end_of(grant: &Grant, now_ms: u64) -> String {
    match grant.expires_ms {
        None => String::new(),
        Some(end) if end <= now_ms => "(expired) ".into(),
        Some(end) => format!("({} left) ", span(end - now_ms)),
    }
}

fn workspace(grant: &Grant) -> Option<&str> {
    grant.target.as_ref().map(|target| target.workspace.as_str())
}

/// Returns the sandbox mode as text, and the network access where it differs from the default of the mode.
fn sandbox(confinement: SandboxBinding) -> String {
    let SandboxBinding { mode, network } = confinement;
    let difference = match (mode, network) {
        (SandboxMode::Workspace, ResourceAccess::Allow) => "+net",
        (SandboxMode::Network | SandboxMode::Full, ResourceAccess::Deny) => "-net",
        (SandboxMode::Workspace, ResourceAccess::Deny)
        | (SandboxMode::Network | SandboxMode::Full, ResourceAccess::Allow) => "",
    };
    format!("{mode}{difference}")
}

fn as_value(grant: &Grant) -> Value {
    let target = grant.target.as_ref().map(|target| {
        json!({
            "workspace": target.workspace, "kind": target.tool.kind.name(),
            "namespace": target.tool.namespace.as_str(), "tool": target.tool.tool.as_str(),
            "definition": target.definition.to_string(),
        })
    });
    let granted = match &grant.scope {
        GrantScope::Exact { digest, .. } => json!(digest.to_string()),
        GrantScope::CommandPrefix(words) => json!(words),
        GrantScope::Rule(text) => json!(text),
    };
    json!({
        "id": grant.id.to_string(), "target": target, "scope": grant.scope.name(), "granted": granted,
        "allows": grant.scope.to_string(), "mode": grant.confinement.mode.name(),
        "network": grant.confinement.network.name(), "expires_ms": grant.expires_ms,
        "decided_by": grant.decision.by, "decided_ms": grant.decision.at_ms,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use haft_core::digest::Digest;
    use haft_core::grant::{GrantBinding, GrantDecision, GrantTarget};
    use haft_core::name::{Namespace, ToolName};

    use super::*;
    use crate::exit::ExitReason;

    fn grant(workspace: &str, scope: GrantScope) -> Grant {
        let tool = ToolIdentity {
            kind: ProviderKind::Mcp,
            namespace: Namespace::new("a-server-with-a-long-name").unwrap(),
            tool: ToolName::new("and_a_tool_with_a_long_name").unwrap(),
        };
        let target = GrantTarget { workspace: workspace.into(), tool, definition: Digest::of_text("d") };
        let confinement = SandboxBinding { mode: SandboxMode::Workspace, network: ResourceAccess::Allow };
        let binding = GrantBinding { owner: owner(None), target, confinement };
        Grant::new(&binding, scope, GrantDecision { by: "terminal".into(), at_ms: 0 })
    }

    #[test]
    fn approvals_table_keeps_every_word_at_60_columns() {
        let digest = Digest::of_text("x");
        let words = "cargo  test -p haft-cli --test it -- approvals".to_owned();
        let grants = [
            grant("/srv/work", GrantScope::Exact { digest, description: words.clone() }),
            Grant { expires_ms: Some(1), ..grant("/w", GrantScope::CommandPrefix(vec!["git".into()])) },
            Grant::imported(owner(None), digest, GrantDecision { by: "import".into(), at_ms: 0 }),
            grant("/w", GrantScope::Rule("ask x".into())).lasting(Some(Duration::from_hours(5))),
        ];
        let table = table(&grants, 2);
        let name = "a-server-with-a-long-name__and_a_tool_with_a_long_name";
        let text = table.fitted(None);
        assert_eq!(text.lines().count(), 1 + 3 + 4, "{text}");
        assert!(text.contains(&format!("workspace+net  {name}  (expired) git *\n")), "{text}");
        assert!(text.contains("(4 h left) rule ask x") && text.contains(&words), "{text}");
        let narrow = table.fitted(Some(60));
        for word in words.split(' ').chain([name, "workspace+net", "/srv/work:"]) {
            assert!(narrow.split([' ', '\n']).any(|found| found == word), "{word}\n{narrow}");
        }
        assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    }

    #[test]
    fn grant_is_found_by_id_prefix() {
        let grants = [grant("/w", GrantScope::Rule("a".into())), grant("/w", GrantScope::Rule("b".into()))];
        let id = grants[1].id.to_string();
        assert_eq!(find(&grants, &id[..8].to_uppercase()).unwrap(), &grants[1]);
        for bad in ["", "abc", "zzzz", "none"] {
            assert_eq!(find(&grants, bad).unwrap_err().exit(), ExitReason::Input, "{bad}");
        }
    }
}

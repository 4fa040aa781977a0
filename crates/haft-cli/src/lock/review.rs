//! `haft lock review`: shows the differences, and writes those that the user accepts to the lock file.

use haft_core::tool_lock::{LockChange, ToolLock};

use super::super::args::LockReviewArgs;
use super::super::cli_error::CliError;
use super::super::question::{self, QuestionTurn};
use super::super::terminal::{self, counted};
use super::{ChangeDetail, LockCommandOutput, LockComparison, shown};

/// The key that accepts the changes that the question names.
const YES: &str = "y";

/// The key that makes haft ask about each change of a source.
const EACH: &str = "c";

pub(super) async fn review(args: &LockReviewArgs) -> Result<LockCommandOutput, CliError> {
    let mut comparison = LockComparison::of(&args.files).await?;
    select(&mut comparison, &args.sources)?;
    let changes = comparison.reviewed_changes();
    let path = comparison.path.display().to_string();
    let detail = if args.full { ChangeDetail::Full } else { ChangeDetail::Shortened };
    if comparison.locked.is_some() && changes.is_empty() {
        let text = format!("{}{path} is up to date", comparison.overview(&changes, detail));
        return Ok(comparison.output(text, &changes, comparison.exit()));
    }
    let overview = comparison.overview(&changes, detail);
    if args.yes {
        comparison.save(&comparison.found)?;
        let text = format!("{overview}accepted: wrote {path}");
        return Ok(comparison.output(text, &changes, comparison.exit()));
    }
    let accepted = accepted_by_user(&comparison, &changes, detail).await?;
    comparison.save(&lock_with(&comparison, &changes, &accepted))?;
    let text = match (accepted.len(), changes.len()) {
        (some, all) if some == all => format!("accepted: wrote {path}"),
        (some, all) => format!("accepted {some} of {}: wrote {path}", counted(all, "change")),
    };
    Ok(comparison.output(text, &changes, comparison.exit()))
}

/// Limits the comparison to the sources that the user named. The other sources stay as the lock file contains them.
fn select(comparison: &mut LockComparison, named: &[String]) -> Result<(), CliError> {
    if named.is_empty() {
        return Ok(());
    }
    let nothing = ToolLock::default();
    let locked = comparison.locked.as_deref().unwrap_or(&nothing);
    let uncompared = comparison.uncompared.iter().map(|server| server.source.clone());
    let mut known: Vec<String> =
        locked.sources.keys().chain(comparison.found.sources.keys()).cloned().collect();
    known.extend(uncompared);
    known.sort();
    known.dedup();
    if let Some(unknown) = named.iter().find(|name| !known.iter().any(|source| is_named(source, name))) {
        let message = format!("there is no source `{unknown}`; the sources are {}", known.join(", "));
        return Err(CliError::input(message));
    }
    let is_selected = |source: &String| named.iter().any(|name| is_named(source, name));
    let others = locked.sources.iter().filter(|(source, _)| !is_selected(source));
    let others: Vec<_> = others.map(|(key, source)| (key.clone(), source.clone())).collect();
    comparison.found.sources.retain(|source, _| is_selected(source));
    comparison.found.sources.extend(others);
    comparison.uncompared.retain(|server| is_selected(&server.source));
    Ok(())
}

/// Returns true if a user means a source, such as `mcp/docs`, with this name. The kind may be left out.
fn is_named(source: &str, name: &str) -> bool {
    source == name || source.split_once('/').is_some_and(|(_, rest)| rest == name)
}

/// Asks the user at the terminal about each source. A script must pass `--yes`.
async fn accepted_by_user<'a>(
    comparison: &LockComparison,
    changes: &'a [LockChange],
    detail: ChangeDetail,
) -> Result<Vec<&'a LockChange>, CliError> {
    if !question::is_interactive() {
        terminal::note(&comparison.overview(changes, detail));
        let message = "nothing was accepted: haft needs a terminal to ask for your consent";
        let hint = "review the changes above, then accept them with `haft lock review --yes`";
        return Err(CliError::denied(message).with_hint(hint));
    }
    if detail == ChangeDetail::Shortened && changes.iter().any(LockChange::is_shortened) {
        terminal::note(&comparison.overview(changes, detail));
        let message = "nothing was accepted, because the changes above leave out a part of a long text";
        let hint = "`haft lock review --full` shows all lines and asks you to accept them";
        return Err(CliError::denied(message).with_hint(hint));
    }
    let mut turn = question::turn().await;
    // Print only the notes here: haft prints the changes of each source before the question about them.
    let notes = comparison.note_about_format(changes).to_owned() + &comparison.end_notes(changes);
    if !notes.is_empty() {
        terminal::prompt(&notes);
    }
    let mut accepted = Vec::new();
    for group in changes.chunk_by(|one, other| one.source() == other.source()) {
        accepted.extend(accepted_of_source(&mut turn, group, detail).await);
    }
    if accepted.iter().all(|change| change.is_informational()) {
        return Err(CliError::denied("nothing was accepted, because you did not confirm"));
    }
    Ok(accepted)
}

/// Asks about the changes of one source. Accepts informational changes, such as a new server version, without asking.
async fn accepted_of_source<'a>(
    turn: &mut QuestionTurn,
    group: &'a [LockChange],
    detail: ChangeDetail,
) -> Vec<&'a LockChange> {
    terminal::prompt(&shown(group, detail));
    let (informational, asked): (Vec<_>, Vec<_>) = group.iter().partition(|change| change.is_informational());
    let Some(first) = asked.first() else { return informational };
    let what = counted(asked.len(), "change");
    let each = if asked.len() > 1 { ", [c] ask about each change" } else { "" };
    let choices = format!("accept {what} of {}? [y] yes{each}, any other key: no", first.source());
    match key(turn, &choices).await.as_str() {
        YES => group.iter().collect(),
        EACH if asked.len() > 1 => [informational, accepted_one_by_one(turn, &asked, detail).await].concat(),
        _ => informational,
    }
}

async fn accepted_one_by_one<'a>(
    turn: &mut QuestionTurn,
    asked: &[&'a LockChange],
    detail: ChangeDetail,
) -> Vec<&'a LockChange> {
    let mut accepted = Vec::new();
    for (at, change) in asked.iter().enumerate() {
        terminal::prompt(&shown([*change], detail));
        let is_accepted = key(turn, "accept this change? [y] yes, any other key: no").await == YES;
        match (*change, is_accepted) {
            // The user rejected a new source, so do not ask about its tools.
            (LockChange::SourceAdded { .. }, false) => break,
            // The user accepted the removal of a source, which includes its tools, so do not ask about them.
            (LockChange::SourceRemoved { .. }, true) => {
                accepted.extend(&asked[at..]);
                break;
            }
            (change, true) => accepted.push(change),
            (_, false) => {}
        }
    }
    accepted
}

async fn key(turn: &mut QuestionTurn, choices: &str) -> String {
    turn.key(choices).await.unwrap_or_default().trim_end().to_ascii_lowercase()
}

/// Returns the lock with the accepted changes.
fn lock_with(comparison: &LockComparison, changes: &[LockChange], accepted: &[&LockChange]) -> ToolLock {
    if accepted.len() == changes.len() {
        return comparison.found.clone();
    }
    let mut lock = comparison.locked.as_deref().cloned().unwrap_or_default();
    for change in accepted {
        lock.accept(change, &comparison.found);
    }
    lock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_named_with_or_without_its_kind() {
        assert!(is_named("mcp/docs", "docs") && is_named("mcp/docs", "mcp/docs"));
        assert!(is_named("rest/https://a.example", "https://a.example"));
        assert!(!is_named("mcp/docs", "doc") && !is_named("mcp/docs", "mcp") && !is_named("mcp/docs", ""));
    }
}

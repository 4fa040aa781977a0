//! `haft sessions`: lists, shows and removes stored runs.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use haft_core::approval::shown;
use haft_core::event_store::RunKey;
use haft_core::position::SessionId;
use haft_core::run::event::RunBill;
use serde_json::{Value, json};

use super::args::SessionsCommand;
use super::cli_error::CliError;
use super::settings;
use super::table::{Table, left, right};
use super::{terminal, tree};
use haft_models::cassette::Recording;
use haft_runtime::recordings;
use haft_store::accounting::now_ms;
use haft_store::events::FileEvents;
use haft_store::outputs::FileOutputs;
use haft_store::sessions::{
    SessionError, SessionHistory, SessionLimits, SessionOverview, SessionStatus, SessionStore,
};

pub(super) fn run(command: &SessionsCommand) -> ExitCode {
    let answer = sessions().and_then(|sessions| match command {
        SessionsCommand::List { limit, json } => {
            let found = list(&sessions, (*limit).into())?;
            Ok(if *json { listed_json(&found) } else { listed(&found) })
        }
        SessionsCommand::Show { id, json } => {
            let mut past =
                if is_file(id) { recorded(Path::new(id))? } else { sessions.past(find(&sessions, id)?)? };
            let standing = standing(&sessions, past.session(), &past.standing);
            if !sessions.is_busy(past.session()) {
                past.left();
            }
            Ok(if *json { shown_json(&past, &standing) } else { drawn(&past, &standing) })
        }
        SessionsCommand::Rm { ids, json } => {
            let removed = remove(&sessions, ids)?;
            Ok(if *json { json!({ "removed": removed }).to_string() } else { String::new() })
        }
    });
    match answer {
        Ok(answer) => terminal::answer(&answer),
        Err(error) => error.report(),
    }
}

/// Returns true if a word is the file name of a recording: a session id contains neither a dot nor a slash.
fn is_file(word: &str) -> bool {
    word.contains(['.', '/'])
}

/// Reads the root run of a recording.
fn recorded(file: &Path) -> Result<SessionHistory, CliError> {
    let recording = Recording::read(file)?;
    Ok(recordings::root(&recording)?)
}

/// Opens the store without limits, so that sessions that were written under other limits can be read.
pub(super) fn sessions() -> Result<SessionStore, CliError> {
    let limits = SessionLimits { bytes_max: u64::MAX, keep: std::time::Duration::MAX };
    Ok(SessionStore::of(&settings::home()?, limits))
}

/// Finds a session by the beginning of its id; `last` is the newest session.
pub(super) fn find(sessions: &SessionStore, word: &str) -> Result<SessionId, CliError> {
    if word != "last" {
        return Ok(sessions.find(word)?);
    }
    let newest = sessions.newest()?;
    newest.ok_or(CliError::input("there are no sessions").with_hint("`haft run` starts one"))
}

/// One line of the session list.
struct SessionRow {
    id: SessionId,
    /// The overview and state of the session, or the reason why it cannot be read.
    overview: Result<(SessionOverview, String), String>,
}

/// Lists root sessions. Sessions of sub-agents are a part of them and are not listed.
fn list(sessions: &SessionStore, limit: usize) -> Result<Vec<SessionRow>, CliError> {
    let listed = |id: SessionId| {
        let overview = sessions.overview(id).map(|overview| {
            let standing = standing(sessions, id, &overview.standing);
            (overview, standing)
        });
        let problem = |error: SessionError| error.to_string().lines().next().unwrap_or_default().into();
        SessionRow { id, overview: overview.map_err(problem) }
    };
    Ok(sessions.newest_roots(limit)?.into_iter().map(listed).collect())
}

fn remove(sessions: &SessionStore, words: &[String]) -> Result<Vec<String>, CliError> {
    let ids = words.iter().map(|word| find(sessions, word)).collect::<Result<Vec<_>, _>>()?;
    let home = settings::home()?;
    let events = FileEvents::of(&home);
    for id in &ids {
        let tenant = sessions.opened(*id).ok().and_then(|opened| opened.principal).map(|(tenant, _)| tenant);
        let below = sessions.below(*id)?;
        sessions.remove(*id)?;
        for below in below {
            sessions.remove(below)?;
        }
        // The event log and the stored outputs contain content of the run, so remove them together with the run.
        let key = RunKey { tenant: tenant.unwrap_or_else(|| "local".into()), run: *id };
        let removed = events.remove(&key).and_then(|()| FileOutputs::of(&home).remove(&key));
        removed.map_err(|error| {
            CliError::internal(format!("haft could not remove the stored content of session {id}: {error}"))
        })?;
    }
    Ok(ids.iter().map(ToString::to_string).collect())
}

fn standing(sessions: &SessionStore, id: SessionId, standing: &SessionStatus) -> String {
    match standing {
        SessionStatus::Open if sessions.is_busy(id) => "running".into(),
        SessionStatus::Open => "unfinished".into(),
        SessionStatus::Cut { reason } | SessionStatus::Finished { reason } => reason.clone(),
    }
}

fn listed(found: &[SessionRow]) -> String {
    if found.is_empty() {
        return "there are no sessions; `haft run` starts one".into();
    }
    let mut table =
        Table::new([left("ID"), right("AGE"), left("STATE"), right("CALLS"), right("COST"), left("REQUEST")]);
    for SessionRow { id, overview } in found {
        let id = &id.to_string()[..8];
        match overview {
            Ok((overview, standing)) => table.row([
                id.to_owned(),
                age(overview.last_ms),
                shown(standing),
                overview.total.calls.to_string(),
                cost(&overview.total),
                shown(&overview.title),
            ]),
            Err(problem) => table.note(format!("{id}  {problem}")),
        }
    }
    table.text()
}

/// Returns the cost as text; a dash if no price is known.
fn cost(total: &RunBill) -> String {
    if total.unpriced < total.requests { total.cost.to_string() } else { "-".into() }
}

fn listed_json(found: &[SessionRow]) -> String {
    let list = found.iter().map(|SessionRow { id, overview }| match overview {
        Ok((overview, standing)) => summary(overview, standing),
        Err(problem) => json!({ "session": id.to_string(), "error": problem }),
    });
    format!("{:#}", Value::Array(list.collect()))
}

fn summary(overview: &SessionOverview, standing: &str) -> Value {
    let RunBill { requests, usage, cost, unpriced, calls } = overview.total;
    json!({
        "session": overview.session.to_string(), "state": standing, "request": overview.title,
        "began_ms": overview.began_ms, "last_ms": overview.last_ms, "calls": calls, "model_requests": requests,
        "input_tokens": usage.input, "output_tokens": usage.output, "cost_nano_usd": cost.nano_usd,
        "unpriced_requests": unpriced,
    })
}

fn shown_json(past: &SessionHistory, standing: &str) -> String {
    let mut value = summary(&past.overview(), standing);
    value["requests"] = json!(past.requests);
    value["tree"] = tree::as_json(&past.tree);
    format!("{value:#}")
}

fn drawn(past: &SessionHistory, standing: &str) -> String {
    let mut text = format!("{} ago, {}: {}\n", age(past.last_ms), shown(standing), shown(&past.opened.title));
    for request in &past.requests {
        let _ = writeln!(text, "then: {}", shown(request.lines().next().unwrap_or_default()));
    }
    let _ = writeln!(text, "{}", tree::drawn(&past.tree));
    let unpriced = match past.total.unpriced {
        0 => String::new(),
        unpriced => format!(", {unpriced} of the requests without a known price"),
    };
    let _ = writeln!(text, "{:.1} s in total{unpriced}", past.worked().as_secs_f64());
    text
}

pub(super) fn age(then_ms: u64) -> String {
    span(now_ms().saturating_sub(then_ms))
}

/// Formats a duration in its largest unit.
pub(super) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

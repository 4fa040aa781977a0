//! `haft resume`: a session goes on.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Before, Beginning, Given, carry_out, prepare, said, unless_ended};
use crate::args::{Cli, Command, ResumeArgs, RunArgs};
use crate::cancel::Listening;
use crate::exit::Exit;
use crate::sessions;
use crate::settings::{self, Refused};
use crate::terminal;
use haft_runtime::runs::{LeftSessions, ResumedSession};
use haft_store::sessions::Sessions;

/// What was typed to begin a session, and where. The same words give the same agent, tools and policy.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    directory: Word,
    words: Vec<Word>,
}

/// A word of the shell. Names of files may be anything.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Bytes(Vec<u8>),
}

impl Word {
    fn of(word: &OsStr) -> Self {
        word.to_str()
            .map_or_else(|| Self::Bytes(word.as_bytes().to_vec()), |text| Self::Text(text.to_owned()))
    }

    fn into_os(self) -> OsString {
        match self {
            Self::Text(text) => text.into(),
            Self::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }
}

/// The order of this process; nothing where there is no current directory to come back to.
pub(super) fn order() -> Value {
    let words = std::env::args_os().skip(1);
    let order = std::env::current_dir().map(|directory| Order {
        directory: Word::of(directory.as_os_str()),
        words: words.map(|word| Word::of(&word)).collect(),
    });
    order.ok().and_then(|order| serde_json::to_value(order).ok()).unwrap_or_default()
}

pub(crate) async fn run(args: &ResumeArgs) -> ExitCode {
    let mut listening = Listening::begin();
    match unless_ended(&mut listening, prepared(args)).await {
        Ok((prepared, resumed)) => carry_out(prepared, Beginning::Again(Box::new(resumed)), listening).await,
        Err((exit, message)) => terminal::failed(exit, &message),
    }
}

async fn prepared(args: &ResumeArgs) -> Result<(super::Prepared, ResumedSession), Refused> {
    let all = sessions::sessions()?;
    let id = sessions::find(&all, &args.id)?;
    let opened = all.opened(id).map_err(sessions::refused)?;
    if let Some(origin) = opened.origin {
        let hint = format!("hint: haft resume {origin}");
        return Err((
            Exit::Input,
            format!("the session works for another one, which goes on with it\n{hint}"),
        ));
    }
    let more = match &args.request {
        Some(word) => Some(said::written_request(word).await?),
        None => None,
    };
    // Skills go by what is asked, then and now.
    let asked = [opened.run.request(), more.clone()].into_iter().flatten().collect::<Vec<_>>().join("\n");
    let typed = typed(args, opened.order, &asked)?;
    let before = Before::Begun { model: opened.model };
    let given = Given::configured(&typed.policy.files, None, before).await?;
    let own = Sessions::of(&settings::home()?, given.configuration.resolved.sessions.limits);
    let mut prepared = prepare(&typed, given).await?;
    prepared.watch.go_on_in(id);
    prepared.keep_session(LeftSessions::Continued);
    let (past, journal) = own.resume(id).map_err(sessions::refused)?;
    Ok((prepared, ResumedSession { past, journal, more }))
}

/// What was typed then, with what was typed now about how it is shown.
fn typed(args: &ResumeArgs, order: Value, asked: &str) -> Result<RunArgs, Refused> {
    let mut typed = typed_then(order, asked)?;
    if !args.model.is_empty() {
        typed.model.clone_from(&args.model);
    }
    typed.record = None;
    typed.show = args.show;
    Ok(typed)
}

/// What was typed to begin a run, with another request, in the directory where it was typed.
pub(super) fn typed_then(order: Value, request: &str) -> Result<RunArgs, Refused> {
    let lost = |problem: String| {
        let hint = "hint: `haft sessions show` tells what it did; begin anew with `haft run`";
        (Exit::Input, format!("the run cannot be put together again: {problem}\n{hint}"))
    };
    let order: Order = serde_json::from_value(order).map_err(|_| lost("it was not typed".into()))?;
    let directory = order.directory.into_os();
    let missing = |error| lost(format!("its directory `{}`: {error}", Path::new(&directory).display()));
    // Files are named relative to it, and its own configuration lies there.
    std::env::set_current_dir(&directory).map_err(missing)?;
    let words = std::iter::once("haft".into()).chain(order.words.into_iter().map(Word::into_os));
    let mut typed = match Cli::try_parse_from(words).map(|cli| cli.command) {
        Ok(Command::Run(typed)) => typed,
        Ok(_) => return Err(lost("it was not typed as `haft run`".into())),
        Err(error) => return Err(lost(error.to_string())),
    };
    if let Some(last) = typed.words.last_mut() {
        request.clone_into(last);
    }
    Ok(typed)
}

//! `haft output HANDLE`: an output that was stored, or a part of it.

use std::process::ExitCode;

use haft_core::store::{Handle, StoreError};
use haft_tools::output::{Extract, FileStore, StoreLimits};

use super::args::OutputArgs;
use super::exit::Exit;
use super::{settings, terminal};

pub(super) fn run(args: &OutputArgs) -> ExitCode {
    let home = match settings::home() {
        Ok(home) => home,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let store = match FileStore::open(&home.data().join("outputs"), StoreLimits::default()) {
        Ok(store) => store,
        Err(error) => {
            return terminal::failed(Exit::Internal, &format!("the output store cannot be opened: {error}"));
        }
    };
    let content = match Handle::parse(&args.handle)
        .ok_or(StoreError::NotFound)
        .and_then(|handle| store.read_any(&handle))
    {
        Ok(content) => content,
        Err(error) => {
            return terminal::failed(Exit::Input, &format!("{error}\nhint: handles look like session-…/…"));
        }
    };
    if args.extract.is_empty() {
        return terminal::answer_bytes(&content);
    }
    // The person who types a filter may run it here: Ctrl-C ends it.
    let question = args.extract.join(" ");
    match Extract::parse(&question)
        .and_then(|extract| extract.map(|extract| extract.answer(&content)).transpose())
    {
        Ok(Some(answer)) => terminal::answer(&answer),
        Ok(None) => terminal::failed(
            Exit::Input,
            &format!("`{question}` is not understood\nhint: `haft output --help` lists what is"),
        ),
        Err(error) => terminal::failed(Exit::Input, &error.to_string()),
    }
}

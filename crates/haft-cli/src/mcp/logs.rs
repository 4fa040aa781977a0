//! `haft mcp logs`: shows the log of a server's last run.

use haft_tools::mcp::kept_log;
use serde_json::json;

use super::super::exit::Exit;
use super::super::settings::{self, Refused};
use super::args::LogsArgs;
use super::{Answer, directory, namespace, unambiguous};
use haft_config::printable;

pub(super) fn logs(args: &LogsArgs) -> Result<Answer, Refused> {
    let home = settings::home()?;
    let config = settings::configuration(&args.files)?.resolved;
    unambiguous(&config, &args.name)?;
    let path = directory(&home).join(format!("{}.log", namespace(&args.name)));
    let kept = kept_log(&path)
        .map_err(|error| (Exit::Internal, format!("`{}` cannot be read: {error}", path.display())))?;
    let Some(kept) = kept else {
        let text = format!("`{}` has not said anything yet", args.name);
        return Ok(Answer::new(text, json!({ "name": args.name, "lines": [] })));
    };
    let lines: Vec<&str> = kept.lines().collect();
    let last = &lines[lines.len().saturating_sub(args.lines)..];
    let text = last.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n");
    Ok(Answer::new(text, json!({ "name": args.name, "lines": last })))
}

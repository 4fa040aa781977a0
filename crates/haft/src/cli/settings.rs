//! What was typed, turned into what is meant.

use std::time::Duration;

use haft_sandbox::{Access, GitMetadata, Home, Limits, Policy, user_home};

use super::args::{Git, Grant, PolicyArgs};
use super::exit::Exit;

/// A refusal with the exit code that goes with it.
pub(super) type Refused = (Exit, String);

/// Home, made if need be. A name that does not exist cannot be protected.
pub(super) fn home() -> Result<Home, Refused> {
    let unknown = "neither HAFT_HOME nor HOME is set\nhint: set HAFT_HOME to a directory that haft may keep its data in";
    let home = crate::home::find().ok_or((Exit::Usage, unknown.to_owned()))?;
    match home.create() {
        Ok(()) => Ok(home),
        // In a place we may not write nobody below us may either; where that is not so, planning refuses.
        Err(_) if !home.root().exists() => Ok(home),
        Err(error) => {
            let hint = "hint: set HAFT_HOME to a directory that you may write";
            Err((
                Exit::Internal,
                format!("haft's home `{}` cannot be used: {error}\n{hint}", home.root().display()),
            ))
        }
    }
}

/// The operator's policy.
pub(super) fn policy(args: &PolicyArgs) -> Result<Policy, Refused> {
    let usage = |error: &dyn std::fmt::Display| (Exit::Usage, error.to_string());
    let home = home()?;
    let workspace = match &args.workspace {
        Some(directory) => directory.clone(),
        None => std::env::current_dir().map_err(|error| {
            usage(&format!("there is no current directory: {error}\nhint: name one with --workspace"))
        })?,
    };
    let user_home = user_home();
    // Secrets that are taken off the list must be so before the workspace is held against it.
    let mut policy =
        Policy::new_with_readable(args.mode, &workspace, &home, user_home.as_deref(), &args.readable)
            .map_err(|error| usage(&error))?;
    for directory in &args.writable {
        policy = policy.writable(directory).map_err(|error| usage(&error))?;
    }
    for name in &args.environment {
        policy = policy.environment(name);
    }
    if let Some(grant) = args.network {
        policy = policy.network(access(grant));
    }
    if let Some(grant) = args.unix_sockets {
        policy = policy.unix_sockets(access(grant));
    }
    let mut limits = Limits::default();
    for (name, value) in &args.limit {
        limits.set(name, *value).map_err(|error| usage(&error))?;
    }
    Ok(policy.git(git(args.git)).limits(limits))
}

fn access(grant: Grant) -> Access {
    match grant {
        Grant::Allow => Access::Allow,
        Grant::Deny => Access::Deny,
    }
}

fn git(git: Git) -> GitMetadata {
    match git {
        Git::Frozen => GitMetadata::Frozen,
        Git::Writable => GitMetadata::Writable,
    }
}

/// `90s`, `1500ms`, `2m`, `1.5h`; a bare number is milliseconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("expected a duration such as 90s, 1500ms or 2m; got `{text}`");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| bad())?;
    let seconds = match &text[digits..] {
        "" | "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86400.0,
        _ => return Err(bad()),
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        Ok(_) | Err(_) => Err(bad()),
    }
}

/// `NAME=NUMBER`.
pub(super) fn limit(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("expected NAME=NUMBER; got `{text}`"))?;
    let value =
        value.parse().map_err(|_| format!("expected a whole number after `{name}=`; got `{value}`"))?;
    Limits::default().set(name, value).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let check =
            |text: &str, millis: u64| assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        check("90s", 90_000);
        check("1500ms", 1500);
        check("1500", 1500);
        check("2m", 120_000);
        check("1.5h", 5_400_000);
        for bad in ["", "s", "-1s", "1y", "0s", "1e9999s", "99999999999999999999d", "1..2s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn limits_are_named_numbers() {
        assert_eq!(limit("open-files=64"), Ok(("open-files".into(), 64)));
        for bad in ["open-files", "open-files=many", "speed=1", "open-files=0"] {
            assert!(limit(bad).is_err(), "{bad}");
        }
    }
}

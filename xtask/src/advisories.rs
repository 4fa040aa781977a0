//! Checks the dependencies against known vulnerabilities with cargo-deny. First checks that a vulnerable dependency makes
//! cargo-deny fail: otherwise, a wrong setting could turn the check off without a sign.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{run, run_in, target_directory};

/// The id of an advisory that exists only in the database of this check.
const PLANTED_ID: &str = "RUSTSEC-2099-0001";

/// The dependency of haft that this advisory names.
const PLANTED_PACKAGE: &str = "serde_json";

/// The URL of the database of this check. cargo-deny requires a URL with a host name, so Git replaces this URL with the
/// path of a local repository.
const PLANTED_URL: &str = "https://planted.invalid/advisory-db";

/// Runs both checks.
pub(crate) fn advisories(program: &str) -> Result<(), String> {
    planted(program)?;
    run(program, &["--locked", "check", "advisories"]).map_err(|error| {
        format!(
            "{error}; a vulnerability is named above; if the advisory database is missing, allow access to \
             https://github.com/RustSec/advisory-db"
        )
    })
}

/// Checks that cargo-deny refuses a dependency with an advisory. Needs no network.
fn planted(program: &str) -> Result<(), String> {
    let place = target_directory().join("planted-advisory");
    let _ = fs::remove_dir_all(&place);
    let failed = |error: io::Error| format!("{}: {error}", place.display());
    fs::create_dir_all(&place).map_err(failed)?;
    let place = place.canonicalize().map_err(failed)?;
    let database = write_database(&place)?;
    let config = place.join("deny.toml");
    write(&config, &config_text(&place))?;
    let mut command = Command::new(program);
    command.args(["--locked", "--config"]).arg(&config).args(["check", "advisories"]);
    command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_VALUE_0", PLANTED_URL);
    command.env("GIT_CONFIG_KEY_0", format!("url.file://{}.insteadOf", database.display()));
    let output = command.output().map_err(|error| format!("xtask could not start `{program}`: {error}"))?;
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    judge(output.status.success(), &text)
}

/// Creates a git repository with one advisory, in the format of the `RustSec` database.
fn write_database(place: &Path) -> Result<PathBuf, String> {
    let database = place.join("database");
    let directory = database.join("crates").join(PLANTED_PACKAGE);
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    write(&directory.join(format!("{PLANTED_ID}.md")), &advisory_text())?;
    run_in(&database, "git", &["init", "--quiet", "--initial-branch", "main"])?;
    run_in(&database, "git", &["add", "."])?;
    let author = ["-c", "user.name=xtask", "-c", "user.email=xtask@example.com"];
    run_in(
        &database,
        "git",
        &[&author[..], &["commit", "--quiet", "--message", "Plant an advisory"]].concat(),
    )?;
    Ok(database)
}

fn advisory_text() -> String {
    format!(
        "```toml\n[advisory]\nid = \"{PLANTED_ID}\"\npackage = \"{PLANTED_PACKAGE}\"\ndate = \"2026-01-01\"\n\n\
         [versions]\npatched = []\n```\n\n# A planted vulnerability\n\nThis advisory tests the check.\n"
    )
}

fn config_text(place: &Path) -> String {
    let databases = place.join("databases");
    format!(
        "[advisories]\ndb-path = {:?}\ndb-urls = [\"{PLANTED_URL}\"]\ndisable-yank-checking = true\n",
        databases.display().to_string()
    )
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Decides if cargo-deny refused the planted advisory, and not something else.
fn judge(has_passed: bool, text: &str) -> Result<(), String> {
    match (has_passed, text.contains(PLANTED_ID)) {
        (false, true) => Ok(()),
        (true, _) => Err(format!("cargo-deny did not refuse the planted advisory {PLANTED_ID}:\n{text}")),
        (false, false) => {
            Err(format!("cargo-deny failed without the planted advisory {PLANTED_ID}:\n{text}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_that_names_the_planted_advisory_is_accepted() {
        assert!(judge(false, "error[vulnerability]: RUSTSEC-2099-0001").is_ok());
        assert!(judge(true, "advisories ok").is_err());
        assert!(judge(true, "warning: RUSTSEC-2099-0001").is_err());
        assert!(judge(false, "failed to fetch advisory database").is_err());
    }
}

//! Tests of skills, with and without errors.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use haft_core::home::Home;

use super::*;
use crate::UntrustedReason;
use crate::resolved::McpEndpoint;
use crate::trust::{FileDigest, TrustRecord};

/// The longest time in which haft must refuse a bomb. It takes milliseconds; a busy machine is slower.
const BOMB_TIME_MAX: Duration = Duration::from_secs(2);

fn variables(name: &str) -> Option<String> {
    match name {
        "PATH" => Some("/usr/bin:/bin".into()),
        "TOKEN" => Some("s3cret".into()),
        _ => None,
    }
}

fn read(text: &str) -> Result<Skill, Vec<SkillError>> {
    Skill::read(Path::new("s/SKILL.md"), text, &variables)
}

const TOML: &str = r#"+++
name = "browser"
description = "Drives a browser"
trigger = "Browse|web page"
requires = { bins = ["sh"], env = ["TOKEN"] }
homepage = "https://example.com"

[mcp.playwright]
command = "npx"
args = ["-y", "@playwright/mcp"]
env = { KEY = "${TOKEN}" }
startupTimeout = "3m"

[mcp.far]
url = "https://example.com/mcp"
+++
# Browser

Use it.
"#;

const YAML: &str = "---
name: browser
description: Drives a browser
triggers: [browse, web page]
requires: [sh]
mcp-playwright: npx -y @playwright/mcp
metadata: {\"openclaw\": {\"requires\": {\"bins\": [\"gh\"]}}}
---
# Browser

Use it.
";

#[test]
fn yaml_and_toml_skills_parse_equally() {
    let (toml, yaml) = (read(TOML).unwrap(), read(YAML).unwrap());
    assert_eq!(
        (&toml.name, &toml.description, &toml.triggers, &toml.body),
        (&yaml.name, &yaml.description, &yaml.triggers, &yaml.body)
    );
    assert_eq!(
        toml.requires,
        SkillRequirements { programs: vec!["sh".into()], variables: vec!["TOKEN".into()] }
    );
    let process = |skill: &Skill| match skill.servers["playwright"].reach.clone().unwrap() {
        McpEndpoint::Process { command, args, env, .. } => (
            command,
            args.into_iter().map(|word| word.0).collect::<Vec<_>>(),
            env.into_values().map(|value| value.0).collect::<Vec<_>>(),
        ),
        McpEndpoint::Remote { .. } => unreachable!("the server has a command"),
    };
    assert_eq!(
        process(&toml),
        ("npx".into(), vec!["-y".into(), "@playwright/mcp".into()], vec!["s3cret".into()])
    );
    assert_eq!(process(&yaml).1, process(&toml).1);
    assert_eq!(toml.servers["playwright"].startup_timeout, std::time::Duration::from_mins(3));
    assert_eq!(toml.servers.len(), 2);
}

#[test]
fn requirements_are_also_read_from_metadata() {
    let skill = read(&YAML.replace("requires: [sh]\n", "")).unwrap();
    assert_eq!(skill.requires.programs, ["gh"]);
}

#[test]
fn skill_is_triggered_by_a_word_in_the_request() {
    let skill = read(TOML).unwrap();
    let check = |request: &str, expected| assert_eq!(skill.is_triggered_by(request), expected, "{request}");
    check("Please BROWSE to it", true);
    check("open the Web Page", true);
    check("open the page", false);
    check("", false);
    assert_eq!(matching([&skill], "browse").len(), 1);
    assert!(!read("---\nname: a\ndescription: b\n---\n").unwrap().is_triggered_by("anything"));
}

#[test]
fn missing_programs_and_variables_are_reported() {
    let text =
        "---\nname: a\ndescription: b\nrequires: {bins: [sh, no-such-program], env: [TOKEN, NONE]}\n---\n";
    let missing = read(text).unwrap().missing(&variables);
    assert_eq!(
        missing,
        [MissingRequirement::Program("no-such-program".into()), MissingRequirement::Variable("NONE".into())]
    );
}

#[test]
fn invalid_skill_keys_are_reported_with_line_and_hint() {
    let check = |text: &str, line: usize, expected: &str| {
        let errors = read(text).unwrap_err();
        let told = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(told.contains(&format!("s/SKILL.md:{line}: ")) && told.contains(expected), "{text}\n{told}");
    };
    let yaml = |more: &str| format!("---\nname: a\ndescription: b\n{more}\n---\n");
    let toml = |more: &str| format!("+++\nname = 'a'\ndescription = 'b'\n{more}\n+++\n");
    check("no keys", 1, "must begin with front matter");
    check("---\nname: a\n", 1, "the front matter is not closed");
    check("---\nname: a\n---\n", 2, "`description` is missing");
    check(&yaml("requires: 7"), 4, "must be a list of words");
    check(&yaml("requires: {bin: [a]}"), 4, "expected `bins` or `env`");
    check(&yaml("a: [1"), 4, "unclosed");
    check(&toml("x ="), 4, "");
    check(&toml("[mcp.x]\ncommnd = 'a'"), 5, "did you mean `command`?");
    check(&toml("[mcp.x]\ncommand = 'sh -c evil'"), 5, "letters, digits");
    check(&toml("[mcp.x]\ncommand = 'a'\nsandbox = false"), 6, "`haft.json`, under `mcpServers.x`");
    check(&toml("[mcp.x]\ncommand = 'a'\nurl = 'http://h'"), 4, "needs a `command` or a `url`");
    check(&toml("[mcp.x]\ncommand = 'a'\nargs = 'b'"), 6, "expected a list");
    check(
        &toml("[mcp.x]\ncommand = 'a'\nenv = { A = '${PATH}' }"),
        6,
        "uses the variable `${PATH}` but does not declare it",
    );
    check(&yaml("mcp-x: 'a \"b c\"'"), 4, "quotes have no effect");
    check(&yaml("mcp-x: a\nmcp: {x: {command: b}}"), 4, "defines the server `x` twice");
    check(&yaml("mcp: [1]"), 4, "a table for each server");
    check(&format!("---\nname: a b\ndescription: {}\n---\n", "d".repeat(2000)), 3, "1 to 1024 characters");
    check(&"-".repeat(SKILL_BYTES_MAX + 1), 1, "the limit is");
    check(&yaml(&format!("metadata: {}", "[".repeat(10_000))), 4, "");
}

/// Returns YAML whose aliases expand to 10^9 values.
fn alias_bomb() -> String {
    let levels = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let line = |(at, name): (usize, &&str)| {
        let item = if at == 0 { "x".to_owned() } else { format!("*{}", levels[at - 1]) };
        format!("{name}: &{name} [{}]\n", vec![item; 10].join(", "))
    };
    levels.iter().enumerate().map(line).collect()
}

#[test]
fn alias_bomb_in_a_skill_is_an_error_at_once() {
    let begun = Instant::now();
    let errors = read(&format!("---\nname: a\ndescription: b\n{}---\n", alias_bomb())).unwrap_err();
    assert!(begun.elapsed() < BOMB_TIME_MAX, "{:?}", begun.elapsed());
    assert!(errors[0].to_string().contains("s/SKILL.md:"), "{errors:?}");
}

/// The file occupies no disk space, and haft must not read it into memory.
#[test]
fn skill_file_of_fifty_megabytes_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(&dir.path().join("home"));
    crate::home::create(&home).unwrap();
    let file = skill_at(&home.root().join("skills"), "huge", "large");
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(50 << 20).unwrap();
    let begun = Instant::now();
    let found = load(Some(&home), None, &variables);
    assert!(begun.elapsed() < BOMB_TIME_MAX, "{:?}", begun.elapsed());
    assert!(found.skills.is_empty() && found.errors.len() == 1, "{:?}", found.errors);
    assert!(found.errors[0].to_string().contains("limit"), "{}", found.errors[0]);
}

fn skill_at(directory: &Path, name: &str, description: &str) -> std::path::PathBuf {
    let dir = directory.join(name);
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join(FILE_NAME);
    fs::write(&file, format!("---\nname: {name}\ndescription: {description}\ntrigger: x\n---\n")).unwrap();
    file
}

#[test]
fn project_skills_apply_only_while_trusted_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let home = Home::at(&root.join("home"));
    crate::home::create(&home).unwrap();
    let project = root.join("ws");
    skill_at(&home.root().join("skills"), "one", "of home");
    let own = skill_at(&project.join(".haft/skills"), "one", "of the project");
    skill_at(&project.join("skills"), "two", "never trusted");
    let described = || -> Vec<String> {
        let found = load(Some(&home), Some(&project), &variables);
        assert_eq!(found.errors, []);
        found.skills.into_iter().map(|skill| skill.description).collect()
    };
    assert_eq!(described(), ["of home"]);
    TrustRecord::change(&home, |record| {
        record.files.insert(own.clone(), FileDigest::of(&fs::read(&own).unwrap()));
    })
    .unwrap();
    assert_eq!(described(), ["of the project"]);
    fs::write(&own, "---\nname: one\ndescription: changed\n---\n").unwrap();
    assert_eq!(described(), ["of home"]);
    let ignored = load(Some(&home), Some(&project), &variables).ignored;
    assert_eq!(
        ignored.iter().map(|(_, why)| why.clone()).collect::<Vec<_>>(),
        [UntrustedReason::Changed, UntrustedReason::Never]
    );
}

#[test]
fn symlinked_and_invalid_skills_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(&dir.path().join("home"));
    crate::home::create(&home).unwrap();
    let skills = home.root().join("skills");
    skill_at(&skills, "good", "stays");
    let outside = skill_at(dir.path(), "outside", "no");
    symlink(outside.parent().unwrap(), skills.join("linked")).unwrap();
    fs::create_dir(skills.join("bad")).unwrap();
    fs::write(skills.join("bad").join(FILE_NAME), b"\xff").unwrap();
    let found = load(Some(&home), None, &variables);
    assert_eq!(found.skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>(), ["good"]);
    assert_eq!(found.errors.len(), 1);
    assert_eq!(found.matching("x", &variables).len(), 1);
}

/// The commands of a linked skill would be looked up in the project that contains the link.
#[test]
fn skill_that_is_trusted_in_one_project_is_untrusted_in_other_projects() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let home = Home::at(&root.join("home"));
    crate::home::create(&home).unwrap();
    let trusted = skill_at(&root.join("one/skills"), "lent", "of another project");
    TrustRecord::change(&home, |record| {
        record.files.insert(trusted.clone(), FileDigest::of(&fs::read(&trusted).unwrap()));
    })
    .unwrap();
    let names = |project: &str| -> Vec<String> {
        let found = load(Some(&home), Some(&root.join(project)), &variables);
        found.skills.into_iter().map(|skill| skill.name).collect()
    };
    fs::create_dir(root.join("other")).unwrap();
    symlink(root.join("one/skills"), root.join("other/skills")).unwrap();
    assert_eq!(names("other"), [""; 0]);
    assert_eq!(names("one"), ["lent"]);
    // A link within the project is only another name for the same file.
    fs::rename(root.join("one/skills"), root.join("one/kept")).unwrap();
    symlink("kept", root.join("one/skills")).unwrap();
    assert_eq!(project_skill_files(&root.join("one")), [root.join("one/kept/lent").join(FILE_NAME)]);
}

#[test]
fn configured_servers_override_servers_of_skills() {
    let skill = read(TOML).unwrap();
    let mut config = crate::defaults().unwrap();
    config.mcp_servers.insert("far".into(), skill.servers["playwright"].clone());
    add_servers(&mut config, [&skill]);
    assert_eq!(config.mcp_servers.len(), 2);
    assert_eq!(config.mcp_servers["far"], skill.servers["playwright"]);
}

#[test]
fn unknown_skill_keys_are_warnings() {
    let skill = read("---\nname: a\ndescription: b\ntrigers: [a]\nversion: 1\n---\n").unwrap();
    let told: Vec<String> = skill.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "s/SKILL.md:4: unknown key `trigers`; did you mean `triggers`?",
            "s/SKILL.md:5: unknown key `version`"
        ]
    );
    assert!(
        read("---\nname: a\ndescription: y\n---\n").unwrap().warnings.is_empty(),
        "`y` is a string, not a boolean"
    );
}

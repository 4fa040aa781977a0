//! Tests of skills through the real binary: listed, checked, trusted.

use haft_testkit::{TestTree, TestUser};
use serde_json::Value;

const GOOD: &str = "---\nname: browser\ndescription: Drives a browser\ntrigger: browse|web\nrequires: {bins: [sh, no-such-program], env: [BROWSER_KEY]}\nmcp-playwright: npx -y @playwright/mcp\n---\n# Browser\n";

fn tree() -> TestTree {
    TestTree::new(TestUser::Ourselves)
}

#[test]
fn skills_list_reports_missing_requirements() {
    let tree = tree();
    tree.file("home/skills/browser/SKILL.md", GOOD);
    let ran = tree.haft(&["skills", "list"]).output().expect_code(0);
    assert!(ran.stdout.contains("browser  lacking  playwright"), "{}", ran.stdout);
    assert!(ran.stdout.contains("`no-such-program` is not on PATH"), "{}", ran.stdout);
    let ran = tree.haft(&["skills", "list", "--json"]).env("BROWSER_KEY", "s3cret").output().expect_code(0);
    let listed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(listed[0]["servers"][0], "playwright");
    assert_eq!(listed[0]["missing"].as_array().unwrap().len(), 1, "{listed}");
    assert!(!ran.stdout.contains("s3cret"));
}

#[test]
fn skills_check_reports_errors_with_file_and_line() {
    let tree = tree();
    tree.file("home/skills/good/SKILL.md", GOOD);
    tree.haft(&["skills", "check"]).output().expect_code(0);
    tree.file("home/skills/bad/SKILL.md", "---\nname: bad\ndescripton: typo\n---\n");
    let ran = tree.haft(&["skills", "check"]).output().expect_code(42);
    assert!(
        ran.stdout.contains("bad/SKILL.md:3: unknown key `descripton`; did you mean `description`?"),
        "{}",
        ran.stdout
    );
    let listed = tree.haft(&["skills", "list"]).output().expect_code(0);
    assert!(
        listed.stdout.contains("browser") && listed.stderr.contains("haft ignores a skill with an error"),
        "{listed:?}"
    );
    let one = tree.haft(&["skills", "check", "--json", "../home/skills/bad"]).output().expect_code(42);
    let found: Value = serde_json::from_str(&one.stdout).unwrap();
    assert_eq!((&found["ok"], &found["errors"][0]["line"]), (&false.into(), &3.into()), "{found}");
    tree.haft(&["skills", "check", "nothing/there"]).output().expect_code(42);
}

#[test]
fn project_skills_apply_only_while_trusted_and_unchanged() {
    let tree = tree();
    let file = "ws/.haft/skills/browser/SKILL.md";
    tree.file(file, GOOD);
    let listed = || tree.haft(&["skills", "list"]).output().expect_code(0);
    assert!(listed().stdout.contains("no skills") && listed().stderr.contains("is not trusted"));
    let trusted = tree.haft(&["trust", "--yes"]).output().expect_code(0);
    assert!(
        trusted.stdout.contains("mcp-playwright: npx") && trusted.stdout.contains("trusted: "),
        "{}",
        trusted.stdout
    );
    assert!(listed().stdout.contains("browser"));
    tree.file(file, &GOOD.replace("npx", "evil"));
    assert!(listed().stderr.contains("changed since it was trusted"));
    tree.haft(&["trust", "--revoke"]).output().expect_code(0);
    tree.file(file, GOOD);
    assert!(listed().stderr.contains("is not trusted"));
}

#[test]
fn trust_lists_project_programs_it_does_not_cover() {
    let tree = tree();
    tree.file("ws/tools/server.py", "pass");
    tree.file("ws/.haft/skills/browser/SKILL.md", &GOOD.replace("npx -y", "python3 tools/server.py -y"));
    tree.file(
        "ws/.mcp.json",
        r#"{"mcpServers": {"own": {"command": "python3", "args": ["./tools/server.py", "README"]}}}"#,
    );
    let trusted = tree.haft(&["trust", "--yes"]).output().expect_code(0);
    let server = tree.path("ws/tools/server.py").canonicalize().unwrap();
    let told = format!("not covered: {}", server.display());
    assert_eq!(trusted.stdout.matches(&told).count(), 2, "{}", trusted.stdout);
    tree.file("ws/tools/server.py", "changed");
    assert!(tree.haft(&["skills", "list"]).output().expect_code(0).stdout.contains("browser"));
}

#[test]
fn trust_lists_servers_whose_variables_are_not_set() {
    let tree = tree();
    tree.file("ws/tools/server.py", "pass");
    let skill = "---\nname: s\ndescription: d\nrequires: {env: [UNSET_TOKEN]}\nmcp:\n  own: {command: python3, args: [tools/server.py, \"${UNSET_TOKEN:-x}\", \"${UNSET_TOKEN}\"]}\n  far: {url: \"https://h/${UNSET_TOKEN}\"}\n---\nUse it.\n";
    tree.file("ws/.haft/skills/s/SKILL.md", skill);
    let told = tree.haft(&["trust", "--yes"]).output().expect_code(0).stdout;
    let server = tree.path("ws/tools/server.py").canonicalize().unwrap();
    for expected in [
        "server own of skill s: python3 tools/server.py ${UNSET_TOKEN:-x} ${UNSET_TOKEN}\n",
        "server far of skill s: https://h/${UNSET_TOKEN}\n",
        &format!("not covered: {}", server.display()),
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
}

#[test]
fn trust_lists_uncovered_scripts_and_openapi_files() {
    let tree = tree();
    tree.file("ws/run.sh", "true");
    tree.file("ws/shop.json", "{}");
    tree.file("ws/haft.json", r#"{"mcpServers": {"a b": {"command": "bash", "args": ["./run.sh"]}}, "openapiSpecs": {"shop": {"spec": "shop.json"}}}"#);
    let told = tree.haft(&["trust", "--yes"]).output().expect_code(0).stdout;
    for name in ["ws/run.sh", "ws/shop.json"] {
        let path = tree.path(name).canonicalize().unwrap();
        assert!(told.contains(&format!("not covered: {}", path.display())), "{told}");
    }
}

#[test]
fn trust_command_escapes_control_characters_in_file_names() {
    let tree = tree();
    tree.file("ws/skills/a\u{1b}[2J\nb/SKILL.md", GOOD);
    let trusted = tree.haft(&["trust", "--yes"]).output().expect_code(0).stdout;
    assert!(trusted.contains(r"trusted: ") && trusted.contains(r"/a\u{1b}[2J\nb/SKILL.md"), "{trusted}");
    for words in [["trust", "--list"], ["trust", "--revoke"]] {
        let told = tree.haft(&words).output().expect_code(0).stdout;
        assert!(told.contains(r"a\u{1b}[2J\nb/SKILL.md") && !told.contains('\u{1b}'), "{told}");
    }
    let listed = tree.haft(&["skills", "list"]).output().expect_code(0).stderr;
    assert!(listed.contains(r"a\u{1b}[2J\nb/SKILL.md"), "{listed}");
}

#[test]
fn skill_files_without_a_directory_or_with_foreign_keys_are_read() {
    let tree = tree();
    tree.file("home/skills/flat.md", "---\nname: flat\ndescription: y\nversion: 1\n---\nHi.\n");
    tree.file("home/skills/README.md", "# About these skills\n");
    let listed = tree.haft(&["skills", "list"]).output().expect_code(0);
    assert!(listed.stdout.contains("flat") && !listed.stdout.contains("README"), "{}", listed.stdout);
    assert!(listed.stderr.contains("flat.md:4: unknown key `version`"), "{}", listed.stderr);
    let checked = tree.haft(&["skills", "check"]).output().expect_code(0);
    assert!(checked.stderr.contains("unknown key `version`"), "{}", checked.stderr);
    tree.file("ws/skills/own.md", "---\nname: own\ndescription: of the project\n---\nHi.\n");
    let trusted = tree.haft(&["trust", "--yes"]).output().expect_code(0);
    assert!(trusted.stdout.contains("skill own"), "{}", trusted.stdout);
    assert!(tree.haft(&["skills", "list"]).output().expect_code(0).stdout.contains("own"));
}

#[test]
fn skills_list_names_ignored_keys_of_trusted_claude_code_skills() {
    let tree = tree();
    tree.file("ws/.claude/skills/pdf/SKILL.md", "---\ndescription: Fills in forms\nmodel: opus\n---\nHi.\n");
    tree.file(
        "ws/.claude/skills/person/SKILL.md",
        "---\ndescription: x\ndisable-model-invocation: true\n---\n",
    );
    let listed = || tree.haft(&["skills", "list"]).output().expect_code(0);
    assert!(listed().stdout.contains("no skills") && listed().stderr.contains("is not trusted"));
    let trusted = tree.haft(&["trust", "--yes"]).output().expect_code(0).stdout;
    assert!(trusted.contains("skill pdf") && trusted.contains("haft cannot use the skill"), "{trusted}");
    let found = listed();
    assert!(found.stdout.contains("pdf  ") && !found.stdout.contains("person"), "{}", found.stdout);
    assert!(found.stderr.contains("SKILL.md:3: the key `model` has no effect in haft"), "{}", found.stderr);
    assert!(found.stderr.contains("the skill lets only a person start it"), "{}", found.stderr);
    // If a skill that was written for haft has the same name, haft uses that skill instead.
    tree.file("home/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Own\n---\nHi.\n");
    assert!(listed().stdout.contains("Own") && !listed().stdout.contains("Fills"), "{}", listed().stdout);
}

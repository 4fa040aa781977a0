use super::*;
use crate::agents::{AgentDefinition, AgentReadContext};

/// Translates a file and reads it as haft does. Returns the agent and the notes.
fn read(path: &str, text: &str) -> Result<(AgentDefinition, Vec<String>), String> {
    let translated = translate(Path::new(path), text).map_err(|error| error.to_string())?.unwrap();
    let around = AgentReadContext { read: &|_| Err("no files".into()), variable: &|_| None };
    let agent = AgentDefinition::read(path, &translated.text, around).map_err(|error| error.to_string())?;
    Ok((agent, translated.notes))
}

fn tools(path: &str, keys: &str) -> Option<Vec<String>> {
    let (agent, _) = read(path, &format!("---\n{keys}\n---\nHi.\n")).unwrap();
    agent.reach.tools.map(|tools| tools.iter().map(ToString::to_string).collect())
}

const CLAUDE: &str = "/p/.claude/agents/reviewer.md";
const OPENCODE: &str = "/p/.opencode/agent/reviewer.md";

fn check_notes(notes: &[String], expected: &[&str]) {
    assert_eq!(notes.len(), expected.len(), "{notes:#?}");
    for expected in expected {
        assert!(notes.iter().any(|note| note.contains(expected)), "{expected}: {notes:#?}");
    }
}

#[test]
fn claude_code_agent_is_translated_with_notes_about_unsupported_keys() {
    let (agent, notes) = read(CLAUDE, include_str!("fixtures/claude-code.md")).unwrap();
    assert!(agent.description.starts_with("Use this agent after a change. Examples: <example>"));
    let tools: Vec<String> = agent.reach.tools.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(tools, ["read", "mcp:github__get_issue", "mcp:docs__*"]);
    assert_eq!(agent.limits.turns_max, 12);
    assert_eq!(format!("{:?}", agent.asking.effort), "Some(Highest)");
    assert_eq!(agent.body, "You review code. Print ${HOME} and $${x} as they are.\n");
    assert!(agent.models.is_empty());
    let expected = [
        "`name`: haft names",
        "haft ignores `Grep`",
        "haft ignores `Bash(git diff:*)`",
        "`model`",
        "`permissionMode`",
    ];
    check_notes(&notes, &expected);
}

#[test]
fn opencode_agent_is_translated_with_notes_about_unsupported_keys() {
    let (agent, notes) = read(OPENCODE, include_str!("fixtures/opencode.md")).unwrap();
    assert_eq!(agent.description, "Reviews code without changing it");
    assert_eq!(agent.models, ["anthropic/claude-sonnet-4-5"]);
    let tools: Vec<String> = agent.reach.tools.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(tools, ["read", "introspect", "current_date", "*__*", "mcp:*"]);
    assert_eq!((agent.limits.turns_max, agent.asking.sampling.temperature), (8, Some(0.1)));
    assert_eq!(agent.asking.sampling.top_p, Some(0.9));
    assert_eq!(agent.body, "You are in review mode. Use {env:HOME} as it is.\n");
    check_notes(
        &notes,
        &[
            "`permission`: `haft.json` sets the rules",
            "`textVerbosity`: haft ignores this key, because haft has no such setting",
        ],
    );
}

#[test]
fn translated_agent_never_has_more_tools_than_the_original() {
    let check = |path: &str, keys: &str, expected: Option<&[&str]>| {
        let expected = expected.map(|tools| tools.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(tools(path, keys), expected, "{keys}");
    };
    let all_but_edits: &[&str] = &["bash", "read", "introspect", "current_date", "*__*", "mcp:*"];
    let builtins: &[&str] = &BUILTINS;
    check(CLAUDE, "description: x", None);
    check(CLAUDE, "tools: '*'", None);
    check(CLAUDE, "tools: []", Some(&[]));
    check(CLAUDE, "tools: WebFetch, Task(a, b)", Some(&[]));
    check(CLAUDE, "tools: [Read, mcp__docs__*]", Some(&["read", "mcp:docs__*"]));
    check(CLAUDE, "tools: Read, Bash\ndisallowedTools: [Bash]", Some(&["read"]));
    check(CLAUDE, "disallowedTools: Write, Edit", Some(all_but_edits));
    check(CLAUDE, "disallowedTools: mcp__docs__delete", Some(builtins));
    check(CLAUDE, "tools: Read, mcp__docs\ndisallowedTools: mcp__docs__delete", Some(&["read"]));
    check(CLAUDE, "disallowedTools: Write Edit(a b)", Some(all_but_edits));
    check(CLAUDE, "disallowedTools: [write, 'Ed*']", Some(all_but_edits));
    // This pattern can match tools of servers too.
    check(CLAUDE, "disallowedTools: [Write, '*Edit']", Some(&["bash", "read", "introspect", "current_date"]));
    check(CLAUDE, "disallowedTools: 'mcp*'", Some(builtins));
    check(CLAUDE, "disallowedTools: '*'", Some(&[]));
    check(CLAUDE, "disallowedTools: WebFetch", None);
    check(CLAUDE, "permissionMode: plan", Some(&["read", "introspect", "current_date"]));
    check(OPENCODE, "description: x", None);
    check(OPENCODE, "tools: {'*': false, read: true, docs_search: true}", Some(&["read"]));
    check(OPENCODE, "tools: {write: false, edit: false, webfetch: false}", Some(all_but_edits));
    check(OPENCODE, "tools: {'docs_*': false}", Some(builtins));
    check(OPENCODE, "tools: {write: false}", Some(all_but_edits));
    check(OPENCODE, "tools: {apply_patch: false}", Some(all_but_edits));
    check(
        OPENCODE,
        "tools: {'bash*': false}",
        Some(&["read", "write", "edit", "introspect", "current_date"]),
    );
    check(OPENCODE, "tools: {'w*': false}", Some(&["bash", "read", "introspect", "current_date"]));
    check(
        OPENCODE,
        "permission: {'?ash': deny}",
        Some(&["read", "write", "edit", "introspect", "current_date"]),
    );
    check(OPENCODE, "permission: {edit: deny}", Some(all_but_edits));
    check(
        OPENCODE,
        "permission: {bash: {'*': ask, 'rm *': deny}}",
        Some(&["read", "write", "edit", "introspect", "current_date", "*__*", "mcp:*"]),
    );
    check(OPENCODE, "permission: {bash: {'*': ask}, edit: ask}", None);
    check(OPENCODE, "permission: deny", Some(&[]));
    check(OPENCODE, "permission: {'*': deny}", Some(&[]));
}

#[test]
fn tool_restriction_in_an_agent_file_with_invalid_yaml_still_applies() {
    let check = |keys: &str, expected: &[&str]| {
        let found = tools(CLAUDE, &format!("description: Use when: a: b\n{keys}"));
        assert_eq!(found.unwrap(), expected, "{keys}");
    };
    let all_but_bash = ["read", "write", "edit", "introspect", "current_date", "*__*", "mcp:*"];
    check("disallowedTools: [Bash, Write]", &["read", "edit", "introspect", "current_date", "*__*", "mcp:*"]);
    check("disallowedTools: Bash", &all_but_bash);
    check("disallowedTools: \"Bash\"", &all_but_bash);
    check("disallowedTools: 'Bash' # no shell", &all_but_bash);
    check("disallowedTools: Bash, WebFetch # no shell", &all_but_bash);
    check("  - Tools: none\ndisallowedTools: *", &[]);
    check("permissionMode: \"plan\"", &["read", "introspect", "current_date"]);
    check("tools: [\"Read\", 'Edit'] # no shell", &["read", "edit"]);
}

#[test]
fn server_tools_in_an_agent_file_never_select_builtin_tools() {
    let check = |item: &str, expected: &[&str]| {
        let expected: Vec<_> = ["read"].iter().chain(expected).map(ToString::to_string).collect();
        assert_eq!(tools(CLAUDE, &format!("tools: [Read, '{item}']")), Some(expected), "{item}");
    };
    check("mcp__*", &["mcp:*"]);
    check("mcp__docs", &["mcp:docs__*"]);
    check("mcp__docs__get_*", &["mcp:docs__get_*"]);
    check("mcp__bash", &["mcp:bash__*"]);
    check("mcp__builtin", &["mcp:builtin__*"]);
    for left_out in
        ["mcp__b*", "mcp__b?sh", "mcp__[b]ash", "mcp__@builtin", "mcp__*sh__x", "mcp__", "mcp__docs__"]
    {
        check(left_out, &[]);
    }
    for builtin in BUILTINS {
        let found = tools(CLAUDE, &format!("tools: ['mcp__*', mcp__{builtin}, mcp__{builtin}__*]")).unwrap();
        let selects = |item: &String| haft_core::glob::ToolGlob::new(item).unwrap().matches(builtin);
        assert!(!found.iter().any(selects), "{builtin}: {found:?}");
    }
}

#[test]
fn denial_that_haft_cannot_apply_is_noted() {
    let check = |path: &str, keys: &str, expected: &[&str]| {
        let (_, notes) = read(path, &format!("---\n{keys}\n---\nHi.\n")).unwrap();
        check_notes(&notes, expected);
    };
    check(
        CLAUDE,
        "disallowedTools: [Bsh, Bash]",
        &["`disallowedTools`: haft cannot deny `Bsh`: haft has no such tool"],
    );
    check(CLAUDE, "disallowedTools: [Skill, WebFetch]", &["`disallowedTools`: haft cannot deny `Skill`"]);
    check(OPENCODE, "tools: {skill: false, task: false}", &["`tools`: haft cannot deny `skill`"]);
    let expected =
        ["`permission`: haft cannot deny `external_directory`", "`permission`: `haft.json` sets the rules"];
    check(OPENCODE, "permission: {external_directory: deny}", &expected);
}

#[test]
fn agent_file_with_an_unclear_tool_restriction_is_refused() {
    let check = |path: &str, keys: &str, expected: &str| {
        let error = read(path, &format!("---\n{keys}\n---\nHi.\n")).unwrap_err();
        assert!(error.contains(expected), "{keys}: {error}");
    };
    check(CLAUDE, "description: a: b\ndisallowedTools:\n  - Bash\n  - Write", "reviewer.md:");
    check(CLAUDE, "disallowedTools: {Bash: true}", "`disallowedTools`: expected a list of tool names");
    check(CLAUDE, "disallowedTools: [Bash, 1]", "`disallowedTools`: expected a list of tool names");
    check(CLAUDE, "permissionMode: [plan]", "`permissionMode`: expected the name of a mode");
    for restriction in [
        "disallowedTools: \"Bash\", \"Write\"",
        "disallowedTools: [Bash",
        "disallowedTools: Bash\ndisallowedTools: Write",
        " disallowedTools: Bash",
        "\"disallowedTools\": Bash",
        "disallowedTools : Bash",
    ] {
        check(CLAUDE, &format!("description: a: b\n{restriction}"), "reviewer.md:2");
    }
    check(
        CLAUDE,
        "description: a: b\ndisallowedTools: [Bsh]",
        "seems to deny the tool `Bsh`, but haft has no such tool",
    );
    check(OPENCODE, "tools: {bash: 'false'}", "`tools.bash`: expected true or false");
    check(OPENCODE, "tools: {'*': 'false'}", "`tools.*`: expected true or false");
    check(OPENCODE, "permission: {bash: false}", "`permission` of `bash`: expected allow, ask or deny");
    check(OPENCODE, "permission: {bash: {'rm *': no}}", "`permission` of `bash`: expected allow");
    check(OPENCODE, "permission: never", "`permission` of `*`: expected allow, ask or deny");
    check(OPENCODE, "description: a: b\npermission: deny", "reviewer.md:");
    check(OPENCODE, "tools: [read]", "`tools`: expected tool names with true or false");
    check(OPENCODE, "permission: [deny]", "`permission`: expected tool names");
    check(OPENCODE, "disable: true", "the agent is disabled");
}

#[test]
fn agent_file_is_translated_only_if_it_is_in_a_directory_of_another_program() {
    let check = |path: &str, expected| assert_eq!(format_of(Path::new(path)), expected, "{path}");
    check("/p/.claude/agents/a.md", Some(AgentFormat::ClaudeCode));
    check("/p/.claude/agents/team/a.md", Some(AgentFormat::ClaudeCode));
    check("/p/.opencode/agents/a.md", Some(AgentFormat::Opencode));
    check("/p/agents/a.md", None);
    check("/p/.claude/a.md", None);
    check("/p/.claude/skills/a.md", None);
}

use haft_config::agents::graph::AgentGraph;
use haft_config::agents::loader;
use haft_core::conversation::MediaSource;
use serde_json::json;

use super::*;

fn spec() -> RunSpec {
    let odd = PathBuf::from(OsString::from_vec(b"/caf\xe9".to_vec()));
    let agent = loader::of_text("a.md", "You answer.", &AgentOverrides::default()).unwrap();
    let graph = AgentGraph::gather(agent, &loader::AgentLoader::default()).unwrap();
    RunSpec {
        changes: AgentChanges {
            models: vec!["p/m".into()],
            turns_max: Some(3),
            timeout: Some(Duration::from_secs(5)),
            continuations_max: Some(0),
            tools: Some(vec![ToolGlob::new("read*").unwrap()]),
            output_schema: Some(Arc::new(json!({"type": "object"}))),
            overrides: AgentOverrides(vec![AgentOverride::parse("budget.usd=0.5").unwrap()]),
            ..AgentChanges::default()
        },
        instructions: vec![InstructionFile { path: "/p/AGENTS.md".into(), text: "tabs".into() }],
        images: vec![Media {
            media_type: "image/png".into(),
            source: MediaSource::Bytes(b"png".as_slice().into()),
        }],
        skills: vec![SkillSource { file: "/s/SKILL.md".into(), text: "text".into() }],
        tool_choice: ToolChoice::Allowed { names: vec!["read".into()], must_call: MustCall::Yes },
        allowed_tools: Some(vec!["read".into()]),
        functions: vec![FunctionTool {
            name: "f".into(),
            description: "d".into(),
            parameters: Arc::new(json!({"type": "object"})),
            strict: true,
        }],
        approvals: vec![CallerApproval {
            tools: ToolGlob::new("docs__*").unwrap(),
            always: None,
            never: Some(ToolSelector {
                names: Some(vec![ToolGlob::new("docs__read").unwrap()]),
                read_only: Some(true),
            }),
        }],
        model_choice: ModelChoice::Routed,
        principal: Principal::new("acme", "anna", "key-1"),
        idempotency_key: Some("k".into()),
        secrets: ["TOKEN".to_owned()].into(),
        generation: 7,
        metadata: [("a".to_owned(), "b".to_owned())].into(),
        config: ConfigFiles { named: Some(odd), project: Some("/p".into()) },
        ..RunSpec::new(
            &graph,
            "go",
            WorkspaceSpec {
                network: Some(ResourceAccess::Allow),
                secrets: vec!["/x".into()],
                home: UserHomeView::Covered,
                ..WorkspaceSpec::at("/w")
            },
        )
    }
}

#[test]
fn spec_is_unchanged_after_it_is_stored_and_read() {
    let (stored, blob) = StoredSpec::of(&spec());
    let text = serde_json::to_string(&stored).unwrap();
    let read = StoredSpec::read(&serde_json::from_str(&text).unwrap()).unwrap();
    assert_eq!(read.into_spec(&blob).unwrap(), spec());
}

#[test]
fn stored_spec_of_another_version_or_with_a_damaged_blob_is_rejected() {
    let (stored, blob) = StoredSpec::of(&spec());
    let mut value = serde_json::to_value(&stored).unwrap();
    value["version"] = json!(9);
    assert_eq!(StoredSpec::read(&value), Err(SpecError::Version { found: 9 }));
    assert_eq!(StoredSpec::read(&json!({})), Err(SpecError::Version { found: 0 }));
    let damaged = [&blob[1..], b"x"].concat();
    assert!(matches!(stored.into_spec(&damaged), Err(SpecError::Sources { .. })));
}

use std::time::Duration;

use haft_core::internal_tools::report_format::ReportFormat;
use haft_core::model_request::{
    ParallelCalls, PromptCaching, ReasoningEffort, ReasoningSummary, ToolChoice, Verbosity,
};
use haft_core::run::final_report::FinalReport;
use serde_json::json;

use super::loader::AgentLoader;
use super::*;
use crate::resolved::CompactionStart;
use haft_core::settings::tool_search::{ToolExposeForm, ToolSearchMode, ToolSearchSettings};

fn read(text: &str) -> Result<AgentDefinition, AgentError> {
    let read = |name: &str| match name {
        "out.json" => Ok(r#"{"type": "object", "required": ["n"]}"#.to_owned()),
        "bad.json" => Ok("{".to_owned()),
        "rules.md" => Ok("Be kind.".to_owned()),
        _ => Err("there is no such file".to_owned()),
    };
    let variable = |name: &str| (name == "FORMAT").then(|| "markdown".to_owned());
    AgentDefinition::read("team/researcher.md", text, AgentReadContext { read: &read, variable: &variable })
}

fn whole(yaml: &str) -> AgentDefinition {
    read(&format!("---\n{yaml}\n---\nHi.\n")).unwrap()
}

fn check_error(yaml: &str, expected: &str) {
    let error = read(&format!("---\n{yaml}\n---\nHi.\n")).unwrap_err().to_string();
    assert!(error.contains(expected), "{yaml}: {error}");
}

#[test]
fn agent_without_front_matter_has_all_defaults() {
    let agent = read("You answer in ${FORMAT}. {{ include \"rules.md\" }}\n").unwrap();
    assert_eq!(agent.body, "You answer in markdown. Be kind.\n");
    assert_eq!((agent.name.as_str(), agent.tool_name.as_str()), ("researcher", "researcher"));
    let limits = agent.limits;
    assert_eq!((limits.turns_max, limits.tool_calls_per_turn_max, limits.attempts_max), (10, 10, 5));
    assert_eq!((agent.times.llm.as_secs(), agent.times.tool), (600, None));
    assert_eq!((agent.outputs.response_bytes_max, agent.asking.output_tokens_max), (None, None));
    assert_eq!((agent.report.by, agent.input.format), (ReportDelivery::None, InputFormat::Text));
    assert!(agent.reach.tools.is_none() && agent.models.is_empty());
}

/// Every key once, each with a value that is not its default.
const ALL: &str = r"
description: Finds things
toolName: finder
models: [openai/gpt-5, anthropic/claude-sonnet-4-5]
tools: github__*, read
allowedTools: [read]
agents:
  - helpers/writer.md
router: {destinations: [legal.md]}
handoff: editor.md
maxTurns: 3
maxToolCalls: 20
maxToolCallsPerTurn: 4
maxAttempts: 2
maxOutputTokens: 1000
contextTokens: 50000
contextBuffer: 700
compaction: {at: 70%, keep: 3, model: a/b}
toolChoice: read
toolSearch: always
alwaysShow: [github__get_*]
expose: append
parallelToolCalls: false
temperature: 0.5
topP: 1
verbosity: low
reasoningSummary: detailed
topK: 40
reasoning: high
caching: none
cache: 1h
timeout: 5m
llmTimeout: 90s
toolTimeout: 1500ms
maxToolResponseBytes: 2000
toolOutput: {enabled: false, maxChunks: 3, overlapPercent: 5, avgLineBytesThreshold: 10, models: a/b}
budget: {usd: 0.25, tokens: 1000, calls: 5, time: 1m, unpriced: allow}
input: {format: json, schema: {type: object}}
output: {format: json, schemaRef: out.json}
finalReport: xml
";

#[test]
fn every_agent_key_is_parsed() {
    let agent = whole(ALL);
    assert_eq!((agent.description.as_str(), agent.tool_name.as_str()), ("Finds things", "finder"));
    assert_eq!(agent.models, ["openai/gpt-5", "anthropic/claude-sonnet-4-5"]);
    let tools = agent.reach.tools.as_ref().unwrap();
    assert!(
        tools.iter().any(|glob| glob.matches("github__search"))
            && !tools.iter().any(|glob| glob.matches("write"))
    );
    assert_eq!(agent.reach.allowed_tools, Some(vec!["read".to_owned()]));
    let limits = agent.limits;
    assert_eq!((limits.turns_max, limits.tool_calls_max, limits.tool_calls_per_turn_max), (3, Some(20), 4));
    assert_eq!((limits.attempts_max, agent.asking.context_tokens), (2, Some(50_000)));
    assert_eq!((agent.asking.output_tokens_max, agent.asking.context_buffer_tokens), (Some(1000), Some(700)));
    let compaction = &agent.compaction;
    assert_eq!((compaction.at, compaction.keep_turns), (Some(CompactionStart::Percent(70)), Some(3)));
    assert_eq!(compaction.model.as_ref().unwrap().to_string(), "a/b");
    assert_eq!(agent.reach.tool_choice, ToolChoice::Named("read".into()));
    let search = agent.tool_search.over(&ToolSearchSettings::default());
    assert_eq!((search.mode, search.expose), (ToolSearchMode::Always, ToolExposeForm::Append));
    assert!(search.always_show[0].matches("github__get_issue"));
    assert_eq!(agent.asking.parallel_calls, ParallelCalls::OneAtATime);
    assert_eq!(agent.unpriced_models, UnpricedModels::Allow);
    let sampling = &agent.asking.sampling;
    assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k), (Some(0.5), Some(1.0), Some(40)));
    assert_eq!(
        (agent.asking.effort, agent.asking.caching),
        (Some(ReasoningEffort::High), PromptCaching::None)
    );
    let (summary, verbosity) = (agent.asking.reasoning_summary, agent.asking.verbosity);
    assert_eq!((summary, verbosity), (Some(ReasoningSummary::Detailed), Some(Verbosity::Low)));
    assert_eq!(agent.outputs.cache_ttl, Some(Duration::from_hours(1)));
    let times = [agent.times.run, agent.times.llm, agent.times.tool.unwrap()].map(|time| time.as_millis());
    assert_eq!(times, [300_000, 90_000, 1500]);
    let output = &agent.outputs.tool_output;
    assert_eq!(
        (output.enabled, output.chunks_max, output.line_bytes_threshold),
        (Some(false), Some(3), Some(10))
    );
    assert_eq!(output.models, ["a/b"]);
    assert_eq!(agent.outputs.response_bytes_max, Some(2000));
    assert_eq!(
        (agent.budget.usd, agent.budget.tokens, agent.budget.calls),
        (Some(0.25), Some(1000), Some(5))
    );
    assert_eq!(agent.budget.time, Some(Duration::from_mins(1)));
    assert_eq!(
        (agent.input.format, agent.input.schema.as_deref()),
        (InputFormat::Json, Some(&json!({"type": "object"})))
    );
    assert_eq!(agent.report.by, ReportDelivery::Xml);
    assert_eq!(agent.report.shape.schema().unwrap()["required"], json!(["n"]));
    let mut links = cycle::AgentLinks::new();
    agent.link(&mut links);
    assert_eq!(links["researcher"], ["writer", "legal", "editor"]);
    let plan = agent.plan(vec!["desk".into()], "n1");
    assert_eq!(plan.routes.path, ["desk", "researcher"]);
    assert!(matches!(plan.report, FinalReport::Xml { nonce, .. } if nonce == "n1"));
}

#[test]
fn list_of_agent_keys_matches_the_parsed_keys() {
    let written: Vec<_> =
        ALL.lines().filter(|line| !line.starts_with(' ')).filter_map(|line| line.split_once(':')).collect();
    let mut names: Vec<_> = written.iter().map(|(key, _)| *key).collect();
    names.sort_unstable();
    assert_eq!(names, KEYS);
}

#[test]
fn invalid_agent_keys_and_values_are_reported_with_their_line() {
    check_error(
        "description: a\nmaxTurn: 3",
        "team/researcher.md:3: unknown key `maxTurn`; did you mean `maxTurns`?",
    );
    check_error(
        "foo: 1\nmaxTurn: 3",
        "researcher.md:2: unknown key `foo`\nteam/researcher.md:3: unknown key `maxTurn`",
    );
    check_error("budget:\n  usd: 1\n  dollars: 2", "researcher.md:4: unknown key `dollars`");
    check_error("output:\n  formt: json", "did you mean `format`?");
    check_error("maxTurns: 0", "researcher.md:2: expected a whole number from 1");
    check_error("\n\nmaxTurns: many", "researcher.md:4: expected a whole number");
    check_error("temperature: warm", "researcher.md:2: expected a number");
    check_error("toolOutput: {enabled: perhaps}", "researcher.md:2: expected true or false");
    check_error("description: a\nmodels: [a/b, gpt]", "researcher.md:3: expected a model as PROVIDER/MODEL");
    check_error("toolOutput: {models: gpt}", "researcher.md:2: expected a model as PROVIDER/MODEL");
    check_error("compaction: {model: gpt}", "researcher.md:2: expected a model as PROVIDER/MODEL");
    check_error("compaction: {at: 185%}", "expected a percentage such as 85%, or off; got `185%`");
    check_error("compaction: {at: 85}", "expected a percentage such as 85%, or off; got `85`");
    check_error("compaction: {keeps: 3}", "unknown key `keeps`");
    check_error("toolSearch: often", "researcher.md:2:");
    check_error("alwaysShow: ['a[']", "`alwaysShow`: ");
    check_error("compaction: often", "off, or keys such as {at: 85%, keep: 6}");
    check_error("temperature: 3", "researcher.md:2: expected a number from 0 to 2; got 3");
    check_error("llmTimeout: soon", "expected a duration");
    check_error("reasoning: hard", "expected one of off, minimal, low, medium, high, highest; got `hard`");
    check_error("toolName: a b", "a tool name must be");
    check_error("output: {format: html}", "expected one of json, markdown");
    check_error("a: b: c", "researcher.md:2: ");
    check_error("maxTurns: 1\nmaxTurns: 2", "researcher.md:3: duplicate key `maxTurns`");
    check_error("- a", "researcher.md:2: expected keys with their values");
}

#[test]
fn agent_file_with_an_invalid_schema_is_rejected() {
    check_error(
        "description: a\noutput:\n  schemaRef: none.json",
        "researcher.md:4: haft cannot read the schema file `none.json`: there is no such file",
    );
    check_error("output: {schemaRef: bad.json}", "researcher.md:2: the schema file `bad.json` is not JSON");
    check_error("output: {schema: {type: nonsense}}", "the schema does not compile");
    check_error("input: {schema: {}, schemaRef: out.json}", "not both");
    check_error("output: {format: markdown, schema: {type: object}}", "`schema` needs `format: json`");
    check_error(
        "input:\n  format: text\n  schema: {type: object}",
        "researcher.md:4: `schema` needs `format: json`",
    );
}

#[test]
fn structured_output_selects_a_report_by_default() {
    let check = |yaml: &str, by: ReportDelivery, format: ReportFormat| {
        let report = whole(yaml).report;
        assert_eq!((report.by, report.shape.format()), (by, format), "{yaml}");
    };
    check("description: a", ReportDelivery::None, ReportFormat::Markdown);
    check("output: {format: slack-block-kit}", ReportDelivery::Tool, ReportFormat::SlackBlockKit);
    check("output: {schema: {type: object}}", ReportDelivery::Tool, ReportFormat::Json);
    check("finalReport: xml", ReportDelivery::Xml, ReportFormat::Markdown);
    check("output: {format: text}\nfinalReport: none", ReportDelivery::Text, ReportFormat::Text);
    check("output: {schema: {type: object}}\nfinalReport: none", ReportDelivery::Text, ReportFormat::Json);
}

#[test]
fn word_list_is_a_string_or_a_list() {
    assert_eq!(whole("models: a/b, c/d").models, ["a/b", "c/d"]);
    assert_eq!(whole("models: a/b").models, ["a/b"]);
    assert_eq!(whole("allowedTools: []").reach.allowed_tools, Some(Vec::new()));
    assert_eq!(whole("cache: off").outputs.cache_ttl, None);
    for off in ["compaction: off", "compaction: {at: off}"] {
        assert_eq!(whole(off).compaction.at, Some(CompactionStart::Off), "{off}");
    }
    assert_eq!(whole("# nothing").limits.turns_max, 10);
}

#[test]
fn agent_file_that_is_too_large_deep_or_an_alias_bomb_is_rejected() {
    let error = read(&"x".repeat(AGENT_BYTES_MAX + 1)).unwrap_err().to_string();
    assert!(error.contains("the limit is 1048576"), "{error}");
    let deep = format!("description: {}{}", "[".repeat(5000), "]".repeat(5000));
    check_error(&deep, "researcher.md:2: ");
    let bomb: String = ["b", "c", "d", "e", "f", "g", "h", "i"]
        .iter()
        .zip(["a", "b", "c", "d", "e", "f", "g", "h"])
        .map(|(name, before)| {
            ["  - &", name, " [", &vec![format!("*{before}"); 10].join(", "), "]\n"].concat()
        })
        .collect();
    check_error(&format!("models:\n  - &a [x, x, x, x, x, x, x, x, x, x]\n{bomb}"), "researcher.md:");
}

/// A path that the user writes needs no trust, but the files that the agent includes must be in its directory.
#[test]
fn agent_given_by_path_cannot_include_files_outside_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    let link = |to: &str, from: &str| std::os::unix::fs::symlink(to, dir.path().join(from)).unwrap();
    write("secret.txt", "the key");
    write("elsewhere/rules.md", "Be evil.");
    write("team/rules.md", "Be kind.");
    write("team/a.md", "{{ include \"linked.md\" }}");
    write("team/b.md", "{{ include \"below/rules.md\" }}");
    write("team/c.md", "{{ include \"same.md\" }}");
    link("../secret.txt", "team/linked.md");
    link("../elsewhere", "team/below");
    link("rules.md", "team/same.md");
    let loader = AgentLoader::new(None, None);
    let read = |name: &str| {
        let file = dir.path().join("team").join(name);
        loader.read(&file.to_string_lossy(), &AgentOverrides::default())
    };
    for name in ["a.md", "b.md"] {
        let error = read(name).unwrap_err().to_string();
        assert!(error.contains("is a link to a file outside"), "{name}: {error}");
    }
    assert_eq!(read("c.md").unwrap().agent.body, "Be kind.");
}

#[test]
fn old_keys_of_an_agent_file_are_accepted_with_a_warning() {
    let agent = read("---\nmaxRetries: 2\ncontextWindow: 5000\ntoolResponseMaxBytes: 600\n---\n").unwrap();
    assert_eq!((agent.limits.attempts_max, agent.asking.context_tokens), (2, Some(5000)));
    assert_eq!(agent.outputs.response_bytes_max, Some(600));
    assert_eq!(agent.warnings.len(), 3, "{:?}", agent.warnings);
    assert!(
        agent.warnings[1].ends_with("`maxRetries` was renamed to `maxAttempts`; use the new name"),
        "{:?}",
        agent.warnings
    );
    let suggestion = read("---\nmaxRetrys: 2\n---\n").unwrap_err().to_string();
    assert!(!suggestion.contains("maxRetries"), "{suggestion}");
}

#[test]
fn duration_without_a_unit_in_an_agent_file_is_warned_about() {
    let warnings = |keys: &str| read(&format!("---\n{keys}\n---\n")).unwrap().warnings;
    let found = warnings("llmTimeout: 1500\ntimeout: 60000\ntoolTimeout: 5s");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].ends_with("`llmTimeout: 1500` has no unit and means milliseconds; write `1500ms`"),
        "{found:?}"
    );
}

#[test]
fn old_key_budget_seconds_is_accepted_with_a_warning() {
    let time = |budget: &str| read(&format!("---\nbudget: {budget}\n---\n")).unwrap().budget.time;
    assert_eq!(time("{seconds: 60}"), Some(Duration::from_mins(1)));
    assert_eq!(time("{seconds: 60, time: 5s}"), Some(Duration::from_secs(5)));
    let warnings = |budget: &str| read(&format!("---\nbudget: {budget}\n---\n")).unwrap().warnings;
    assert!(
        warnings("{seconds: 60}")[0]
            .ends_with("`budget.seconds` was renamed to `budget.time`; write a duration such as `60s`")
    );
    assert!(warnings("{time: 60s}").is_empty());
}

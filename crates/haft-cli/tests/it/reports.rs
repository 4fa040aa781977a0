//! Tests of final reports: every format, as a call and between tags, with every wire format.

use haft_model_server::{ModelServer, Script, ScriptPart, ScriptStep};
use serde_json::{Value, json};

use super::agents::{agents, ask};
use super::run::{FORMATS, haft};

/// Returns the formats, each with a valid report and an invalid one.
fn reports() -> [(&'static str, Value, Value); 7] {
    let blocks = json!([{"type": "section", "text": {"type": "mrkdwn", "text": "red"}}]);
    [
        ("json", json!({"colour": "red"}), json!({"colour": 7})),
        ("markdown", json!("# It is **red**\n"), json!("```\nopen")),
        ("slack-block-kit", blocks, json!([{"type": "paragraph"}])),
        ("tty", json!("It is \u{1b}[31mred\u{1b}[0m"), json!("\u{1b}[2J")),
        ("pipe", json!("red"), json!("a\u{7}b")),
        ("text", json!("It is red."), json!("a\u{0}b")),
        ("sub-agent", json!("Red, says the log."), json!(" ")),
    ]
}

/// Returns the step in which a model submits a report: as a call of the report tool, or between tags that contain the
/// word from the system prompt.
fn given(by: &str, format: &str, content: &Value) -> ScriptStep {
    let field = if content.is_string() { "content" } else { "content_json" };
    if by == "tool" {
        let report = json!({"status": "success", "format": format, field: content});
        return ScriptStep::call("agent__final_report", report);
    }
    let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
    let word = "{{word haft-}}";
    ScriptStep::text(&format!("Here it is: <{word} format=\"{format}\">{text}</{word}>"))
}

fn script(by: &str) -> Script {
    let asks: Vec<ScriptPart> =
        reports().iter().map(|(format, ..)| ask(format, &format!("AS {format}."))).collect();
    let script = Script::default().about("LEAD", [ScriptStep::say(asks), ScriptStep::text("all")]);
    reports().iter().fold(script, |script, (format, right, wrong)| {
        let steps = [given(by, format, wrong), given(by, format, right)];
        script.about(&format!("AS {format}."), steps)
    })
}

/// One run asks seven agents concurrently, each for one format. Each agent first submits an invalid report and gets an
/// error.
#[test]
fn every_report_format_works_as_a_tool_call_and_between_tags_on_every_api() {
    for by in ["tool", "xml"] {
        let schema = "output: {format: json, schema: {type: object, properties: {colour: {type: string}}}}";
        let yaml = |format: &str| match format {
            "json" => format!("finalReport: {by}\ntools: []\n{schema}"),
            _ => format!("finalReport: {by}\ntools: []\noutput: {{format: {format}}}"),
        };
        let names: Vec<String> = reports().iter().map(|(format, ..)| format!("{format}.md")).collect();
        let mut files = vec![("lead.md".to_owned(), format!("tools: []\nagents: [{}]", names.join(", ")))];
        files.extend(reports().iter().map(|(format, ..)| (format!("{format}.md"), yaml(format))));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(name, yaml)| (name.as_str(), yaml.as_str())).collect();
        for model in FORMATS {
            let tree = agents(&files);
            let server = ModelServer::start(script(by)).unwrap();
            let words = ["run", "-m", model, "--output-format", "stream-json", "@lead.md", "LEAD"];
            let ran = haft(&tree, &server, &words).output().expect_code(0);
            let lines: Vec<Value> = ran.events();
            for (format, right, _) in reports() {
                let is_its = |line: &&Value| {
                    line["type"] == "tool_result" && line["tool"] == format!("agent__{format}")
                };
                let result = lines.iter().find(is_its).unwrap();
                let text = result["text"].as_str().unwrap();
                let said = if right.is_string() {
                    text.into()
                } else {
                    serde_json::from_str(text).unwrap_or_default()
                };
                let wanted = right.as_str().map_or(right.clone(), |text| text.trim().into());
                let said: Value = said;
                let said = said.as_str().map_or(said.clone(), |text| text.trim().into());
                assert_eq!(
                    (&result["is_error"], &said),
                    (&false.into(), &wanted),
                    "{model} {by} {format}: {text}"
                );
            }
            assert_eq!(
                server.requests().len(),
                2 + 2 * reports().len(),
                "{model} {by}: haft rejects each invalid report once"
            );
        }
    }
}

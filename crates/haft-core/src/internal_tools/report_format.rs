//! The formats of a final report: the instruction for the model, and the check of the report.

use serde_json::Value;

/// The maximum size of a report, in bytes. A larger report would be a burden for its reader and for every store.
pub const REPORT_BYTES_MAX: usize = 1024 * 1024;

/// The limits of one Slack message.
const SLACK_BLOCKS_MAX: usize = 50;
const SLACK_SECTION_CHARS_MAX: usize = 3000;
const SLACK_HEADER_CHARS_MAX: usize = 150;
const SLACK_BLOCK_TYPES: [&str; 12] = [
    "actions",
    "context",
    "divider",
    "file",
    "header",
    "image",
    "input",
    "markdown",
    "rich_text",
    "section",
    "table",
    "video",
];

/// The format of a final report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReportFormat {
    /// A JSON value, checked against the agent's output schema if it has one.
    Json,
    /// Markdown as GitHub renders it.
    Markdown,
    /// A JSON array of Block Kit blocks for one Slack message.
    SlackBlockKit,
    /// Text for a terminal: colours are allowed, but sequences that move the cursor are not.
    Tty,
    /// Plain lines of text that another program reads.
    Pipe,
    /// Plain text without markup.
    Text,
    /// Text for the agent that made the request.
    SubAgent,
}

crate::name_table!(ReportFormat {
    Json: "json",
    Markdown: "markdown",
    SlackBlockKit: "slack-block-kit",
    Tty: "tty",
    Pipe: "pipe",
    Text: "text",
    SubAgent: "sub-agent",
});

impl ReportFormat {
    /// Returns the instruction for the model.
    pub fn rule(self) -> &'static str {
        match self {
            Self::Json => "Write one JSON value that matches the schema, and no other text.",
            Self::Markdown => "Write GitHub-flavoured Markdown; close every code fence.",
            Self::SlackBlockKit => {
                "Write a JSON array of at most 50 Slack Block Kit blocks; a section's text has at most 3000 characters, \
                 a header's at most 150; text is Slack mrkdwn, not Markdown."
            }
            Self::Tty => {
                "Write plain text for a terminal. ANSI colours are allowed, other control sequences and Markdown are not."
            }
            Self::Pipe => {
                "Write plain text for another program: no colours, no Markdown, no words before or after the result."
            }
            Self::Text => "Write plain text without Markdown.",
            Self::SubAgent => {
                "Write for the agent that asked you: all facts it needs, their sources, and what remains unknown."
            }
        }
    }

    /// Returns true if a report in this format is a JSON value. A part of such a report is useless without the rest.
    pub fn is_structured(self) -> bool {
        match self {
            Self::Json | Self::SlackBlockKit => true,
            Self::Markdown | Self::Tty | Self::Pipe | Self::Text | Self::SubAgent => false,
        }
    }

    /// Checks a text. The error text is for the model.
    pub fn check_text(self, text: &str) -> Result<(), String> {
        if text.trim().is_empty() {
            return Err("the report is empty; write what you found".into());
        }
        if text.len() > REPORT_BYTES_MAX {
            return Err(format!("the report has {} bytes; the limit is {REPORT_BYTES_MAX}", text.len()));
        }
        match self {
            // `check_json` checks JSON and Slack blocks. An agent that reads a sub-agent's report accepts any text.
            Self::Json | Self::SlackBlockKit | Self::SubAgent => Ok(()),
            Self::Markdown => check_fences(text),
            Self::Tty => check_controls(&without_colours(text)),
            Self::Pipe | Self::Text => check_controls(text),
        }
    }

    /// Checks a JSON value against the rules of the format. The caller also checks the value against the output schema.
    pub fn check_json(self, value: &Value) -> Result<(), String> {
        match self {
            Self::SlackBlockKit => check_blocks(value),
            Self::Json | Self::Markdown | Self::Tty | Self::Pipe | Self::Text | Self::SubAgent => Ok(()),
        }
    }
}

fn check_fences(text: &str) -> Result<(), String> {
    let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
    if fences % 2 == 0 { Ok(()) } else { Err("a code fence is not closed; end it with ```".into()) }
}

fn check_controls(text: &str) -> Result<(), String> {
    match text.chars().find(|c| c.is_control() && !"\n\r\t".contains(*c)) {
        Some(c) => Err(format!("the report has the control character {}; leave it out", c.escape_unicode())),
        None => Ok(()),
    }
}

/// Removes colour sequences (`ESC [ … m`). All other sequences stay, so that `check_controls` rejects them.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        let end = after.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(after.len());
        rest = after[end..].strip_prefix('m').unwrap_or_else(|| {
            plain.push('\u{1b}');
            after
        });
    }
    plain.push_str(rest);
    plain
}

fn check_blocks(value: &Value) -> Result<(), String> {
    let blocks = value.as_array().or_else(|| value.get("blocks")?.as_array());
    let blocks = blocks.ok_or("expected a JSON array of Slack blocks")?;
    if !(1..=SLACK_BLOCKS_MAX).contains(&blocks.len()) {
        return Err(format!("expected 1 to {SLACK_BLOCKS_MAX} Slack blocks; got {}", blocks.len()));
    }
    blocks.iter().enumerate().try_for_each(|(at, block)| {
        check_block(block).map_err(|problem| format!("Slack block {at}: {problem}"))
    })
}

fn check_block(block: &Value) -> Result<(), String> {
    let kind = block.get("type").and_then(Value::as_str).ok_or("expected a JSON object with a `type`")?;
    if !SLACK_BLOCK_TYPES.contains(&kind) {
        return Err(format!(
            "`{kind}` is not a Slack block type; expected one of {}",
            SLACK_BLOCK_TYPES.join(", ")
        ));
    }
    match kind {
        "header" => check_block_text(block, SLACK_HEADER_CHARS_MAX),
        "section" if block.get("fields").is_none() => check_block_text(block, SLACK_SECTION_CHARS_MAX),
        _ => Ok(()),
    }
}

fn check_block_text(block: &Value, chars_max: usize) -> Result<(), String> {
    let text = block.pointer("/text/text").and_then(Value::as_str);
    let chars = text.ok_or("expected a `text` object with the keys `type` and `text`")?.chars().count();
    if (1..=chars_max).contains(&chars) {
        return Ok(());
    }
    Err(format!("the text of the block must have 1 to {chars_max} characters; got {chars}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(format: ReportFormat, text: &str, expected: Result<(), &str>) {
        let found = format.check_text(text);
        match expected {
            Ok(()) => assert_eq!(found, Ok(()), "{format:?} {text:?}"),
            Err(part) => assert!(found.clone().unwrap_err().contains(part), "{format:?} {text:?}: {found:?}"),
        }
    }

    #[test]
    fn format_names_round_trip_and_rules_are_unique() {
        let mut rules = std::collections::HashSet::new();
        for format in ReportFormat::ALL {
            assert_eq!(ReportFormat::from_name(format.name()), Some(format));
            assert!(rules.insert(format.rule()));
        }
        assert_eq!(ReportFormat::from_name("html"), None);
    }

    #[test]
    fn every_format_rejects_empty_and_oversized_reports() {
        for format in ReportFormat::ALL {
            check(format, " \n", Err("empty"));
            check(format, &"x".repeat(REPORT_BYTES_MAX + 1), Err("the limit is"));
            check(format, "found it", Ok(()));
        }
    }

    #[test]
    fn markdown_with_an_unclosed_fence_is_rejected() {
        check(ReportFormat::Markdown, "a\n```rust\nfn f() {}\n```\n", Ok(()));
        check(ReportFormat::Markdown, "a\n```rust\nfn f() {}\n", Err("not closed"));
    }

    #[test]
    fn only_tty_reports_may_contain_colour_escapes() {
        check(ReportFormat::Tty, "\u{1b}[1;31mred\u{1b}[0m", Ok(()));
        check(ReportFormat::Tty, "\u{1b}[2Jgone", Err("control character"));
        check(ReportFormat::Tty, "\u{1b}]0;title\u{7}", Err("control character"));
        check(ReportFormat::Tty, "\u{1b}[", Err("control character"));
        check(ReportFormat::Pipe, "\u{1b}[31mred", Err("control character"));
        check(ReportFormat::Text, "a\tb\r\nc", Ok(()));
        check(ReportFormat::Text, "a\u{0}b", Err("control character"));
        check(ReportFormat::SubAgent, "whatever\u{1b}", Ok(()));
    }

    #[test]
    fn invalid_slack_blocks_are_rejected() {
        let check = |value: Value, expected: Result<(), &str>| match expected {
            Ok(()) => assert_eq!(ReportFormat::SlackBlockKit.check_json(&value), Ok(()), "{value}"),
            Err(part) => {
                let error = ReportFormat::SlackBlockKit.check_json(&value).unwrap_err();
                assert!(error.contains(part), "{value}: {error}");
            }
        };
        let section =
            |chars: usize| json!({"type": "section", "text": {"type": "mrkdwn", "text": "x".repeat(chars)}});
        check(json!([section(3000), {"type": "divider"}]), Ok(()));
        check(json!({"blocks": [section(1)]}), Ok(()));
        check(json!([{"type": "section", "fields": []}]), Ok(()));
        check(json!([section(3001)]), Err("block 0: the text"));
        check(json!([section(1), {"type": "header", "text": {"text": "x".repeat(151)}}]), Err("block 1"));
        check(json!([{"type": "paragraph"}]), Err("not a Slack block type"));
        check(json!([{"type": "section"}]), Err("expected a `text` object"));
        check(json!([]), Err("1 to 50"));
        check(json!("hello"), Err("array of Slack blocks"));
        check(json!(["hello"]), Err("`type`"));
    }
}

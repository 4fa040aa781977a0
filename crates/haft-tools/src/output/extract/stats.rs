//! Returns the size of a text in bytes, characters, lines and tokens.

use haft_core::tokens::Tokens;

pub(super) fn of(text: &str, content: &[u8]) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let kind = if serde_json::from_slice::<serde::de::IgnoredAny>(content).is_ok() { "JSON" } else { "text" };
    let line_count = if lines.len() == 1 { "1 line".to_owned() } else { format!("{} lines", lines.len()) };
    format!(
        "{kind}: {} bytes, {} characters, {line_count}, longest line {longest} characters, {} tokens",
        content.len(),
        text.chars().count(),
        Tokens::by_length(content.len() as u64)
    )
}

//! The size of a text in every unit.

/// Bytes per token, near enough for prose and code.
const BYTES_PER_TOKEN: usize = 4;

pub(super) fn of(text: &str, content: &[u8]) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let kind = if serde_json::from_slice::<serde::de::IgnoredAny>(content).is_ok() { "JSON" } else { "text" };
    format!(
        "{kind}: {} bytes, {} characters, {} lines, longest line {longest} characters, about {} tokens",
        content.len(),
        text.chars().count(),
        lines.len(),
        content.len() / BYTES_PER_TOKEN
    )
}

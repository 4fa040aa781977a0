//! Shortens descriptions for the model.

/// The maximum length of an operation's summary and description, in characters.
const TOOL_CHARS_MAX: usize = 800;

/// The maximum length of the description of a property or a response, in characters.
pub(super) const PROPERTY_CHARS_MAX: usize = 240;

/// Returns the description of an operation: its summary, its description and the description of its response.
pub(super) fn of_operation(
    line: &str,
    summary: Option<&str>,
    description: Option<&str>,
    response: Option<&str>,
) -> String {
    let summary = summary.map(plain).filter(|text| !text.is_empty());
    let description = description.map(plain).filter(|text| !text.is_empty());
    let own = match (summary, description) {
        (Some(summary), Some(description)) if description.starts_with(summary.trim_end_matches('.')) => {
            description
        }
        (Some(summary), Some(description)) => format!("{}. {description}", summary.trim_end_matches('.')),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => line.to_owned(),
    };
    let own = shortened(&own, TOOL_CHARS_MAX);
    match response.map(plain).filter(|text| is_informative(text)) {
        Some(response) => {
            format!("{}. Returns: {}", own.trim_end_matches('.'), shortened(&response, PROPERTY_CHARS_MAX))
        }
        None => own,
    }
}

/// Returns whether a response description is informative; most are only `OK` or similar.
fn is_informative(text: &str) -> bool {
    let plain = text.trim_end_matches('.').to_ascii_lowercase();
    !matches!(
        plain.as_str(),
        "" | "ok"
            | "success"
            | "response"
            | "successful response"
            | "successful operation"
            | "default response"
    )
}

/// Returns the text on one line, without HTML tags and control characters.
pub(super) fn plain(text: &str) -> String {
    // The limit bounds the time for a huge text. It is far larger than any text that the model sees.
    let text: String = text.chars().take(8 * TOOL_CHARS_MAX).collect();
    let mut shown = String::with_capacity(text.len());
    let mut inside_tag = false;
    for (at, c) in text.char_indices() {
        let opens = c == '<'
            && text[at + 1..]
                .starts_with(|next: char| next.is_ascii_alphabetic() || next == '/' || next == '!');
        match c {
            _ if opens => inside_tag = true,
            '>' if inside_tag => inside_tag = false,
            _ if inside_tag => {}
            c if c.is_whitespace() => shown.push(' '),
            c if c.is_control() => {}
            c => shown.push(c),
        }
    }
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the beginning of a text. It ends after a sentence if one ends in the second half, otherwise after a word.
pub(super) fn shortened(text: &str, chars_max: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(chars_max) else { return text.to_owned() };
    let kept = &text[..end];
    if let Some(at) = kept.rfind(". ").filter(|at| *at >= end / 2) {
        return kept[..=at].to_owned();
    }
    let at = kept.rfind(' ').unwrap_or(end);
    format!("{}…", kept[..at].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_description_joins_summary_description_and_response() {
        let check =
            |summary: Option<&str>, description: Option<&str>, response: Option<&str>, expected: &str| {
                assert_eq!(of_operation("GET /x", summary, description, response), expected);
            };
        check(None, None, Some("OK"), "GET /x");
        check(Some("Get a pet"), None, Some("A pet"), "Get a pet. Returns: A pet");
        check(Some("Get a pet."), Some("By\n its <b>id</b>."), None, "Get a pet. By its id.");
        check(Some("Get"), Some("Get a pet"), Some("Successful operation."), "Get a pet");
        check(Some(" "), Some("a < b"), None, "a < b");
    }

    #[test]
    fn long_description_is_cut_between_sentences_or_words() {
        assert_eq!(shortened("One two. Three four five six.", 20), "One two. Three four…");
        assert_eq!(shortened("One two three. Four five six.", 20), "One two three.");
        assert_eq!(shortened("short", 20), "short");
        let long = of_operation("x", None, Some(&"word ".repeat(100_000)), None);
        assert!(long.chars().count() <= TOOL_CHARS_MAX + 1);
    }
}

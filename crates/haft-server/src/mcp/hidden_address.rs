//! Removes URLs from texts for clients, because a URL of an upstream server belongs to the operator.

/// The text that replaces a URL.
const HIDDEN_URL: &str = "[address]";

/// Replaces every URL in a text.
pub(super) fn without_urls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let begin = rest[..at].rfind(|c: char| !is_of_scheme(c)).map_or(0, |before| next_char(rest, before));
        let end = rest[at..].find(ends_url).map_or(rest.len(), |end| at + end);
        shown.push_str(&rest[..begin]);
        shown.push_str(if begin < at { HIDDEN_URL } else { &rest[begin..end] });
        rest = &rest[end..];
    }
    shown + rest
}

fn is_of_scheme(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')
}

fn ends_url(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '`' | '"' | '\'' | '<' | '>' | '(' | ')' | ',' | ';')
}

fn next_char(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(1, char::len_utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_replaced_and_other_text_stays() {
        let check = |text: &str, expected: &str| assert_eq!(without_urls(text), expected);
        check("no address", "no address");
        check(
            "the server redirects to `https://a.example:8443/x?y=1` (301)",
            "the server redirects to `[address]` (301)",
        );
        check("http://a/b and wss://c, d", "[address] and [address], d");
        check("(https://a.example/ü)", "([address])");
        check("é→http://x", "é→[address]");
        check(" :// ", " :// ");
        check("https://", "[address]");
    }
}

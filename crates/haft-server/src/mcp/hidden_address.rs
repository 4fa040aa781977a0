//! Removes URLs from texts for clients, because a URL of an upstream server belongs to the operator.

/// The text that replaces a URL or a host.
const HIDDEN_URL: &str = "[address]";

/// Replaces an origin such as `https://api.example.com`, and its host alone, in a text.
pub(super) fn without_origin(text: &str, origin: &str) -> String {
    let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    // Replace the longest text first, because the others are parts of it.
    [origin, authority, host]
        .iter()
        .filter(|part| !part.is_empty())
        .fold(text.to_owned(), |text, part| without_words(&text, part))
}

/// Replaces an address that is not a part of a longer word. A host such as `api` also occurs within other words.
fn without_words(text: &str, address: &str) -> String {
    let (mut shown, mut shown_to) = (String::with_capacity(text.len()), 0);
    for (at, found) in text.match_indices(address) {
        let (before, end) = (text[..at].chars().next_back(), at + found.len());
        if before.is_some_and(is_of_host) || text[end..].chars().next().is_some_and(is_of_host) {
            continue;
        }
        shown.push_str(&text[shown_to..at]);
        shown.push_str(HIDDEN_URL);
        shown_to = end;
    }
    shown + &text[shown_to..]
}

fn is_of_host(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_')
}

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
    fn origin_is_replaced_with_and_without_its_scheme_and_port() {
        let check = |text: &str, expected: &str| {
            assert_eq!(without_origin(text, "http://api.intern:8080"), expected);
        };
        check("http://api.intern:8080/a and api.intern:8080", "[address]/a and [address]");
        check("api.intern cannot be reached", "[address] cannot be reached");
        check("see https://docs.example.com", "see https://docs.example.com");
    }

    #[test]
    fn host_that_is_a_part_of_a_word_stays() {
        let check = |text: &str, expected: &str| assert_eq!(without_origin(text, "http://api"), expected);
        check("rapid apis of `api`: api, api.", "rapid apis of `[address]`: [address], [address].");
        check("http://api/a http://apis", "[address]/a http://apis");
        check("éapi api-key my_api", "éapi api-key my_api");
    }

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

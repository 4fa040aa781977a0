//! Reads citations of web pages from annotations.

use haft_core::conversation::UrlCitation;
use serde::Deserialize;

/// An annotation of any type. Its type determines which fields are present.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UrlAnnotation {
    url: Option<String>,
    title: Option<String>,
    start_index: Option<u64>,
    end_index: Option<u64>,
    /// The Chat Completions API puts the other fields into this object.
    url_citation: Option<Box<UrlAnnotation>>,
}

/// Returns the citation in an annotation of OpenAI's APIs or of Anthropic. Anthropic sends no positions, because it
/// sends cited text as a separate block. Returns `None` for an annotation without a URL, such as a citation of a file.
pub(crate) fn of_json(json: &str) -> Option<UrlCitation> {
    let mut annotation: UrlAnnotation = serde_json::from_str(json).ok()?;
    if let Some(nested) = annotation.url_citation.take() {
        annotation = *nested;
    }
    let UrlAnnotation { url, title, start_index, end_index, .. } = annotation;
    let range = start_index.zip(end_index).map(|(start, end)| start..end);
    Some(UrlCitation { url: url?, title, range })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The URL, the title and the range of a citation.
    type CitationFields<'a> = (&'a str, Option<&'a str>, Option<(u64, u64)>);

    #[test]
    fn each_form_of_a_url_citation_is_read() {
        let check = |json: &str, expected: Option<CitationFields<'_>>| {
            let expected = expected.map(|(url, title, range)| UrlCitation {
                url: url.into(),
                title: title.map(Into::into),
                range: range.map(|(start, end)| start..end),
            });
            assert_eq!(of_json(json), expected, "{json}");
        };
        let responses = r#"{"type":"url_citation","url":"u","title":"t","start_index":1,"end_index":4}"#;
        check(responses, Some(("u", Some("t"), Some((1, 4)))));
        let chat =
            r#"{"type":"url_citation","url_citation":{"url":"u","title":"t","start_index":1,"end_index":4}}"#;
        check(chat, Some(("u", Some("t"), Some((1, 4)))));
        let anthropic = r#"{"type":"web_search_result_location","url":"u","title":null,"cited_text":"c","encrypted_index":"x"}"#;
        check(anthropic, Some(("u", None, None)));
        check(r#"{"type":"file_citation","file_id":"f","index":3}"#, None);
        check(
            r#"{"type":"char_location","document_title":"d","start_char_index":0,"end_char_index":3}"#,
            None,
        );
        check("[]", None);
    }
}

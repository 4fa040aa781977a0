//! Reads the web pages that a reply cites from the metadata of a candidate.

use haft_core::conversation::UrlCitation;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::draft::ReplyDraft;

/// The maximum number of citations in one metadata object. The conversion of a position reads the text before it.
const CITATIONS_MAX: usize = 1_000;

/// The `groundingMetadata` or the `citationMetadata` of a candidate.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GeminiCitations {
    grounding_chunks: Vec<GroundingChunk>,
    grounding_supports: Vec<GroundingSupport>,
    #[serde(alias = "citations")]
    citation_sources: Vec<CitationSource>,
}

/// A source that the model has read.
#[derive(Debug, Deserialize)]
struct GroundingChunk {
    web: Option<CitedPage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CitedPage {
    uri: Option<String>,
    title: Option<String>,
}

/// A segment of the text, and the pages that support it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GroundingSupport {
    segment: ByteSegment,
    grounding_chunk_indices: Vec<usize>,
}

/// A segment of the text, in bytes. The API omits a start of 0.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ByteSegment {
    start_index: u64,
    end_index: u64,
}

/// A page whose text the reply repeats.
#[derive(Debug, Deserialize)]
struct CitationSource {
    #[serde(flatten)]
    page: CitedPage,
    #[serde(flatten)]
    segment: ByteSegment,
}

/// Returns the citations in the metadata. Metadata of an unknown form has none.
pub(super) fn of_metadata(draft: &ReplyDraft, metadata: &RawValue) -> Vec<UrlCitation> {
    let metadata: GeminiCitations = serde_json::from_str(metadata.get()).unwrap_or_default();
    let range = |segment: ByteSegment| draft.chars_of(segment.start_index)..draft.chars_of(segment.end_index);
    let mut found: Vec<UrlCitation> = Vec::new();
    for (page, segment) in metadata.cited().take(CITATIONS_MAX) {
        let Some(url) = page.uri.clone() else { continue };
        found.push(UrlCitation { url, title: page.title.clone(), range: segment.map(range) });
    }
    found
}

impl GeminiCitations {
    /// Returns each cited page with the segment of the text that cites it. Without segments, the whole text cites all
    /// pages.
    fn cited(&self) -> impl Iterator<Item = (&CitedPage, Option<ByteSegment>)> {
        let supported = self.grounding_supports.iter().flat_map(|support| {
            let indices = support.grounding_chunk_indices.iter();
            indices.filter_map(|at| Some((self.page(*at)?, Some(support.segment))))
        });
        let is_whole = self.grounding_supports.is_empty();
        let whole = (0..self.grounding_chunks.len()).filter(move |_| is_whole);
        let whole = whole.filter_map(|at| Some((self.page(at)?, None)));
        let copied = self.citation_sources.iter().map(|source| (&source.page, Some(source.segment)));
        supported.chain(whole).chain(copied)
    }

    fn page(&self, at: usize) -> Option<&CitedPage> {
        self.grounding_chunks.get(at)?.web.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use haft_core::conversation::ModelApiFormat;
    use haft_core::model_event::PartStart;
    use serde_json::value::to_raw_value;
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::DecodeContext;

    /// The URL, the title and the range of a citation.
    type CitationFields<'a> = (&'a str, Option<&'a str>, Option<(u64, u64)>);

    #[test]
    fn byte_segments_of_the_metadata_become_character_ranges() {
        let mut draft = ReplyDraft::new(ModelApiFormat::Gemini, &DecodeContext::default()).counting_bytes();
        let index = draft.open(PartStart::Text, None);
        draft.add(index, "Grüße ");
        draft.add(index, "für dich");
        let check = |metadata: Value, expected: &[CitationFields<'_>]| {
            let found = of_metadata(&draft, &to_raw_value(&metadata).unwrap());
            let expected: Vec<UrlCitation> = expected
                .iter()
                .map(|(url, title, range)| UrlCitation {
                    url: (*url).into(),
                    title: title.map(Into::into),
                    range: range.map(|(start, end)| start..end),
                })
                .collect();
            assert_eq!(found, expected, "{metadata}");
        };
        let chunks =
            json!([{"web": {"uri": "a", "title": "A"}}, {"retrievedContext": {}}, {"web": {"uri": "b"}}]);
        let supports = json!([
            {"segment": {"endIndex": 7}, "groundingChunkIndices": [0]},
            {"segment": {"startIndex": 8, "endIndex": 12}, "groundingChunkIndices": [0, 1, 2, 9]},
        ]);
        check(
            json!({"groundingChunks": chunks, "groundingSupports": supports}),
            &[("a", Some("A"), Some((0, 5))), ("a", Some("A"), Some((6, 9))), ("b", None, Some((6, 9)))],
        );
        check(json!({"groundingChunks": chunks}), &[("a", Some("A"), None), ("b", None, None)]);
        let copied = json!([{"startIndex": 8, "endIndex": 400, "uri": "c"}, {"endIndex": 2}]);
        check(json!({"citationSources": copied}), &[("c", None, Some((6, 14)))]);
        check(json!({"webSearchQueries": ["q"]}), &[]);
        check(json!("odd"), &[]);
    }
}

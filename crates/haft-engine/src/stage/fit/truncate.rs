//! Truncates the text of an output to a number of characters, counted over all its content parts.

use haft_core::output::OutputContent;
use haft_core::shorten::shorten;
use haft_core::text::truncation_notice;

use super::links::LinkRoom;

/// The maximum number of content parts in an output. Further parts are dropped.
pub(super) const PIECES_MAX: usize = 1_000;

/// Truncates text to `chars_max` characters, counted over all parts. A single text keeps its beginning and its end.
/// Among several texts, the one that exceeds the limit is cut at the limit and gets the notice; later texts are
/// dropped, so that the result is a prefix without gaps. Links are kept whole, up to half of the limit.
pub(super) fn cut_content(content: Vec<OutputContent>, chars_max: usize) -> Vec<OutputContent> {
    if content.iter().map(chars).sum::<usize>() <= chars_max {
        return content.into_iter().take(PIECES_MAX).collect();
    }
    let content = with_other_links_as_text(content, LinkRoom::of(chars_max));
    let (links, texts): (Vec<_>, Vec<_>) =
        content.iter().partition(|content| matches!(content, OutputContent::Link(_)));
    let chars_max = chars_max - links.into_iter().map(chars).sum::<usize>();
    let chars_total = texts.into_iter().map(chars).sum();
    let mut cutter = TextTruncator { room: Some(chars_max), chars_total, chars_max };
    content.into_iter().filter_map(|content| cutter.cut(content)).take(PIECES_MAX).collect()
}

/// Returns the content in which each link that does not fit is a text.
fn with_other_links_as_text(content: Vec<OutputContent>, mut room: LinkRoom) -> Vec<OutputContent> {
    let converted = |content: OutputContent| match content {
        OutputContent::Link(_) if !room.keeps(&content) => OutputContent::Text(content.as_text()),
        content => content,
    };
    content.into_iter().map(converted).collect()
}

/// Truncates the parts of an output one after the other. `room` is the number of characters that are left; it is
/// `None` after the notice about the cut.
struct TextTruncator {
    room: Option<usize>,
    chars_total: usize,
    chars_max: usize,
}

impl TextTruncator {
    fn cut(&mut self, content: OutputContent) -> Option<OutputContent> {
        match content {
            OutputContent::Text(text) => self.cut_text(text).map(OutputContent::Text),
            OutputContent::Resource { uri, media_type, text } => {
                let uri = self.cut_text(uri)?;
                let text = text.and_then(|text| self.cut_text(text));
                Some(OutputContent::Resource { uri, media_type, text })
            }
            // A shortened search result loses its names too, because they refer to definitions that the model does not
            // get.
            OutputContent::FoundTools(found) => {
                let text = self.cut_text(found.text.clone())?;
                let whole = text == found.text;
                Some(if whole { OutputContent::FoundTools(found) } else { OutputContent::Text(text) })
            }
            OutputContent::Link(_)
            | OutputContent::Image { .. }
            | OutputContent::Audio { .. }
            | OutputContent::Binary { .. }
            | OutputContent::Stored(_) => Some(content),
        }
    }

    fn cut_text(&mut self, mut text: String) -> Option<String> {
        let room = self.room?;
        let chars = text.chars().count();
        if chars <= room {
            self.room = Some(room - chars);
            return Some(text);
        }
        self.room = None;
        if chars == self.chars_total {
            return Some(shorten(&text, room));
        }
        let end = text.char_indices().nth(room).map_or(text.len(), |(end, _)| end);
        text.truncate(end);
        text.push_str(&truncation_notice(self.chars_total, self.chars_max));
        Some(text)
    }
}

/// Returns the number of characters that [`TextTruncator`] counts.
fn chars(content: &OutputContent) -> usize {
    match content {
        OutputContent::Text(text) => text.chars().count(),
        OutputContent::FoundTools(found) => found.text.chars().count(),
        OutputContent::Link(_) => content.as_text().chars().count(),
        OutputContent::Resource { uri, text, .. } => {
            uri.chars().count() + text.as_ref().map_or(0, |text| text.chars().count())
        }
        OutputContent::Image { .. }
        | OutputContent::Audio { .. }
        | OutputContent::Binary { .. }
        | OutputContent::Stored(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use haft_core::output::{ResourceLink, ToolOutput};

    use super::*;

    fn check(content: Vec<OutputContent>, chars_max: usize, expected: &[&str]) {
        let described = ToolOutput { content: cut_content(content, chars_max), ..ToolOutput::default() };
        assert_eq!(described.as_text(), expected.join("\n"));
    }

    fn texts(pieces: &[&str]) -> Vec<OutputContent> {
        pieces.iter().map(|text| OutputContent::Text((*text).into())).collect()
    }

    #[test]
    fn output_text_is_truncated_in_the_middle() {
        check(texts(&["abc"]), 3, &["abc"]);
        check(
            texts(&["äbcdö"]),
            2,
            &["ä\n... (output truncated: 5 total chars, showing first 1 and last 1)\nö"],
        );
        let json = format!("{:?}", vec![1; 1_000]);
        let cut = cut_content(texts(&[&json]), 200);
        let cut = ToolOutput { content: cut, ..ToolOutput::default() }.as_text();
        assert!(
            serde_json::from_str::<Vec<serde_json::Value>>(&cut).is_ok_and(|items| items.len() > 10),
            "{cut}"
        );
    }

    #[test]
    fn character_limit_applies_to_all_texts_of_an_output_together() {
        check(texts(&["ab", "cd"]), 4, &["ab", "cd"]);
        check(
            texts(&["ab", "cd", "ef"]),
            3,
            &["ab", "c\n... (output truncated: 6 total chars, showing first 3)"],
        );
        assert_eq!(cut_content(texts(&vec![""; 5_000]), 3).len(), PIECES_MAX);
    }

    #[test]
    fn resource_uri_counts_toward_the_character_limit() {
        let resource = |uri: &str, text: Option<&str>| OutputContent::Resource {
            uri: uri.into(),
            media_type: None,
            text: text.map(Into::into),
        };
        check(vec![resource("a:b", Some("cd"))], 5, &["[resource: a:b]", "cd"]);
        check(
            vec![resource("a:b", Some("cd")), resource("e:f", None)],
            4,
            &["[resource: a:b]", "c\n... (output truncated: 8 total chars, showing first 4)"],
        );
    }

    #[test]
    fn links_of_truncated_text_stay_whole_up_to_half_of_the_limit() {
        let link = |uri: &str| {
            OutputContent::Link(Box::new(ResourceLink { uri: uri.into(), ..ResourceLink::default() }))
        };
        let link_chars = link("a:1").as_text().len();
        let content = [texts(&[&"x".repeat(90)]), vec![link("a:1"), link("a:2"), link("a:3")]].concat();
        let cut = cut_content(content, 4 * link_chars);
        assert_eq!(cut[1..], [link("a:1"), link("a:2")]);
        assert!(cut[0].as_text().contains(&format!("showing first {}", 2 * link_chars)), "{cut:?}");
        let whole = vec![link("a:1"), link("a:2")];
        assert_eq!(cut_content(whole.clone(), 2 * link_chars), whole);
    }

    #[test]
    fn non_text_content_does_not_count_toward_the_character_limit() {
        let image = OutputContent::Image { media_type: "image/png".into(), bytes: [0; 9].into() };
        check(
            vec![texts(&["abc"]).remove(0), image],
            1,
            &[
                "a\n... (output truncated: 3 total chars, showing first 1 and last 0)\n",
                "[image: image/png, 9 bytes]",
            ],
        );
    }
}

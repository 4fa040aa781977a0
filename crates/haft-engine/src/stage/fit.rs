//! Fit: what came out is cut to what may be shown.

use haft_core::output::{Content, ToolOutput};
use haft_core::result::ToolError;
use haft_core::text::{truncate_chars, truncation_notice};
use haft_core::tool::OutputPolicy;

pub(crate) fn fit(
    outcome: Result<ToolOutput, ToolError>,
    policy: OutputPolicy,
) -> Result<ToolOutput, ToolError> {
    match (policy, outcome) {
        (OutputPolicy::Pass, outcome) => outcome,
        (OutputPolicy::Truncate { chars_max }, Ok(output)) => Ok(fit_output(output, chars_max)),
        // The failure of a command carries its output.
        (OutputPolicy::Truncate { chars_max }, Err(mut error)) => {
            error.message = truncate_chars(&error.message, chars_max);
            Err(error)
        }
    }
}

/// The maximum is for all pieces of text together. The piece in which it is reached is cut there and carries the notice;
/// text after it is left out, so that what remains is a beginning without gaps.
fn fit_output(output: ToolOutput, chars_max: usize) -> ToolOutput {
    let chars_total = output.content.iter().filter_map(text_of).map(|text| text.chars().count()).sum();
    if chars_total <= chars_max {
        return output;
    }
    let mut cutter = Cutter { room: Some(chars_max), chars_total, chars_max };
    let content = output.content.into_iter().filter_map(|content| cutter.cut(content)).collect();
    ToolOutput { content, ..output }
}

/// How much room is left; `None` when the notice was given.
struct Cutter {
    room: Option<usize>,
    chars_total: usize,
    chars_max: usize,
}

impl Cutter {
    fn cut(&mut self, content: Content) -> Option<Content> {
        match content {
            Content::Text(text) => self.cut_text(text).map(Content::Text),
            Content::Resource { uri, media_type, text: Some(text) } => {
                Some(Content::Resource { uri, media_type, text: self.cut_text(text) })
            }
            Content::Resource { .. }
            | Content::Image { .. }
            | Content::Audio { .. }
            | Content::Stored { .. } => Some(content),
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
        let end = text.char_indices().nth(room).map_or(text.len(), |(end, _)| end);
        text.truncate(end);
        text.push_str(&truncation_notice(self.chars_total, self.chars_max));
        Some(text)
    }
}

fn text_of(content: &Content) -> Option<&str> {
    match content {
        Content::Text(text) => Some(text),
        Content::Resource { text, .. } => text.as_deref(),
        Content::Image { .. } | Content::Audio { .. } | Content::Stored { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_over_all_pieces_together() {
        let check = |pieces: &[&str], chars_max: usize, expected: &[&str]| {
            let texts = |pieces: &[&str]| pieces.iter().map(|text| Content::Text((*text).into())).collect();
            let output = ToolOutput { content: texts(pieces), structured: None };
            let fitted = fit(Ok(output), OutputPolicy::Truncate { chars_max }).unwrap();
            assert_eq!(fitted.content, texts(expected), "{pieces:?}");
        };
        check(&["abc"], 3, &["abc"]);
        check(&["äbcd"], 2, &["äb\n... (output truncated: 4 total chars, showing first 2)"]);
        check(&["ab", "cd"], 4, &["ab", "cd"]);
        check(&["ab", "cd", "ef"], 3, &["ab", "c\n... (output truncated: 6 total chars, showing first 3)"]);
    }

    #[test]
    fn what_is_no_text_stays() {
        let image = Content::Image { media_type: "image/png".into(), bytes: [0_u8; 9].as_slice().into() };
        let output =
            ToolOutput { content: vec![Content::Text("abc".into()), image.clone()], structured: None };
        let fitted = fit(Ok(output), OutputPolicy::Truncate { chars_max: 1 }).unwrap();
        assert_eq!(fitted.content.last(), Some(&image));
    }
}

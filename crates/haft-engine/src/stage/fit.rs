//! Fit: what came out is cut to what may be shown.

use haft_core::output::{Content, ToolOutput};
use haft_core::result::ToolError;
use haft_core::store::{OutputStore, StoreError, Stored};
use haft_core::text::{truncate_chars, truncation_notice};
use haft_core::tool::OutputPolicy;
use serde_json::{Value, json};

use crate::record::CallRecord;
use crate::size::json_bytes;

/// What all images and sounds of an output may take together; common model providers refuse larger ones.
const MEDIA_BYTES_MAX: usize = 5 * 1024 * 1024;

/// Pieces of content beyond these are left out.
const PIECES_MAX: usize = 1_000;

/// What a media type that somebody made up may take.
const MEDIA_TYPE_CHARS_MAX: usize = 100;

pub(crate) fn fit(
    record: &mut CallRecord,
    outcome: Result<ToolOutput, ToolError>,
    policy: OutputPolicy,
    store: Option<&dyn OutputStore>,
) -> Result<ToolOutput, ToolError> {
    match (policy, outcome) {
        (OutputPolicy::Pass, outcome) => outcome,
        (OutputPolicy::Store { bytes_max }, outcome) => fit_or_store(record, outcome, bytes_max, store),
        (OutputPolicy::Truncate { chars_max }, Ok(output)) => {
            let structured = output.structured.and_then(|value| fit_structured(record, value, chars_max));
            Ok(ToolOutput { content: fit_content(output.content, chars_max), structured })
        }
        // The failure of a command carries its output.
        (OutputPolicy::Truncate { chars_max }, Err(mut error)) => {
            error.message = truncate_chars(&error.message, chars_max);
            Err(error)
        }
    }
}

/// What is too large goes to the store, whether the call succeeded or not; where it cannot, it is cut.
fn fit_or_store(
    record: &mut CallRecord,
    outcome: Result<ToolOutput, ToolError>,
    bytes_max: usize,
    store: Option<&dyn OutputStore>,
) -> Result<ToolOutput, ToolError> {
    let text = match &outcome {
        Ok(output) => output.as_text(),
        Err(error) => error.message.clone(),
    };
    if text.len() <= bytes_max {
        return fit(record, outcome, OutputPolicy::Truncate { chars_max: bytes_max }, None);
    }
    match store.map(|store| put(store, &text)) {
        Some(Ok(stored)) => {
            record.note(
                "stored",
                json!({ "handle": stored.handle.to_string(), "bytes": stored.bytes, "reason": SIZE_CAP }),
            );
            let told = stored.told(SIZE_CAP, &text);
            match outcome {
                Ok(_) => Ok(ToolOutput::text(told)),
                Err(mut error) => {
                    error.message = told;
                    Err(error)
                }
            }
        }
        failed => {
            if let Some(Err(error)) = failed {
                record.note("store", json!(error.to_string()));
            }
            fit(record, outcome, OutputPolicy::Truncate { chars_max: bytes_max }, None)
        }
    }
}

/// Why an output was stored: it was larger than its cap.
const SIZE_CAP: &str = "size_cap";

fn put(store: &dyn OutputStore, text: &str) -> Result<Stored, StoreError> {
    let mut spool = store.begin()?;
    spool.write(text.as_bytes())?;
    spool.finish()
}

/// Half of a value is no value: what is too large is left out as a whole, and the receipt says so. The maximum counts
/// its bytes, which are at least its characters.
fn fit_structured(record: &mut CallRecord, value: Value, bytes_max: usize) -> Option<Value> {
    let bytes = json_bytes(&value);
    if bytes <= bytes_max {
        return Some(value);
    }
    record.note("structured", json!({"left_out_bytes": bytes, "bytes_max": bytes_max}));
    None
}

/// The maximum is for all pieces of text together. The piece in which it is reached is cut there and carries the notice;
/// text after it is left out, so that what remains is a beginning without gaps.
fn fit_content(content: Vec<Content>, chars_max: usize) -> Vec<Content> {
    let chars_total = content.iter().map(chars).sum();
    let mut cutter =
        Cutter { room: Some(chars_max), chars_total, chars_max, media_bytes_left: MEDIA_BYTES_MAX };
    content.into_iter().filter_map(|content| cutter.cut(content)).take(PIECES_MAX).collect()
}

/// How much room is left; `None` when the notice was given.
struct Cutter {
    room: Option<usize>,
    chars_total: usize,
    chars_max: usize,
    media_bytes_left: usize,
}

impl Cutter {
    fn cut(&mut self, content: Content) -> Option<Content> {
        match content {
            Content::Text(text) => self.cut_text(text).map(Content::Text),
            Content::Resource { uri, media_type, text } => {
                let uri = self.cut_text(uri)?;
                let text = text.and_then(|text| self.cut_text(text));
                Some(Content::Resource { uri, media_type, text })
            }
            Content::Image { ref media_type, ref bytes } => {
                let described = self.describe("image", media_type, bytes.len());
                Some(described.unwrap_or(content))
            }
            Content::Audio { ref media_type, ref bytes } => {
                let described = self.describe("audio", media_type, bytes.len());
                Some(described.unwrap_or(content))
            }
            Content::Stored { .. } => Some(content),
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

    /// What stands in the place of an image or a sound for which there is no room; `None` when there is.
    fn describe(&mut self, what: &str, media_type: &str, bytes: usize) -> Option<Content> {
        if let Some(left) = self.media_bytes_left.checked_sub(bytes) {
            self.media_bytes_left = left;
            return None;
        }
        let media_type: String = media_type.chars().take(MEDIA_TYPE_CHARS_MAX).collect();
        let text = format!(
            "[{what}: {media_type}, {bytes} bytes; left out: images and audio may take {MEDIA_BYTES_MAX} bytes in all]"
        );
        Some(Content::Text(text))
    }
}

/// As [`Cutter`] counts them.
fn chars(content: &Content) -> usize {
    match content {
        Content::Text(text) => text.chars().count(),
        Content::Resource { uri, text, .. } => {
            uri.chars().count() + text.as_ref().map_or(0, |text| text.chars().count())
        }
        Content::Image { .. } | Content::Audio { .. } | Content::Stored { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: Vec<Content>, chars_max: usize, expected: &[&str]) {
        let fitted = fit_content(content, chars_max);
        let described = ToolOutput { content: fitted, structured: None };
        assert_eq!(described.as_text(), expected.join("\n"));
    }

    fn texts(pieces: &[&str]) -> Vec<Content> {
        pieces.iter().map(|text| Content::Text((*text).into())).collect()
    }

    #[test]
    fn text_is_cut_over_all_pieces_together() {
        check(texts(&["abc"]), 3, &["abc"]);
        check(texts(&["äbcd"]), 2, &["äb\n... (output truncated: 4 total chars, showing first 2)"]);
        check(texts(&["ab", "cd"]), 4, &["ab", "cd"]);
        check(
            texts(&["ab", "cd", "ef"]),
            3,
            &["ab", "c\n... (output truncated: 6 total chars, showing first 3)"],
        );
        assert_eq!(fit_content(texts(&vec![""; 5_000]), 3).len(), PIECES_MAX);
    }

    #[test]
    fn a_resource_is_cut_with_its_address() {
        let resource = |uri: &str, text: Option<&str>| Content::Resource {
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
    fn images_and_sounds_have_room_of_their_own() {
        let image =
            |bytes: usize| Content::Image { media_type: "image/png".into(), bytes: vec![0; bytes].into() };
        check(
            vec![texts(&["abc"]).remove(0), image(9)],
            1,
            &["a\n... (output truncated: 3 total chars, showing first 1)", "[image: image/png, 9 bytes]"],
        );
        check(
            vec![image(MEDIA_BYTES_MAX), image(1)],
            1,
            &[
                "[image: image/png, 5242880 bytes]",
                "[image: image/png, 1 bytes; left out: images and audio may take 5242880 bytes in all]",
            ],
        );
    }
}

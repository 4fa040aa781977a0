//! Answers questions about a stored output if no model is available: with a page, or with the beginning and the end.

use haft_core::chunk::ChunkSettings;
use haft_core::settings::outputs::OutputReadSettings;
use haft_core::shorten::shorten;
use schemars::JsonSchema;
use serde::Deserialize;

use super::extract::{ExtractError, PAGE_BYTES_MAX, PagedText};

/// Returns the settings that split an output into pages of at most `PAGE_BYTES_MAX` bytes.
fn chunking(reading: &OutputReadSettings) -> ChunkSettings {
    let OutputReadSettings { overlap_percent, avg_line_bytes_threshold, .. } = *reading;
    ChunkSettings { bytes_max: PAGE_BYTES_MAX, overlap_percent, avg_line_bytes_threshold }
}

/// Selects how a question in free text is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OutputReadMode {
    #[default]
    Auto,
    FullChunked,
    ReadGrep,
    Truncate,
}

/// Parses `page N`, which requests a page of the whole output, and returns the number.
pub(super) fn requested_page(question: &str) -> Option<usize> {
    question.trim().strip_prefix("page ")?.trim().parse().ok()
}

/// Returns page `number` of the whole output.
pub(super) fn page(text: &str, number: usize, reading: &OutputReadSettings) -> Result<String, ExtractError> {
    PagedText::of_output(text, chunking(reading)).page(number)
}

/// Returns the first page of the output, or its beginning and end. If the question needs a model, adds a note that no
/// model is available.
pub(super) fn without_model(
    question: &str,
    text: &str,
    mode: OutputReadMode,
    reading: &OutputReadSettings,
) -> Result<String, ExtractError> {
    let pieces = PagedText::of_output(text, chunking(reading));
    let (what, answer) = match mode {
        OutputReadMode::FullChunked => ("the first page of the output", pieces.page(1)?),
        OutputReadMode::Auto if pieces.count() <= reading.chunks_max => {
            ("the first page of the output", pieces.page(1)?)
        }
        OutputReadMode::Auto | OutputReadMode::ReadGrep | OutputReadMode::Truncate => {
            ("the truncated output", shorten(text, PAGE_BYTES_MAX))
        }
    };
    let wants_model = !question.trim().is_empty() || mode == OutputReadMode::ReadGrep;
    let note = format!("(no model is available to answer the question; this is {what})\n");
    Ok(if wants_model { note + &answer } else { answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(question: &str, bytes: usize, mode: OutputReadMode, starts: &str, ends: &str) {
        let text = "0123456789\n".repeat(bytes / 11);
        let answer = without_model(question, &text, mode, &OutputReadSettings::default()).unwrap();
        assert!(answer.starts_with(starts) && answer.ends_with(ends), "{question} {mode:?}: {answer}");
        assert!(answer.len() < PAGE_BYTES_MAX + 500);
    }

    #[test]
    fn read_mode_decides_the_output_if_there_is_no_model() {
        let long = 100_000;
        let notice = "(no model is available to answer the question; this is the";
        check("", 100, OutputReadMode::Auto, "0123", "9\n");
        check("", long, OutputReadMode::Auto, "0123", "9\n");
        check(
            "what failed?",
            long,
            OutputReadMode::Auto,
            &format!("{notice} truncated output)\n0123"),
            "9\n",
        );
        check(
            "what failed?",
            100,
            OutputReadMode::Auto,
            &format!("{notice} first page of the output)\n0123"),
            "9\n",
        );
        check("", long, OutputReadMode::FullChunked, "0123", "(page 1 of 4; next: `page 2`)");
        check("", long, OutputReadMode::Truncate, "0123", "9\n");
        check("", long, OutputReadMode::ReadGrep, notice, "9\n");
    }

    #[test]
    fn pages_overlap_by_the_configured_percentage() {
        let text = (0..10_000).map(|line| format!("{line:05}\n")).collect::<Vec<_>>().concat();
        let second = |overlap_percent: usize| {
            let reading = OutputReadSettings { overlap_percent, ..OutputReadSettings::default() };
            page(&text, requested_page("page 2").unwrap(), &reading).unwrap()[..5].to_owned()
        };
        assert_eq!(
            (second(0).as_str(), second(10).as_str(), second(50).as_str()),
            ("05000", "04501", "02501")
        );
    }

    #[test]
    fn long_lines_are_split_inside_the_line() {
        let text = format!("{}\n", "x".repeat(20_000)).repeat(5);
        let first = |avg_line_bytes_threshold: usize| {
            let reading = OutputReadSettings {
                avg_line_bytes_threshold,
                overlap_percent: 0,
                ..OutputReadSettings::default()
            };
            page(&text, 1, &reading).unwrap().find("\n...").unwrap()
        };
        assert_eq!((first(1_000), first(100_000)), (PAGE_BYTES_MAX, 20_000));
    }
}

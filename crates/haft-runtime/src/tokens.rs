//! The token counter of this build: an estimate, or with the feature `tiktoken` a count with a vocabulary. The first
//! count loads the vocabulary, so that programs that never count tokens do not pay for it.

#[cfg(any(test, feature = "tiktoken"))]
use std::panic::catch_unwind;

#[cfg(not(feature = "tiktoken"))]
pub use haft_core::tokens::TokenEstimator as UsedCounter;
#[cfg(any(test, feature = "tiktoken"))]
use haft_core::tokens::{TokenCounter, Tokens};

#[cfg(feature = "tiktoken")]
pub use Vocabulary as UsedCounter;

/// The vocabulary `o200k` of current models. Other vocabularies give similar token counts, and budgets include a buffer
/// for the difference.
#[cfg(any(test, feature = "tiktoken"))]
#[derive(Debug, Clone, Copy, Default)]
pub struct Vocabulary;

#[cfg(any(test, feature = "tiktoken"))]
impl TokenCounter for Vocabulary {
    fn count(&self, text: &str) -> Tokens {
        // The regular expressions of the tokenizer panic on some inputs. Use an estimate then, so that the call does
        // not fail.
        let counted = catch_unwind(|| tiktoken_rs::o200k_base_singleton().count_ordinary(text));
        counted.map_or_else(|_| Tokens::by_length(text.len() as u64), |count| Tokens::Counted(count as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::{Duration, Instant};

    use haft_core::tokens::{COUNTED_BYTES_MAX, TokenEstimator, tokens_of};

    use super::*;

    #[test]
    fn token_counts_match_the_vocabulary() {
        let check = |text: &str, expected: u64| {
            assert_eq!(Vocabulary.count(text), Tokens::Counted(expected), "{text}");
        };
        check("", 0);
        check("hello world", 2);
        check("<|endoftext|>", 7);
        check("žluťoučký kůň", 9);
    }

    /// Estimates must be close for the kinds of text that agents work with: a budget reserves a buffer for a small
    /// difference only.
    #[test]
    fn estimates_without_a_vocabulary_are_close_to_the_counts() {
        let base64: String = (0..2_000_u32)
            .map(|n| char::from(BASE64[(n.wrapping_mul(2_654_435_761) >> 26) as usize]))
            .collect();
        let (mut hex, mut numbers) = (String::new(), String::new());
        for n in 0..300_u32 {
            let _ = write!(hex, "{:08x}", n.wrapping_mul(2_654_435_761));
            let _ = writeln!(numbers, "{}.{:03} {}", n * 37, n * 7 % 1000, n * n);
        }
        let samples = [
            ("English", include_str!("../../../README.md"), 95..=130),
            ("Rust", include_str!("runtime.rs"), 95..=130),
            ("JSON", include_str!("../../../docs/haft.schema.json"), 95..=130),
            ("TOML", include_str!("../../../Cargo.lock"), 95..=130),
            ("base64", base64.as_str(), 90..=120),
            ("hex", hex.as_str(), 90..=120),
            ("numbers", numbers.as_str(), 95..=130),
            (
                "Chinese",
                "我们的目标是让每个模型都能安全快速地使用真正的工具。今天的会议讨论了新的计划和预算。",
                90..=140,
            ),
            (
                "Russian",
                "Каждый вызов инструмента проходит одни и те же этапы: правила, подтверждения, очереди и кэш.",
                90..=140,
            ),
            (
                "German",
                "Jeder Aufruf eines Werkzeugs durchläuft dieselben Stufen: Regeln, Genehmigungen, Warteschlangen.",
                75..=130,
            ),
            ("Japanese", "このツールは、言語モデルに本物の道具を安全に提供します。", 90..=140),
        ];
        let mut far = Vec::new();
        for (name, text, percent) in samples {
            let text = &text[..text.floor_char_boundary(COUNTED_BYTES_MAX)];
            let (counted, about) = (Vocabulary.count(text).count(), TokenEstimator.count(text).count());
            let found = about * 100 / counted.max(1);
            if !percent.contains(&found) {
                far.push(format!("{name}: {about} is {found} % of {counted}"));
            }
        }
        assert!(far.is_empty(), "{far:?}");
    }

    const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    /// Naive tokenizers need quadratic time or deep recursion for these inputs.
    #[test]
    fn token_count_of_repetitive_text_takes_bounded_time() {
        Vocabulary.count("");
        let long = |piece: &str| piece.repeat(4 * COUNTED_BYTES_MAX / piece.len());
        for piece in ["a", " ", "\n", "\0", "=", "🦀", " \t", "a1", "\u{301}", "'s"] {
            let begun = Instant::now();
            let tokens = tokens_of(&Vocabulary, &long(piece));
            assert!(matches!(tokens, Tokens::About(1..)), "{piece:?}: {tokens}");
            assert!(begun.elapsed() < Duration::from_secs(20), "{piece:?} took {:?}", begun.elapsed());
        }
    }
}

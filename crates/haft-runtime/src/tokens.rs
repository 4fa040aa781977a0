//! Counts tokens with a vocabulary. The first count loads the vocabulary, so that programs that never count tokens do
//! not pay for it.

use std::panic::catch_unwind;

use haft_core::tokens::{TokenCounter, Tokens};

/// The vocabulary `o200k` of current models. Other vocabularies give similar token counts, and budgets include a buffer
/// for the difference.
#[derive(Debug, Clone, Copy, Default)]
pub struct Vocabulary;

impl TokenCounter for Vocabulary {
    fn count(&self, text: &str) -> Tokens {
        // The regular expressions of the tokenizer panic on some texts. Use an estimate then, so that the call does not
        // fail.
        let counted = catch_unwind(|| tiktoken_rs::o200k_base_singleton().count_ordinary(text));
        counted.map_or_else(|_| Tokens::by_length(text.len() as u64), |count| Tokens::Counted(count as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use haft_core::tokens::{COUNTED_BYTES_MAX, tokens_of};

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

    /// Naive tokenizers need quadratic time or deep recursion for these texts.
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

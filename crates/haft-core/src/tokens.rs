//! The number of tokens that a text takes in a model's context.

use std::fmt;

/// A number of tokens: counted, or estimated from the length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// A number of tokens that a tokenizer counted.
    Counted(u64),
    /// A number of tokens that was estimated from the length of the text.
    About(u64),
}

impl Tokens {
    /// Returns the number, which may be an estimate.
    pub fn count(self) -> u64 {
        match self {
            Tokens::Counted(count) | Tokens::About(count) => count,
        }
    }

    /// Estimates the tokens from the length alone.
    pub fn by_length(bytes: u64) -> Self {
        Tokens::About(bytes.div_ceil(BYTES_PER_TOKEN))
    }
}

/// Prints `about` before an estimate.
impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tokens::Counted(count) => write!(f, "{count}"),
            Tokens::About(count) => write!(f, "about {count}"),
        }
    }
}

/// Adds up token numbers. A sum that includes an estimate is an estimate.
impl std::iter::Sum for Tokens {
    fn sum<I: Iterator<Item = Self>>(tokens: I) -> Self {
        tokens.fold(Tokens::Counted(0), |sum, next| {
            let count = sum.count().saturating_add(next.count());
            match (sum, next) {
                (Tokens::Counted(_), Tokens::Counted(_)) => Tokens::Counted(count),
                (Tokens::About(_), _) | (_, Tokens::About(_)) => Tokens::About(count),
            }
        })
    }
}

/// Counts tokens as a specific model would. An implementation loads its vocabulary at the first count, not earlier.
pub trait TokenCounter: Send + Sync {
    /// Returns the number of tokens in a text. An implementation must not fail: without a vocabulary it returns an
    /// estimate.
    fn count(&self, text: &str) -> Tokens;
}

/// Estimates tokens from the length alone, for callers that need no more than the order of magnitude.
#[derive(Debug, Clone, Copy, Default)]
pub struct LengthEstimator;

impl TokenCounter for LengthEstimator {
    fn count(&self, text: &str) -> Tokens {
        Tokens::by_length(text.len() as u64)
    }
}

/// Estimates tokens without a vocabulary. Splits a text like the tokenizers of current models do, into words, groups of
/// digits and punctuation, and assumes a number of tokens for each of these segments. Prose, code, numbers and encoded
/// data differ by a factor of three in bytes per token, so the length alone would be a poor estimate.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenEstimator;

impl TokenCounter for TokenEstimator {
    fn count(&self, text: &str) -> Tokens {
        let mut pieces = PieceCounter::default();
        text.chars().for_each(|char| pieces.push(char));
        Tokens::About(pieces.finish())
    }
}

/// The kind of a text segment. Tokenizers do not join segments of different kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum PieceKind {
    #[default]
    Space,
    LineBreak,
    Lower,
    Upper,
    Digit,
    Punctuation,
    /// Letters of alphabets other than the Latin one.
    Letter,
    /// A character that is usually a token of its own, such as an ideograph.
    Ideograph,
    /// A character that is rare in texts, such as an emoji.
    Symbol,
}

impl PieceKind {
    fn of(char: char) -> Self {
        match char {
            '\n' | '\r' => Self::LineBreak,
            'a'..='z' => Self::Lower,
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            _ if char.is_whitespace() => Self::Space,
            _ if char.is_ascii() => Self::Punctuation,
            '\u{2e80}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' => Self::Ideograph,
            _ if char.is_alphabetic() => Self::Letter,
            _ => Self::Symbol,
        }
    }
}

/// Adds up the estimated tokens of the segments of a text.
#[derive(Debug, Default)]
struct PieceCounter {
    kind: PieceKind,
    /// The length of the current segment in characters.
    chars: u64,
    last: char,
    /// True while the current segment repeats one character, which tokenizers join into long tokens.
    is_repeated: bool,
    tokens: u64,
}

impl PieceCounter {
    fn push(&mut self, char: char) {
        let kind = PieceKind::of(char);
        let is_capitalized = self.kind == PieceKind::Upper && self.chars == 1 && kind == PieceKind::Lower;
        if self.chars > 0 && (kind == self.kind || is_capitalized) {
            self.is_repeated &= char == self.last;
            (self.kind, self.chars, self.last) = (kind, self.chars + 1, char);
            return;
        }
        self.end_piece(kind);
        (self.kind, self.chars, self.last, self.is_repeated) = (kind, 1, char, true);
    }

    fn finish(mut self) -> u64 {
        self.end_piece(PieceKind::Space);
        self.tokens
    }

    fn end_piece(&mut self, next: PieceKind) {
        let chars = self.chars;
        self.tokens += match self.kind {
            _ if chars == 0 => 0,
            // Tokenizers join a single space with the word after it.
            PieceKind::Space if chars == 1 && next != PieceKind::Digit => 0,
            PieceKind::Space | PieceKind::LineBreak => chars.div_ceil(SPACES_PER_TOKEN),
            PieceKind::Lower | PieceKind::Upper | PieceKind::Punctuation if self.is_repeated => {
                chars.div_ceil(REPEATED_PER_TOKEN)
            }
            PieceKind::Lower => chars.div_ceil(LOWER_PER_TOKEN),
            PieceKind::Upper => chars.div_ceil(UPPER_PER_TOKEN),
            PieceKind::Digit => chars.div_ceil(DIGITS_PER_TOKEN),
            PieceKind::Punctuation => chars.div_ceil(PUNCTUATION_PER_TOKEN),
            PieceKind::Letter => chars.div_ceil(LETTERS_PER_TOKEN),
            PieceKind::Ideograph => (chars * IDEOGRAPH_TOKENS_PERCENT).div_ceil(100),
            PieceKind::Symbol => chars * TOKENS_PER_SYMBOL,
        };
    }
}

// The average number of characters per token, or of tokens per character, in each kind of segment for the vocabulary
// `o200k`. A test of haft-runtime compares the estimate with this vocabulary.
const SPACES_PER_TOKEN: u64 = 40;
const REPEATED_PER_TOKEN: u64 = 8;
const LOWER_PER_TOKEN: u64 = 8;
const UPPER_PER_TOKEN: u64 = 3;
const DIGITS_PER_TOKEN: u64 = 3;
const PUNCTUATION_PER_TOKEN: u64 = 3;
const LETTERS_PER_TOKEN: u64 = 4;
const TOKENS_PER_SYMBOL: u64 = 2;
const IDEOGRAPH_TOKENS_PERCENT: u64 = 75;

/// The average number of bytes per token, a good estimate for prose and code.
const BYTES_PER_TOKEN: u64 = 4;

/// The maximum length of a text that is counted in full, in bytes. For a longer text, `tokens_of` counts a prefix of
/// this length and extrapolates.
pub const COUNTED_BYTES_MAX: usize = 64 << 10;

/// Returns the number of tokens in a text. The time is limited for a text of any length.
pub fn tokens_of(counter: &dyn TokenCounter, text: &str) -> Tokens {
    let sample = &text[..text.floor_char_boundary(COUNTED_BYTES_MAX)];
    let tokens = counter.count(sample);
    if sample.len() == text.len() {
        return tokens;
    }
    let scaled = u128::from(tokens.count()) * text.len() as u128 / sample.len().max(1) as u128;
    Tokens::About(u64::try_from(scaled).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tokenizer for tests that counts one token per character.
    struct CharacterCounter;

    impl TokenCounter for CharacterCounter {
        fn count(&self, text: &str) -> Tokens {
            assert!(text.len() <= COUNTED_BYTES_MAX, "the counter got a text of {} bytes", text.len());
            Tokens::Counted(text.chars().count() as u64)
        }
    }

    #[test]
    fn long_texts_are_estimated_from_a_counted_prefix() {
        let check =
            |text: &str, expected: &str| assert_eq!(tokens_of(&CharacterCounter, text).to_string(), expected);
        check("", "0");
        check("héllo", "5");
        check(&"x".repeat(COUNTED_BYTES_MAX), "65536");
        check(&"x".repeat(COUNTED_BYTES_MAX * 3), "about 196608");
        check(&"€".repeat(COUNTED_BYTES_MAX), "about 65536");
    }

    #[test]
    fn sum_with_an_estimated_part_is_an_estimate() {
        let sum = |parts: &[Tokens]| parts.iter().copied().sum::<Tokens>();
        assert_eq!(sum(&[Tokens::Counted(1), Tokens::Counted(2)]), Tokens::Counted(3));
        assert_eq!(sum(&[Tokens::Counted(1), Tokens::About(2), Tokens::Counted(4)]), Tokens::About(7));
        assert_eq!(sum(&[Tokens::Counted(u64::MAX), Tokens::Counted(2)]), Tokens::Counted(u64::MAX));
    }

    #[test]
    fn length_estimator_marks_its_count_as_approximate() {
        assert_eq!(LengthEstimator.count("12345").to_string(), "about 2");
    }

    #[test]
    fn token_estimate_depends_on_the_kind_of_text() {
        let check = |text: &str, expected: &str| assert_eq!(TokenEstimator.count(text).to_string(), expected);
        check("", "about 0");
        check("The quick brown fox.", "about 5");
        check("12345", "about 2");
        check("getToolName", "about 3");
        check("====================", "about 3");
        check("東京都", "about 3");
    }
}

//! The number of tokens that a text takes in a model's context.

use std::fmt;

/// A number of tokens: counted, or estimated from the length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// Counted with a tokenizer.
    Counted(u64),
    /// Estimated from the length.
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

/// Estimates tokens from the length instead of counting them.
#[derive(Debug, Clone, Copy, Default)]
pub struct LengthEstimator;

impl TokenCounter for LengthEstimator {
    fn count(&self, text: &str) -> Tokens {
        Tokens::by_length(text.len() as u64)
    }
}

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

    /// Counts one token per character.
    struct CharacterCounter;

    impl TokenCounter for CharacterCounter {
        fn count(&self, text: &str) -> Tokens {
            assert!(text.len() <= COUNTED_BYTES_MAX, "{} bytes to count", text.len());
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
}

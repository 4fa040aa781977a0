//! The price of tokens.

use std::fmt;

use crate::model_reply::TokenUsage;

/// The price of a model's tokens, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// The price of input tokens that are not cached.
    pub input: f64,
    /// The price of output tokens, including reasoning.
    pub output: f64,
    /// The price of input tokens that the provider read from its cache.
    pub cache_read: f64,
    /// The price of input tokens that the provider wrote to its cache.
    pub cache_write: f64,
}

/// An amount of money in billionths of a US dollar, exact enough for sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// The amount, in billionths of a US dollar.
    pub nano_usd: u64,
}

impl Price {
    /// Creates a price without a cache discount: cached tokens cost the same as other input.
    pub fn flat(input: f64, output: f64) -> Self {
        Self { input, output, cache_read: input, cache_write: input }
    }

    /// Returns the cost of a request, rounded to a billionth of a dollar.
    pub fn cost(&self, usage: &TokenUsage) -> Cost {
        // `usage.input` includes the cached tokens, so subtract them or they would be billed twice.
        let cached = usage.cache_read.saturating_add(usage.cache_write);
        let dollars_per_million = amount(self.input, usage.input.saturating_sub(cached))
            + amount(self.cache_read, usage.cache_read)
            + amount(self.cache_write, usage.cache_write)
            + amount(self.output, usage.output);
        Cost::from_nano(dollars_per_million * 1000.0)
    }
}

impl Cost {
    /// Converts an amount in US dollars to billionths of a US dollar.
    pub fn from_usd(usd: f64) -> Self {
        Self::from_nano(usd * 1e9)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and no cost is negative or that large"
    )]
    fn from_nano(nano: f64) -> Self {
        Self { nano_usd: nano.round() as u64 }
    }
}

impl fmt::Display for Cost {
    /// Prints the amount in dollars: with three decimals from one cent, and below with six, because cents are too coarse
    /// for one request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CENT: u64 = 10_000_000;
        if self.nano_usd >= CENT {
            let milli = self.nano_usd.saturating_add(500_000) / 1_000_000;
            return write!(f, "${}.{:03}", milli / 1000, milli % 1000);
        }
        let micro = self.nano_usd.div_ceil(1000);
        write!(f, "${}.{:06}", micro / 1_000_000, micro % 1_000_000)
    }
}

#[expect(clippy::cast_precision_loss, reason = "no request has 2^53 tokens")]
fn amount(per_million: f64, tokens: u64) -> f64 {
    per_million * tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_are_billed_once_at_the_cache_price() {
        let price = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
        let check = |usage: TokenUsage, nano_usd: u64| assert_eq!(price.cost(&usage), Cost { nano_usd });
        check(TokenUsage { input: 1000, output: 100, ..TokenUsage::default() }, 4_500_000);
        check(TokenUsage { input: 1000, output: 0, cache_read: 800, ..TokenUsage::default() }, 840_000);
        check(TokenUsage { input: 1000, output: 0, cache_write: 1000, ..TokenUsage::default() }, 3_750_000);
        check(
            TokenUsage { input: 0, output: 10, cache_read: 5, reasoning: 10, ..TokenUsage::default() },
            151_500,
        );
        check(TokenUsage::default(), 0);
    }

    #[test]
    fn cost_prints_in_dollars() {
        assert_eq!(Cost { nano_usd: 4_500_000 }.to_string(), "$0.004500");
        assert_eq!(Cost { nano_usd: 36_900_000 }.to_string(), "$0.037");
        assert_eq!(Cost { nano_usd: 2_500_100_000 }.to_string(), "$2.500");
        assert_eq!(Cost { nano_usd: 12_000_000_001 }.to_string(), "$12.000");
    }
}

//! The spending limit of a run and all its sub-agents together.

use std::time::Duration;

/// The spending limits; `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SpendLimit {
    /// The limit in US dollars.
    pub usd: Option<f64>,
    /// The limit on input and output tokens together.
    pub tokens: Option<u64>,
    /// The limit on tool calls.
    pub calls: Option<u64>,
    /// The limit on the time since the start of the run.
    pub time: Option<Duration>,
}

/// The spending of the whole tree of runs so far, including reservations.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SpendTotals {
    /// The cost, in US dollars.
    pub usd: f64,
    /// The number of input and output tokens together.
    pub tokens: u64,
    /// The number of tool calls.
    pub calls: u64,
    /// The time since the start of the run.
    pub time: Duration,
}

/// The part of a budget that is exhausted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExhaustedLimit {
    /// The cost in US dollars.
    Usd,
    /// The number of tokens.
    Tokens,
    /// The number of tool calls.
    Calls,
    /// The time since the start of the run.
    Time,
}

impl SpendLimit {
    /// Returns the first exhausted part of a remaining budget.
    pub fn used_up(&self) -> Option<ExhaustedLimit> {
        let Self { usd, tokens, calls, time } = self;
        let parts = [
            (usd.is_some_and(|usd| usd <= 0.0), ExhaustedLimit::Usd),
            (*tokens == Some(0), ExhaustedLimit::Tokens),
            (*calls == Some(0), ExhaustedLimit::Calls),
            (*time == Some(Duration::ZERO), ExhaustedLimit::Time),
        ];
        parts.into_iter().find_map(|(used_up, part)| used_up.then_some(part))
    }

    /// Returns true if the remaining budget is less than `tokens` or less than `usd` US dollars.
    pub fn is_below(&self, tokens: u64, usd: f64) -> bool {
        self.tokens.is_some_and(|left| left < tokens) || self.usd.is_some_and(|left| left < usd)
    }

    /// Combines two budgets: each limit of the result is the smaller one of the two.
    #[must_use]
    pub fn within(&self, other: &SpendLimit) -> SpendLimit {
        SpendLimit {
            usd: smaller(self.usd, other.usd, f64::min),
            tokens: smaller(self.tokens, other.tokens, u64::min),
            calls: smaller(self.calls, other.calls, u64::min),
            time: smaller(self.time, other.time, Duration::min),
        }
    }

    /// Returns the spent percentage of the part that is closest to its limit. Ignores time, which every observer can
    /// measure itself.
    pub fn used_percent(&self, left: &SpendLimit) -> Option<u8> {
        let share = |all: f64, left: f64| if all > 0.0 { 1.0 - left / all } else { 1.0 };
        let count = |all: u64, left: u64| share(whole(all), whole(left));
        let parts = [
            self.usd.zip(left.usd).map(|(all, left)| share(all, left)),
            self.tokens.zip(left.tokens).map(|(all, left)| count(all, left)),
            self.calls.zip(left.calls).map(|(all, left)| count(all, left)),
        ];
        let most = parts.into_iter().flatten().reduce(f64::max)?;
        Some(percent(most))
    }

    /// Returns the remaining budget.
    #[must_use]
    pub fn left(&self, spent: &SpendTotals) -> SpendLimit {
        SpendLimit {
            usd: self.usd.map(|usd| (usd - spent.usd).max(0.0)),
            tokens: self.tokens.map(|tokens| tokens.saturating_sub(spent.tokens)),
            calls: self.calls.map(|calls| calls.saturating_sub(spent.calls)),
            time: self.time.map(|time| time.saturating_sub(spent.time)),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a precision of 1 % is enough")]
fn whole(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a percentage lies between 0 and 100"
)]
fn percent(share: f64) -> u8 {
    (share.clamp(0.0, 1.0) * 100.0).round() as u8
}

fn smaller<T>(one: Option<T>, other: Option<T>, min: fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(min(one, other)),
        (one, other) => one.or(other),
    }
}

impl ExhaustedLimit {
    /// Returns the stable name that all wire formats use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Usd => "usd",
            Self::Tokens => "tokens",
            Self::Calls => "calls",
            Self::Time => "time",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> SpendLimit {
        SpendLimit { usd: Some(1.0), tokens: Some(100), calls: Some(3), time: Some(Duration::from_mins(1)) }
    }

    #[test]
    fn budget_is_exhausted_when_any_limit_is_reached() {
        let check = |usd: f64, tokens: u64, calls: u64, seconds: u64, expected: Option<ExhaustedLimit>| {
            let spent = SpendTotals { usd, tokens, calls, time: Duration::from_secs(seconds) };
            assert_eq!(budget().left(&spent).used_up(), expected, "{spent:?}");
            assert_eq!(SpendLimit::default().left(&spent).used_up(), None);
        };
        check(0.0, 0, 0, 0, None);
        check(0.99, 99, 2, 59, None);
        check(1.0, 99, 2, 59, Some(ExhaustedLimit::Usd));
        check(0.99, 100, 2, 59, Some(ExhaustedLimit::Tokens));
        check(0.99, 99, 3, 59, Some(ExhaustedLimit::Calls));
        check(0.99, 99, 2, 60, Some(ExhaustedLimit::Time));
    }

    #[test]
    fn remaining_budget_never_goes_below_zero() {
        let spent = SpendTotals { usd: 0.25, tokens: 200, calls: 1, time: Duration::from_secs(10) };
        let left = budget().left(&spent);
        let expected = SpendLimit {
            usd: Some(0.75),
            tokens: Some(0),
            calls: Some(2),
            time: Some(Duration::from_secs(50)),
        };
        assert_eq!(left, expected);
        assert_eq!(SpendLimit::default().left(&spent), SpendLimit::default());
    }

    #[test]
    fn used_percent_is_that_of_the_most_used_limit() {
        let check = |usd: f64, tokens: u64, calls: u64, expected: u8| {
            let spent = SpendTotals { usd, tokens, calls, time: Duration::MAX };
            assert_eq!(budget().used_percent(&budget().left(&spent)), Some(expected), "{spent:?}");
        };
        check(0.0, 0, 0, 0);
        check(0.5, 10, 1, 50);
        check(0.5, 99, 1, 99);
        check(0.0, 500, 9, 100);
        assert_eq!(SpendLimit::default().used_percent(&SpendLimit::default()), None);
    }

    #[test]
    fn combining_two_budgets_takes_the_smaller_of_each_limit() {
        let other = SpendLimit { usd: Some(0.5), tokens: Some(200), ..SpendLimit::default() };
        let expected = SpendLimit { usd: Some(0.5), ..budget() };
        assert_eq!(budget().within(&other), expected);
        assert_eq!(other.within(&budget()), expected);
        assert_eq!(SpendLimit::default().within(&other), other);
    }
}

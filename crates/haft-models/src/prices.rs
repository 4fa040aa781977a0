//! Prices of models: those of the operator first, then a built-in table with its date.

use haft_core::price::Price;

/// The date when the built-in prices were looked up.
pub const PRICES_DATE: &str = "2025-11-01";

/// Provider, model, and US dollars per million tokens of input, output, cache read and cache write. A name with a
/// date suffix is the same model; any other suffix is another model with an unknown price. The table does not cover
/// the surcharges that some providers take for long prompts.
const BUILT_IN: &[(&str, &str, [f64; 4])] = &[
    ("openai", "gpt-4o", [2.5, 10.0, 1.25, 2.5]),
    ("openai", "gpt-4o-mini", [0.15, 0.6, 0.075, 0.15]),
    ("openai", "gpt-4.1", [2.0, 8.0, 0.5, 2.0]),
    ("openai", "gpt-4.1-mini", [0.4, 1.6, 0.1, 0.4]),
    ("openai", "gpt-4.1-nano", [0.1, 0.4, 0.025, 0.1]),
    ("openai", "gpt-5", [1.25, 10.0, 0.125, 1.25]),
    ("openai", "gpt-5-mini", [0.25, 2.0, 0.025, 0.25]),
    ("openai", "gpt-5-nano", [0.05, 0.4, 0.005, 0.05]),
    ("openai", "o3", [2.0, 8.0, 0.5, 2.0]),
    ("openai", "o4-mini", [1.1, 4.4, 0.275, 1.1]),
    ("anthropic", "claude-opus-4", [15.0, 75.0, 1.5, 18.75]),
    ("anthropic", "claude-opus-4-1", [15.0, 75.0, 1.5, 18.75]),
    ("anthropic", "claude-sonnet-4", [3.0, 15.0, 0.3, 3.75]),
    ("anthropic", "claude-sonnet-4-5", [3.0, 15.0, 0.3, 3.75]),
    ("anthropic", "claude-haiku-4-5", [1.0, 5.0, 0.1, 1.25]),
    ("anthropic", "claude-3-7-sonnet", [3.0, 15.0, 0.3, 3.75]),
    ("anthropic", "claude-3-5-haiku", [0.8, 4.0, 0.08, 1.0]),
    ("gemini", "gemini-2.5-pro", [1.25, 10.0, 0.125, 1.25]),
    ("gemini", "gemini-2.5-flash", [0.3, 2.5, 0.03, 0.3]),
    ("gemini", "gemini-2.5-flash-lite", [0.1, 0.4, 0.01, 0.1]),
    ("deepseek", "deepseek-chat", [0.28, 0.42, 0.028, 0.28]),
    ("deepseek", "deepseek-reasoner", [0.28, 0.42, 0.028, 0.28]),
    ("xai", "grok-4", [3.0, 15.0, 0.75, 3.0]),
];

/// The prices in effect for one provider.
#[derive(Debug, Clone, Default)]
pub struct Prices {
    /// The provider's name in the built-in table; `None` for a self-hosted server.
    list: Option<&'static str>,
    own: Vec<(String, Price)>,
}

impl Prices {
    /// Uses the built-in prices of the provider `list`.
    pub fn of_list(list: Option<&'static str>) -> Self {
        Self { list, own: Vec::new() }
    }

    /// Adds the operator's price of a model, which takes precedence over the table.
    #[must_use]
    pub fn with(mut self, model: impl Into<String>, price: Price) -> Self {
        self.own.push((model.into(), price));
        self
    }

    pub fn of(&self, model: &str) -> Option<Price> {
        let own = self.own.iter().find(|(name, _)| name == model).map(|(_, price)| *price);
        own.or_else(|| self.list.and_then(|list| built_in(list, model)))
    }
}

fn built_in(list: &str, model: &str) -> Option<Price> {
    let is_it = |name: &str| model.strip_prefix(name).is_some_and(is_date);
    let (_, _, [input, output, cache_read, cache_write]) =
        *BUILT_IN.iter().find(|(provider, name, _)| *provider == list && is_it(name))?;
    Some(Price { input, output, cache_read, cache_write })
}

/// Matches nothing, `-latest`, `-20250514` or `-2025-04-14`.
fn is_date(rest: &str) -> bool {
    match rest.strip_prefix('-') {
        None => rest.is_empty(),
        Some("latest") => true,
        Some(rest) => {
            let digits = rest.bytes().filter(u8::is_ascii_digit).count();
            digits == 8 && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a price in the wrong column, or per thousand instead of per million tokens.
    #[test]
    fn built_in_prices_are_unique_and_within_plausible_ranges() {
        let mut names = std::collections::HashSet::new();
        for (provider, model, [input, output, cache_read, cache_write]) in BUILT_IN {
            assert!(names.insert((provider, model)), "{provider}/{model} twice");
            let name = format!("{provider}/{model}");
            assert!((0.01..=100.0).contains(input) && (0.1..=500.0).contains(output), "{name}");
            assert!(input < output && *output <= 10.0 * input, "{name}");
            assert!(cache_read < input && (1.0..=2.0).contains(&(cache_write / input)), "{name}");
        }
        assert!(PRICES_DATE.parse::<jiff::civil::Date>().is_ok());
    }

    #[test]
    fn dated_model_name_has_the_price_of_its_base_model() {
        let input = |list, model| Prices::of_list(list).of(model).map(|price| price.input);
        assert_eq!(input(Some("openai"), "gpt-4o"), Some(2.5));
        assert_eq!(input(Some("openai"), "gpt-4o-2024-11-20"), Some(2.5));
        assert_eq!(input(Some("openai"), "gpt-4o-mini-2024-07-18"), Some(0.15));
        assert_eq!(input(Some("anthropic"), "claude-opus-4-20250514"), Some(15.0));
        assert_eq!(input(Some("anthropic"), "claude-opus-4-9"), None);
        assert_eq!(input(Some("anthropic"), "gpt-4o"), None);
        assert_eq!(input(None, "gpt-4o"), None);
    }

    /// Catches a wrong digit or column.
    #[test]
    fn built_in_price_ratios_are_plausible() {
        let date: jiff::civil::Date = PRICES_DATE.parse().unwrap();
        assert!(date.year() >= 2025 && BUILT_IN.len() > 20);
        for (provider, model, [input, output, cache_read, cache_write]) in BUILT_IN {
            let name = format!("{provider}/{model}");
            assert!((0.01..=100.0).contains(input) && (0.05..=200.0).contains(output), "{name}");
            assert!((1.0..=10.0).contains(&(output / input)), "{name}");
            assert!((0.05..=1.0).contains(&(cache_read / input)), "{name}");
            assert!((1.0..=2.0).contains(&(cache_write / input)), "{name}");
            let same = BUILT_IN.iter().filter(|(one, other, _)| one == provider && other == model).count();
            assert_eq!(same, 1, "{name}");
        }
    }

    #[test]
    fn configured_price_overrides_the_built_in_price() {
        let prices = Prices::of_list(Some("openai")).with("gpt-4o", Price::flat(1.0, 2.0));
        assert_eq!(prices.of("gpt-4o"), Some(Price::flat(1.0, 2.0)));
        assert!(prices.of("gpt-4o-mini").is_some());
    }
}

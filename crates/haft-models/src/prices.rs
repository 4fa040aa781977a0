//! Model prices: the operator's prices first, then the data file.

use haft_core::price::Price;

use crate::model_data;

/// The prices that apply to one provider.
#[derive(Debug, Clone, Default)]
pub struct Prices {
    /// The provider's name in the built-in price table; `None` for a self-hosted server.
    list: Option<&'static str>,
    own: Vec<(String, Price)>,
}

impl Prices {
    /// Uses the built-in prices of the provider `list`.
    pub fn of_list(list: Option<&'static str>) -> Self {
        Self { list, own: Vec::new() }
    }

    /// Adds the operator's price for a model. This price has priority over the built-in table.
    #[must_use]
    pub fn with(mut self, model: impl Into<String>, price: Price) -> Self {
        self.own.push((model.into(), price));
        self
    }

    pub fn of(&self, model: &str) -> Option<Price> {
        let own = self.own.iter().find(|(name, _)| name == model).map(|(_, price)| *price);
        own.or_else(|| self.list.and_then(|list| model_data::price_in(list, model)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn configured_price_overrides_the_built_in_price() {
        let prices = Prices::of_list(Some("openai")).with("gpt-4o", Price::flat(1.0, 2.0));
        assert_eq!(prices.of("gpt-4o"), Some(Price::flat(1.0, 2.0)));
        assert!(prices.of("gpt-4o-mini").is_some());
    }
}

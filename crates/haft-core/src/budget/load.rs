//! The size of one part of the context: the tokens counted so far, and the texts that are not counted yet.

use std::sync::Arc;

use crate::model_request::ModelTool;
use crate::tokens::{TokenCounter, Tokens, tokens_of};

#[derive(Debug, Default)]
pub(super) struct TokenLoad {
    known_tokens: u64,
    uncounted: Vec<String>,
}

impl TokenLoad {
    pub(super) fn tokens(known_tokens: u64) -> Self {
        Self { known_tokens, uncounted: Vec::new() }
    }

    pub(super) fn grow(&mut self, tokens: u64) {
        self.known_tokens = self.known_tokens.saturating_add(tokens);
    }

    pub(super) fn add(&mut self, text: String) {
        self.uncounted.push(text);
    }

    /// Returns an upper bound of the tokens: every token has at least one byte.
    pub(super) fn most(&self) -> u64 {
        self.known_tokens.saturating_add(self.uncounted_bytes())
    }

    /// Returns an estimate of the tokens. Uncounted texts are estimated by their length.
    pub(super) fn about(&self) -> u64 {
        self.known_tokens.saturating_add(Tokens::by_length(self.uncounted_bytes()).count())
    }

    pub(super) fn count(&mut self, counter: &dyn TokenCounter) {
        for text in std::mem::take(&mut self.uncounted) {
            self.grow(tokens_of(counter, &text).count());
        }
    }

    fn uncounted_bytes(&self) -> u64 {
        self.uncounted.iter().map(|text| text.len() as u64).sum()
    }
}

/// The tokens of the tool definitions, or the definitions themselves until their tokens are counted. `Uncounted` shares
/// the tool list with the model request instead of keeping a copy of the text: 6 KB of text in each of a thousand
/// runs would take as much memory as all their conversations.
#[derive(Debug)]
pub(super) enum SchemaLoad {
    Counted(u64),
    Uncounted { tools: Arc<[ModelTool]>, bytes: u64 },
}

impl Default for SchemaLoad {
    fn default() -> Self {
        Self::Counted(0)
    }
}

impl SchemaLoad {
    pub(super) fn of(tools: &Arc<[ModelTool]>) -> Self {
        let bytes = tools.iter().map(|tool| tool.context_text().len() as u64).sum();
        Self::Uncounted { tools: Arc::clone(tools), bytes }
    }

    /// Returns an upper bound of the tokens: every token has at least one byte.
    pub(super) fn most(&self) -> u64 {
        match self {
            Self::Counted(tokens) => *tokens,
            Self::Uncounted { bytes, .. } => *bytes,
        }
    }

    /// Returns an estimate of the tokens. Uncounted definitions are estimated by their length.
    pub(super) fn about(&self) -> u64 {
        match self {
            Self::Counted(tokens) => *tokens,
            Self::Uncounted { bytes, .. } => Tokens::by_length(*bytes).count(),
        }
    }

    pub(super) fn count(&mut self, counter: &dyn TokenCounter) {
        if let Self::Uncounted { tools, .. } = self {
            let count = |tool: &ModelTool| tokens_of(counter, &tool.context_text()).count();
            *self = Self::Counted(tools.iter().map(count).fold(0, u64::saturating_add));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::LengthEstimator;

    #[test]
    fn uncounted_text_is_bounded_by_one_token_per_byte() {
        let mut load = TokenLoad::tokens(10);
        load.add("x".repeat(40));
        load.add("y".repeat(8));
        load.grow(1);
        assert_eq!((load.about(), load.most()), (11 + 12, 11 + 48));
        load.count(&LengthEstimator);
        assert_eq!((load.about(), load.most()), (11 + 12, 11 + 12));
    }

    #[test]
    fn token_load_saturates_at_the_maximum() {
        let mut load = TokenLoad::tokens(u64::MAX);
        load.add("x".to_owned());
        load.grow(1);
        assert_eq!((load.about(), load.most()), (u64::MAX, u64::MAX));
    }
}

//! Call ids: generated for formats that have none, rewritten for formats that restrict them.

use haft_core::digest::Digest;

/// The prefix of generated ids. Encoders recognize generated ids by this prefix and leave them out.
const GENERATED_ID_PREFIX: &str = "call_haft_";

/// Returns the id for call `number` in the reply that follows `turn` messages. The id is unique, because a conversation
/// only grows.
pub(crate) fn generate_call_id(turn: usize, number: usize) -> String {
    format!("{GENERATED_ID_PREFIX}{turn}_{number}")
}

pub(crate) fn is_generated_id(id: &str) -> bool {
    id.starts_with(GENERATED_ID_PREFIX)
}

/// The rules for the call ids that a format accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallIdRule {
    pub(crate) chars_min: usize,
    pub(crate) chars_max: usize,
    /// Selects whether `_` and `-` are accepted. Letters and digits are always accepted.
    pub(crate) punctuation: PunctuationRule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PunctuationRule {
    Accepted,
    Refused,
}

impl CallIdRule {
    /// Up to 64 letters, digits, `_` and `-`.
    pub(crate) const USUAL: Self =
        Self { chars_min: 1, chars_max: 64, punctuation: PunctuationRule::Accepted };
    /// Exactly nine letters or digits, as Mistral requires.
    pub(crate) const NINE: Self = Self { chars_min: 9, chars_max: 9, punctuation: PunctuationRule::Refused };

    /// Returns the id if the format accepts it. Otherwise returns an id that depends only on the given id, so that a
    /// call and its result still match.
    pub(crate) fn fit(self, id: &str) -> String {
        if self.accepts(id) {
            return id.to_owned();
        }
        let hex = Digest::of_text(id).to_string();
        hex.chars().take(self.chars_max.min(24)).collect()
    }

    fn accepts(self, id: &str) -> bool {
        let legal = |byte: u8| match self.punctuation {
            PunctuationRule::Accepted => byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-',
            PunctuationRule::Refused => byte.is_ascii_alphanumeric(),
        };
        (self.chars_min..=self.chars_max).contains(&id.len()) && id.bytes().all(legal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_call_ids_are_mapped_to_valid_ones() {
        assert_eq!(CallIdRule::USUAL.fit("toolu_01-A"), "toolu_01-A");
        for (rule, id) in
            [(CallIdRule::USUAL, "a.b:c"), (CallIdRule::NINE, "call_abc"), (CallIdRule::USUAL, "")]
        {
            let fitted = rule.fit(id);
            assert!(rule.accepts(&fitted), "{fitted}");
            assert_eq!(fitted, rule.fit(id));
        }
        assert_ne!(CallIdRule::NINE.fit("call_1"), CallIdRule::NINE.fit("call_2"));
    }
}

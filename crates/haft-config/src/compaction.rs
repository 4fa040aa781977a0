//! The settings of compaction, as the configuration and agents write them.

use haft_core::compaction::CompactionRules;

use super::models::ModelName;
use super::printable;

/// The pattern of a start, as a regular expression for editors.
pub(super) const PATTERN: &str = "^off$|^([1-9][0-9]?|100)%$";

/// The settings of compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionSettings {
    /// The share of the context at which compaction begins.
    pub at: CompactionStart,
    /// The most recent turns that stay word for word.
    pub keep_turns: u32,
    /// The model that writes summaries; `None` for the model of the run.
    pub model: Option<ModelName>,
}

/// The moment at which a run compacts its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionStart {
    /// When the next request takes more than this share of the context, from 1 to 100.
    Percent(u8),
    /// Never: the run ends when its context is full.
    Off,
}

/// The settings of compaction that one agent changes. `None` leaves a value to the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentCompaction {
    pub at: Option<CompactionStart>,
    pub keep_turns: Option<u32>,
    pub model: Option<ModelName>,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self {
            at: CompactionStart::Percent(CompactionRules::AT_PERCENT_DEFAULT),
            keep_turns: CompactionRules::KEEP_TURNS_DEFAULT,
            model: None,
        }
    }
}

impl CompactionStart {
    /// Reads `off`, or a percentage from `1%` to `100%`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let number = text.strip_suffix('%').and_then(|digits| digits.parse::<u8>().ok());
        match number.filter(|percent| (1..=100).contains(percent)) {
            Some(percent) => Ok(Self::Percent(percent)),
            None => {
                Err(format!("expected a percentage such as 85%, or off; got `{}`", printable::excerpt(text)))
            }
        }
    }
}

impl AgentCompaction {
    /// Returns the settings of the configuration with the values that the agent sets.
    #[must_use]
    pub fn over(&self, configured: &CompactionSettings) -> CompactionSettings {
        CompactionSettings {
            at: self.at.unwrap_or(configured.at),
            keep_turns: self.keep_turns.unwrap_or(configured.keep_turns),
            model: self.model.clone().or_else(|| configured.model.clone()),
        }
    }
}

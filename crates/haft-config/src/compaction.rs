//! The compaction settings of the configuration and of agents.

use haft_core::compaction::CompactionRules;

use super::models::ModelName;
use super::printable;

/// The regular expression for the start of compaction, for editors.
pub(super) const PATTERN: &str = "^off$|^([1-9][0-9]?|100)%$";

/// The settings for compacting long conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionSettings {
    /// The share of the context window at which compaction begins.
    pub at: CompactionStart,
    /// The maximum number of recent turns that are kept word for word.
    pub keep_turns: u32,
    /// The model that writes summaries; `None` for the model of the run.
    pub model: Option<ModelName>,
}

/// The point at which a run compacts its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionStart {
    /// The run compacts when the next request takes more than this percentage of the context window, from 1 to 100.
    Percent(u8),
    /// The run never compacts, and ends when its context is full.
    Off,
}

/// The compaction settings that one agent changes. A `None` value comes from the configuration.
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
    /// Parses `off`, or a percentage from `1%` to `100%`.
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
    /// Returns the settings of the configuration, overwritten with the values that the agent sets.
    #[must_use]
    pub fn over(&self, configured: &CompactionSettings) -> CompactionSettings {
        CompactionSettings {
            at: self.at.unwrap_or(configured.at),
            keep_turns: self.keep_turns.unwrap_or(configured.keep_turns),
            model: self.model.clone().or_else(|| configured.model.clone()),
        }
    }
}

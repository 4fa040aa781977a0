//! The operator's settings for the tools that a model sees.

use crate::glob::ToolGlob;

/// Selects the tools that a model sees, and how the model can use the other tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolSearchSettings {
    /// Selects whether tools are hidden behind a search.
    pub mode: ToolSearchMode,
    /// Tools that the model always sees, in addition to the built-in tools.
    pub always_show: Vec<ToolGlob>,
    /// Selects how the model can use tools that a search found.
    pub expose: ToolExposeForm,
}

/// Selects whether tools are hidden behind a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolSearchMode {
    /// Hides tools if there are too many to show.
    #[default]
    Auto,
    /// Hides all tools except those that are always shown.
    Always,
    /// Shows all tools.
    Never,
}

/// Selects how the model can use tools that a search found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolExposeForm {
    /// Uses the provider's own mechanism if there is one, else works like `Constant`.
    #[default]
    Auto,
    /// The search result defines the tools, and the tool list never changes.
    Constant,
    /// Found tools are appended to the list.
    Append,
}

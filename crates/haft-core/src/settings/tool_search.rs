//! The operator's settings for the tools that a model sees.

use crate::glob::ToolGlob;

/// Decides which tools a model sees, and how it reaches the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolSearchSettings {
    /// Decides if tools are hidden behind a search.
    pub mode: ToolSearchMode,
    /// Tools that are always shown, in addition to the built-in ones.
    pub always_show: Vec<ToolGlob>,
    /// The way in which found tools reach the model.
    pub expose: ToolExposeForm,
}

/// Decides if tools are hidden behind a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolSearchMode {
    /// Hides tools if there are too many to show.
    #[default]
    Auto,
    /// Hides all tools that are not shown always.
    Always,
    /// Shows all tools.
    Never,
}

/// The way in which found tools reach the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolExposeForm {
    /// The provider's own way where it has one, else as `Constant`.
    #[default]
    Auto,
    /// The answer of the search defines the tools, and the list of tools never changes.
    Constant,
    /// Found tools are appended to the list.
    Append,
}

//! The priority of a call.

/// The order of waiting calls. The run or the operator sets it, never the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// For work that can wait. Later calls of higher priority overtake it a limited number of times.
    Low,
    /// The priority of a call when neither the run nor the operator sets one.
    #[default]
    Normal,
    /// For calls that a user waits for; overtakes waiting calls of lower priority.
    High,
}

crate::name_table!(Priority { Low: "low", Normal: "normal", High: "high" });

//! The priority of a call.

/// The priority among waiting calls. The run or the operator sets it, never the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// For work that can wait. Later calls with a higher priority overtake such a call only a limited number of times.
    Low,
    /// The default, if neither the run nor the operator sets a priority.
    #[default]
    Normal,
    /// For calls that a user waits for. Such a call overtakes waiting calls with a lower priority.
    High,
}

crate::name_table!(Priority { Low: "low", Normal: "normal", High: "high" });

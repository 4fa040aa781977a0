//! Which JSON Schema a schema is written in.

use serde_json::Value;

/// The drafts there are. A schema that names its own in `$schema` is read as that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Draft {
    Draft4,
    Draft6,
    Draft7,
    Draft201909,
    #[default]
    Draft202012,
}

impl Draft {
    pub const ALL: [Draft; 5] =
        [Draft::Draft4, Draft::Draft6, Draft::Draft7, Draft::Draft201909, Draft::Draft202012];

    pub fn name(self) -> &'static str {
        match self {
            Draft::Draft4 => "4",
            Draft::Draft6 => "6",
            Draft::Draft7 => "7",
            Draft::Draft201909 => "2019-09",
            Draft::Draft202012 => "2020-12",
        }
    }

    /// What a schema is read as; `None` when it says so itself.
    pub(super) fn of(self, schema: &Value) -> Option<Self> {
        schema.get("$schema").and_then(Value::as_str).is_none().then_some(self)
    }

    pub(super) fn known(self) -> jsonschema::Draft {
        match self {
            Draft::Draft4 => jsonschema::Draft::Draft4,
            Draft::Draft6 => jsonschema::Draft::Draft6,
            Draft::Draft7 => jsonschema::Draft::Draft7,
            Draft::Draft201909 => jsonschema::Draft::Draft201909,
            Draft::Draft202012 => jsonschema::Draft::Draft202012,
        }
    }
}

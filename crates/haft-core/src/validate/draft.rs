//! The JSON Schema draft in which a schema is written.

use serde_json::Value;

/// The supported drafts. A `$schema` keyword in the schema has priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchemaDraft {
    /// JSON Schema draft 4, of 2013.
    Draft4,
    /// JSON Schema draft 6, of 2017.
    Draft6,
    /// JSON Schema draft 7, of 2018.
    Draft7,
    /// JSON Schema 2019-09.
    Draft201909,
    /// JSON Schema 2020-12, which MCP uses by default.
    #[default]
    Draft202012,
}

crate::name_table!(SchemaDraft {
    Draft4: "4",
    Draft6: "6",
    Draft7: "7",
    Draft201909: "2019-09",
    Draft202012: "2020-12",
});

impl SchemaDraft {
    /// Returns the draft to assume, or `None` if the schema names its draft.
    pub(super) fn of(self, schema: &Value) -> Option<Self> {
        schema.get("$schema").and_then(Value::as_str).is_none().then_some(self)
    }

    pub(super) fn known(self) -> jsonschema::Draft {
        match self {
            SchemaDraft::Draft4 => jsonschema::Draft::Draft4,
            SchemaDraft::Draft6 => jsonschema::Draft::Draft6,
            SchemaDraft::Draft7 => jsonschema::Draft::Draft7,
            SchemaDraft::Draft201909 => jsonschema::Draft::Draft201909,
            SchemaDraft::Draft202012 => jsonschema::Draft::Draft202012,
        }
    }
}

//! Validate: checks the arguments against the tool's schema, and rejects arguments that were cut off.

use haft_core::arguments::ParsedArguments;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::Effects;
use haft_core::validate::{Schema, SchemaDraft, ValidArguments};
use serde_json::Value;

use crate::call_record::CallRecord;
use crate::catalog::ResolvedTool;
use crate::policy::UncheckedSchemas;

/// The operator's settings for schema checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaCheckSettings {
    pub(crate) unchecked: UncheckedSchemas,
    /// The JSON Schema draft to assume for schemas that do not name their draft.
    pub(crate) draft: SchemaDraft,
}

pub(crate) fn validate(
    record: &mut CallRecord,
    tool: &ResolvedTool<'_>,
    effects: Effects,
    arguments: ParsedArguments,
    checking: SchemaCheckSettings,
) -> Result<ValidArguments, ToolError> {
    reject_truncated_arguments(effects, &arguments)?;
    let schema = tool.entry().schema(checking.draft);
    if let Schema::Unchecked { reason } = schema {
        record.note("unvalidated", Value::from(reason.as_str()));
    }
    match checking.unchecked {
        UncheckedSchemas::Called => {}
        UncheckedSchemas::Denied => refuse_unchecked(tool, schema, checking.draft)?,
    }
    let arguments = schema.validate(arguments)?;
    record.receipt.unvalidated = arguments.unvalidated();
    if !arguments.mended().is_empty() {
        record.note("mended", Value::from(arguments.mended()));
    }
    Ok(arguments)
}

/// Refuses a tool whose input or output schema does not compile. The output schema is included, so that a tool whose
/// output cannot be checked is refused before it has effects.
fn refuse_unchecked(tool: &ResolvedTool<'_>, input: &Schema, draft: SchemaDraft) -> Result<(), ToolError> {
    let output = tool.entry().output_schema(draft);
    let reason = std::iter::once(input).chain(output).find_map(|schema| match schema {
        Schema::Checked(_) => None,
        Schema::Unchecked { reason } => Some(reason),
    });
    match reason {
        None => Ok(()),
        Some(reason) => {
            let message = format!(
                "the call is refused, because haft cannot check arguments or output with the schemas of tool `{}`: {reason}",
                tool.entry().exposed()
            );
            Err(ToolError::new(ToolErrorKind::Denied, message))
        }
    }
}

/// Rejects arguments that end in the middle of a value, unless the tool is read-only. A model that reaches its token
/// limit stops in the middle of a call: reading with half a path does no harm, but writing half a file or running half
/// a command does.
fn reject_truncated_arguments(effects: Effects, arguments: &ParsedArguments) -> Result<(), ToolError> {
    match effects {
        Effects::ReadOnly => Ok(()),
        Effects::Idempotent | Effects::Mutating | Effects::Unknown if !arguments.cut_off() => Ok(()),
        Effects::Idempotent | Effects::Mutating | Effects::Unknown => {
            Err(ToolError::new(ToolErrorKind::InvalidArguments, CUT_OFF))
        }
    }
}

const CUT_OFF: &str = "Error: the arguments end in the middle of a value, so a part is missing; nothing was done; \
                       send the whole call again, or split the work into smaller calls";

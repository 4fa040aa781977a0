//! Validate: the arguments fit the tool's schema, and they are all there.

use haft_core::arguments::ParsedArguments;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::Effects;
use haft_core::validate::{Schema, ValidArguments};
use serde_json::Value;

use crate::catalog::ResolvedTool;
use crate::policy::UncheckedSchemas;
use crate::record::CallRecord;

pub(crate) fn validate(
    record: &mut CallRecord,
    tool: &ResolvedTool<'_>,
    arguments: ParsedArguments,
    unchecked: UncheckedSchemas,
) -> Result<ValidArguments, ToolError> {
    refuse_half_a_change(tool.entry().definition().effects, &arguments)?;
    let schema = tool.entry().schema();
    if let Schema::Unchecked { reason } = schema {
        record.note("unvalidated", Value::from(reason.as_str()));
        if unchecked == UncheckedSchemas::Denied {
            let message =
                format!("tool `{}` cannot be checked and is refused: {reason}", tool.entry().exposed());
            return Err(ToolError::new(ToolErrorKind::Denied, message));
        }
    }
    let arguments = schema.validate(arguments)?;
    record.receipt.unvalidated = arguments.unvalidated();
    Ok(arguments)
}

/// A model that runs out of room stops in the middle of its call. Reading with half a path does no harm; writing half a
/// file or running half a command does.
fn refuse_half_a_change(effects: Effects, arguments: &ParsedArguments) -> Result<(), ToolError> {
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

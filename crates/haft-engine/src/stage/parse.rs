//! Parse: the asker's text becomes a JSON object, and what it took is put on the receipt.

use haft_core::arguments::{ArgumentLimits, ParsedArguments};
use haft_core::result::ToolError;

use crate::record::CallRecord;

pub(crate) fn parse(record: &mut CallRecord, limits: &ArgumentLimits) -> Result<ParsedArguments, ToolError> {
    let arguments = record.call.arguments.parse(limits)?;
    record.receipt.repairs = arguments.repairs().to_vec();
    Ok(arguments)
}

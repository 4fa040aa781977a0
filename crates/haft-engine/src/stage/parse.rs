//! Parse: parses the model's text as a JSON object. If the text had to be repaired, the receipt lists the repairs.

use haft_core::arguments::{ArgumentLimits, ParsedArguments};
use haft_core::result::ToolError;

use crate::call_record::CallRecord;

pub(crate) fn parse(record: &mut CallRecord, limits: &ArgumentLimits) -> Result<ParsedArguments, ToolError> {
    let arguments = record.call.arguments.parse(limits)?;
    record.receipt.repairs = arguments.repairs().to_vec();
    Ok(arguments)
}

//! Parses queries about stored outputs.

use super::grep::Grep;
use super::{Extract, ExtractError};

/// Parses `lines 10-40`, `first 50 lines`, `last 50 lines`, `bytes 0-4096`, `grep [-i] [-B n] [-A n] PATTERN`, `jq
/// FILTER`, `schema` and `stats`.
pub(super) fn parse(text: &str) -> Result<Option<Extract>, ExtractError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["schema"] => Ok(Some(Extract::Schema)),
        ["stats"] => Ok(Some(Extract::Stats)),
        ["first", count, "lines" | "line"] => Ok(Some(Extract::FirstLines(number(count)?))),
        ["last", count, "lines" | "line"] => Ok(Some(Extract::LastLines(number(count)?))),
        ["lines", range] => range_of(range).map(|(first, last)| Some(Extract::Lines { first, last })),
        ["bytes", range] => range_of(range).map(|(start, end)| Some(Extract::Bytes { start, end })),
        ["grep", ..] => Grep::parse(text).map(|grep| Some(Extract::Grep(grep))),
        ["jq", ..] => Ok(Some(Extract::Jq(text["jq".len()..].trim().to_owned()))),
        _ => Ok(None),
    }
}

fn range_of(text: &str) -> Result<(usize, usize), ExtractError> {
    let (first, last) = text
        .split_once('-')
        .ok_or_else(|| ExtractError(format!("expected a range such as 10-40; got `{text}`")))?;
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(ExtractError(format!("the range {text} ends before it begins")));
    }
    Ok((first, last))
}

pub(super) fn number(text: &str) -> Result<usize, ExtractError> {
    text.parse().map_err(|_| ExtractError(format!("expected a whole number; got `{text}`")))
}

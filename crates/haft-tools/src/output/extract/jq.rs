//! Runs jq filters on JSON.

use std::fmt::Write;

use jaq_core::load::{Arena, File, Loader, import};
use jaq_core::{Compiler, Ctx, Vars, data, unwrap_valr};
use jaq_json::{Val, read};

use super::{ANSWER_BYTES_MAX, ExtractError};

/// Runs a filter on each JSON value of the output (one value for a document, many for JSON lines) and returns its
/// results, one per line. A filter may run forever, so the caller must limit the time.
pub(super) fn run(filter: &str, content: &[u8]) -> Result<String, ExtractError> {
    let inputs = read::parse_many(content).collect::<Result<Vec<Val>, _>>().map_err(|error| {
        ExtractError(format!("jq needs JSON, and the stored output is not JSON: {error}"))
    })?;
    let arena = Arena::default();
    let loader = Loader::new(jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs()));
    let code = if filter.is_empty() { "." } else { unquoted(filter) };
    let modules = loader.load(&arena, File { code, path: () }).map_err(|_| not_a_filter(filter))?;
    // Refuse imports, because a filter that imports data would panic: no data is loaded.
    let imports = |_: jaq_core::load::Import<'_, _, _>| Err("not supported".to_owned());
    import(&modules, imports).map_err(|_| ExtractError("a jq filter cannot import files".into()))?;
    let functions = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let compiled =
        Compiler::default().with_funs(functions).compile(modules).map_err(|_| not_a_filter(filter))?;
    let results = inputs.into_iter().flat_map(|input| {
        let run = Ctx::<data::JustLut<Val>>::new(&compiled.lut, Vars::new([]));
        compiled.id.run((run, input)).map(unwrap_valr)
    });
    let mut answer = String::new();
    for result in results {
        match result {
            Ok(value) => writeln!(answer, "{value}").map_err(|error| ExtractError(error.to_string()))?,
            Err(error) => return Err(ExtractError(format!("the jq filter failed: {error}"))),
        }
        // Stop a filter that returns values endlessly: the pages of an answer end at this size.
        if answer.len() > ANSWER_BYTES_MAX {
            break;
        }
    }
    Ok(if answer.is_empty() { "(no result)".into() } else { answer })
}

fn not_a_filter(filter: &str) -> ExtractError {
    ExtractError(format!("`{filter}` is not a valid jq filter"))
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(text)
}

//! The result of a search as a model reads it: the definitions of the best tools as compact text, and the names of
//! further tools.

use std::collections::BTreeMap;

use haft_core::internal_tools::tool_search::{TOOL_CALL, TOOL_SEARCH, compact_definition};
use haft_core::model_request::ModelTool;
use haft_core::output::FoundTools;
use haft_core::tokens::{TokenCounter, tokens_of};

/// The maximum number of tools that a result defines.
const DEFINITIONS_MAX: usize = 5;

/// The maximum length of a result, in tokens: enough for five definitions and fifteen names.
pub(crate) const ANSWER_TOKENS_MAX: u64 = 820;

/// The maximum length of a result, in bytes. Most results of this size have fewer than [`ANSWER_TOKENS_MAX`] tokens.
pub(crate) const ANSWER_BYTES_MAX: usize = 2_700;

/// The maximum number of attempts to shorten the definitions in a result that has too many tokens.
const ROUNDS_MAX: usize = 4;

/// The percentage of the token limit at which shortening aims, because shorter text often has more tokens per byte.
const AIM_PERCENT: u64 = 95;

/// The bytes reserved for line breaks and indentation in one definition.
const LINE_BYTES: usize = 24;

/// The maximum number of sources that are listed in a result without a match.
const SOURCES_MAX: usize = 5;

/// The minimum share of a query that the best tool must match. Below it, the result says that no tool matches well,
/// because a model that gets unrelated definitions tends to call them.
const COVERAGE_MIN: f32 = 0.2;

/// One tool that a search found.
#[derive(Debug, Clone)]
pub(crate) struct FoundTool {
    pub(crate) tool: ModelTool,
    /// The server or OpenAPI document from which the tool comes.
    pub(crate) source: String,
    /// True if the model already sees the tool.
    pub(crate) is_shown: bool,
    /// The share of the query that the tool matches, from 0 to 1.
    pub(crate) coverage: f32,
}

/// Returns the result for these tools, best first. `sources` holds the number of tools in each source.
pub(crate) fn answer(
    found: &[FoundTool],
    sources: &BTreeMap<String, usize>,
    counter: &dyn TokenCounter,
) -> FoundTools {
    if found.first().is_none_or(|best| best.coverage < COVERAGE_MIN) {
        return without_match(found, sources);
    }
    let mut bytes_max = ANSWER_BYTES_MAX;
    for _ in 0..ROUNDS_MAX {
        let answer = answer_of(found, bytes_max);
        let tokens = tokens_of(counter, &answer.text).count();
        if tokens <= ANSWER_TOKENS_MAX {
            return answer;
        }
        let aim = (bytes_max as u64).saturating_mul(ANSWER_TOKENS_MAX * AIM_PERCENT) / (tokens * 100);
        bytes_max = usize::try_from(aim).unwrap_or(bytes_max);
    }
    // Definitions in a writing system with many tokens per character can still be too long. Return only the names: the
    // model can read a definition with `select:NAME`.
    let rest = format!("Found: {}.", names_of(found));
    FoundTools { text: format!("{rest}\n{}", footer()), defined: Vec::new(), rest }
}

fn footer() -> String {
    format!(
        "Call these tools with `{TOOL_CALL}`. To see the definition of one, call `{TOOL_SEARCH}` with `select:NAME`."
    )
}

/// Returns the result in about this many bytes: the names of all tools, and as many definitions as fit.
fn answer_of(found: &[FoundTool], bytes_max: usize) -> FoundTools {
    let footer = footer();
    let mut room = bytes_max.saturating_sub(names_of(found).len() + footer.len());
    let mut texts: Vec<String> = Vec::new();
    let mut defined: Vec<&FoundTool> = Vec::new();
    let candidates = found.len().min(DEFINITIONS_MAX);
    for (at, one) in found.iter().take(candidates).enumerate() {
        let share = room / (candidates - at);
        let text = definition(one, share.saturating_sub(LINE_BYTES));
        // If a definition does not fit, its name is still in the list of names.
        if text.len() > room && !texts.is_empty() {
            continue;
        }
        room = room.saturating_sub(text.len() + 1);
        texts.push(text);
        defined.push(one);
    }
    let is_defined = |one: &&FoundTool| defined.iter().any(|known| known.tool.name == one.tool.name);
    let others: Vec<FoundTool> = found.iter().filter(|one| !is_defined(one)).cloned().collect();
    let rest = if others.is_empty() { String::new() } else { format!("More: {}.", names_of(&others)) };
    let text = [texts.join("\n"), rest.clone(), footer];
    let text = text.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
    let defined = defined.iter().filter(|one| !one.is_shown).map(|one| one.tool.name.clone()).collect();
    FoundTools { text, defined, rest }
}

fn definition(found: &FoundTool, bytes_max: usize) -> String {
    if found.is_shown {
        return format!("{} is among your tools already; call it directly.", found.tool.name);
    }
    compact_definition(&found.tool, bytes_max)
}

fn names_of(found: &[FoundTool]) -> String {
    found.iter().map(|one| one.tool.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns a result that names the sources of weak matches, or else the sources with the most tools.
fn without_match(found: &[FoundTool], sources: &BTreeMap<String, usize>) -> FoundTools {
    let mut nearest: Vec<&str> = Vec::new();
    for one in found {
        if !nearest.contains(&one.source.as_str()) {
            nearest.push(&one.source);
        }
    }
    let mut largest: Vec<(&String, &usize)> = sources.iter().collect();
    largest.sort_by_key(|(name, tools)| (std::cmp::Reverse(**tools), (*name).clone()));
    if nearest.is_empty() {
        nearest.extend(largest.iter().map(|(name, _)| name.as_str()));
    }
    let described = |name: &&str| match sources.get(*name) {
        Some(tools) => format!("{name} ({tools} tools)"),
        None => (*name).to_owned(),
    };
    let nearest: Vec<String> = nearest.iter().take(SOURCES_MAX).map(described).collect();
    let advice = "Try other words: the action and the thing it acts on, such as `create issue`.";
    let text = match nearest.as_slice() {
        [] => "No good match: there are no other tools.".to_owned(),
        nearest => format!("No good match. The nearest sources: {}. {advice}", nearest.join(", ")),
    };
    FoundTools { text, defined: Vec::new(), rest: String::new() }
}

/// Returns the names in a query such as `select:a,b`, or `None` for any other query.
pub(crate) fn selected(query: &str) -> Option<Vec<&str>> {
    let names = query.trim().strip_prefix("select:")?;
    Some(names.split([',', ' ', '\n']).map(str::trim).filter(|name| !name.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use haft_core::tokens::{LengthEstimator, Tokens};
    use serde_json::json;

    use super::*;

    fn found(name: &str, coverage: f32) -> FoundTool {
        let schema = json!({"type": "object", "required": ["id"], "properties": {
            "id": {"type": "string", "description": "The identifier of the thing. ".repeat(9)},
            "limit": {"type": "integer"},
        }});
        FoundTool {
            tool: ModelTool {
                name: name.into(),
                description: "Does one thing to another. ".repeat(40),
                input_schema: Arc::new(schema),
                strict: false,
            },
            source: name.split("__").next().unwrap().into(),
            is_shown: false,
            coverage,
        }
    }

    #[test]
    fn search_answer_defines_five_tools_and_lists_the_names_of_others() {
        let all: Vec<FoundTool> = (0..20).map(|n| found(&format!("server__tool_number_{n}"), 1.0)).collect();
        let FoundTools { text, defined, rest } = answer(&all, &BTreeMap::new(), &LengthEstimator);
        assert_eq!(defined.len(), 5);
        assert!(text.len() <= ANSWER_BYTES_MAX + 100, "{}", text.len());
        for one in &all {
            assert!(text.contains(&one.tool.name), "{}", one.tool.name);
        }
        assert!(!rest.contains("number_4") && rest.contains("number_5,"), "{rest}");
        assert!(text.contains("server__tool_number_4(id: string, limit?: integer)"), "{text}");
    }

    /// Counts one token for every given number of bytes, as for dense text.
    struct DenseCounter(u64);

    impl TokenCounter for DenseCounter {
        fn count(&self, text: &str) -> Tokens {
            Tokens::Counted((text.len() as u64).div_ceil(self.0))
        }
    }

    #[test]
    fn search_answer_stays_within_its_token_limit_for_dense_text() {
        let mut all: Vec<FoundTool> = (0..20).map(|n| found(&format!("server__tool_{n}"), 1.0)).collect();
        let check = |all: &[FoundTool], bytes_per_token: u64, least: usize| {
            let counter = DenseCounter(bytes_per_token);
            let found = answer(all, &BTreeMap::new(), &counter);
            let tokens = counter.count(&found.text).count();
            assert!(tokens <= ANSWER_TOKENS_MAX, "{bytes_per_token} bytes: {tokens} tokens");
            assert!(found.defined.len() >= least, "{bytes_per_token} bytes: {:?}", found.defined);
            assert!(all.iter().all(|one| found.text.contains(&one.tool.name)), "{}", found.text);
        };
        check(&all, 4, 5);
        check(&all, 3, 5);
        check(&all, 2, 3);
        let properties: serde_json::Map<_, _> =
            (0..80).map(|n| (format!("parameter_{n}"), json!({"type": "string"}))).collect();
        for one in &mut all {
            one.tool.input_schema = Arc::new(json!({"type": "object", "properties": properties}));
        }
        check(&all, 1, 0);
    }

    #[test]
    fn definition_that_does_not_fit_is_replaced_by_its_name() {
        let mut all: Vec<FoundTool> = (0..5).map(|n| found(&format!("a__{n}"), 1.0)).collect();
        let properties: serde_json::Map<_, _> =
            (0..80).map(|n| (format!("a_rather_long_parameter_{n}"), json!({"type": "string"}))).collect();
        for one in &mut all {
            one.tool.input_schema = Arc::new(json!({"type": "object", "properties": properties}));
        }
        let FoundTools { text, defined, rest } = answer(&all, &BTreeMap::new(), &LengthEstimator);
        assert!(defined.len() < 5 && !defined.is_empty(), "{defined:?}");
        assert!(rest.contains("a__4"), "{rest}");
        assert!(text.len() <= ANSWER_BYTES_MAX + 200, "{}", text.len());
    }

    #[test]
    fn search_answer_for_weak_matches_lists_the_nearest_sources() {
        let sources: BTreeMap<String, usize> =
            [("files".to_owned(), 3), ("github".to_owned(), 40), ("mail".to_owned(), 7)].into();
        let check = |all: &[FoundTool], expected: &str| {
            let found = answer(all, &sources, &LengthEstimator);
            assert!(found.text.contains(expected), "{}", found.text);
            assert!(found.defined.is_empty());
        };
        check(&[found("mail__send", 0.05)], "No good match. The nearest sources: mail (7 tools). ");
        check(&[], "The nearest sources: github (40 tools), mail (7 tools), files (3 tools). ");
        assert!(answer(&[], &BTreeMap::new(), &LengthEstimator).text.contains("no other tools"));
    }

    #[test]
    fn search_answer_does_not_define_a_tool_that_the_model_already_sees() {
        let shown = FoundTool { is_shown: true, ..found("read", 1.0) };
        let FoundTools { text, defined, .. } = answer(&[shown], &BTreeMap::new(), &LengthEstimator);
        assert!(text.starts_with("read is among your tools already"), "{text}");
        assert!(defined.is_empty());
    }

    #[test]
    fn select_query_lists_exact_tool_names() {
        assert_eq!(selected("select:a__b, c__d"), Some(vec!["a__b", "c__d"]));
        assert_eq!(selected(" select: "), Some(vec![]));
        assert_eq!(selected("create issue"), None);
    }
}

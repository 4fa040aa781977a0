//! The data file about models: prices, context windows, and the request fields that a family of models accepts.
//!
//! `data/models.json` is the only place for such facts. Each part of the file gives its date and its sources.

use std::sync::LazyLock;

use haft_core::model_request::ReasoningEffort;
use haft_core::price::Price;
use serde::Deserialize;

const FILE: &str = include_str!("../data/models.json");

static DATA: LazyLock<ModelData> = LazyLock::new(|| serde_json::from_str(FILE).unwrap_or_default());

/// The content of the whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModelData {
    /// The date of every row that does not state its own date.
    pub(crate) date: String,
    pub(crate) models: Vec<ModelRow>,
    pub(crate) families: Vec<ModelFamily>,
}

/// The prices and sizes of one model.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModelRow {
    /// The price list to which the row belongs.
    pub(crate) list: String,
    pub(crate) model: String,
    pub(crate) input: f64,
    pub(crate) output: f64,
    pub(crate) cache_read: f64,
    pub(crate) cache_write: f64,
    pub(crate) context_tokens: u32,
    /// The maximum number of tokens in one reply; `None` if the provider has no limit.
    pub(crate) output_tokens: Option<u32>,
}

/// Models whose names start alike and that accept the same request fields. The first matching row in the file is used.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelFamily {
    pub prefix: String,
    /// If set, the model name must also contain this text, for variants with the same prefix (for example `-instruct`
    /// in `qwen3-vl:8b-instruct`).
    pub contains: Option<String>,
    /// An example of a model in the family, for tests.
    pub example: String,
    /// The wire formats in which providers offer the family, for tests.
    pub formats: Vec<String>,
    pub sampling: SamplingRule,
    pub reasoning: ReasoningRule,
    /// The accepted effort levels; empty if every level is accepted.
    #[serde(default)]
    pub efforts: Vec<EffortName>,
    /// The minimum and maximum thinking budget, in tokens.
    pub budget_min: Option<u32>,
    pub budget_max: Option<u32>,
    /// False if the Chat Completions API rejects tools while the model reasons.
    pub chat_tools_while_reasoning: Option<bool>,
    /// False if the models reject a tool choice that forces a call.
    pub forced_tool_choice: Option<bool>,
    /// False if the models reject stop sequences and penalties, even without reasoning.
    pub stop_and_penalties: Option<bool>,
    pub context_tokens: Option<u32>,
    /// False if the models cannot read images.
    pub images: Option<bool>,
}

/// The requests that may set temperature, top-p, top-k and penalties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SamplingRule {
    Always,
    Never,
    /// Only requests that turn reasoning off may set these parameters, because the models reason by default.
    ReasoningOff,
    /// Only requests that do not ask for reasoning may set these parameters.
    NoReasoning,
    /// Only requests that do not ask for reasoning may set these parameters, and only one of temperature and top-p.
    NoReasoningOne,
}

/// The request field that turns reasoning on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningRule {
    /// The model does not reason.
    None,
    /// A named effort level turns reasoning on.
    Levels,
    /// A number of tokens turns reasoning on.
    Budget,
    /// A flag turns reasoning on or off.
    Switch,
}

/// An effort level in the data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffortName {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Highest,
}

impl EffortName {
    pub(crate) fn effort(self) -> ReasoningEffort {
        match self {
            Self::Off => ReasoningEffort::Off,
            Self::Minimal => ReasoningEffort::Minimal,
            Self::Low => ReasoningEffort::Low,
            Self::Medium => ReasoningEffort::Medium,
            Self::High => ReasoningEffort::High,
            Self::Highest => ReasoningEffort::Highest,
        }
    }
}

/// The known sizes of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelSizes {
    pub context_tokens: Option<u32>,
    /// The maximum number of tokens in one reply.
    pub output_tokens: Option<u32>,
}

/// Returns the date of the oldest rows.
pub fn data_date() -> &'static str {
    &DATA.date
}

/// Returns all families.
pub fn families() -> &'static [ModelFamily] {
    &DATA.families
}

/// Returns the family of a model. Gateways put the vendor before the model name.
pub fn family_of(model: &str) -> Option<&'static ModelFamily> {
    let name = short_name(model);
    let part_fits = |family: &ModelFamily| family.contains.as_deref().is_none_or(|part| name.contains(part));
    families().iter().find(|family| name.starts_with(family.prefix.as_str()) && part_fits(family))
}

/// Returns the sizes of a model, independent of its provider.
pub fn sizes_of(model: &str) -> ModelSizes {
    let name = short_name(model);
    let row = DATA.models.iter().find(|row| is_model(name, &row.model));
    let family = family_of(model).and_then(|family| family.context_tokens);
    ModelSizes {
        context_tokens: row.map(|row| row.context_tokens).or(family),
        output_tokens: row.and_then(|row| row.output_tokens),
    }
}

pub(crate) fn price_in(list: &str, model: &str) -> Option<Price> {
    let row = DATA.models.iter().find(|row| row.list == list && is_model(model, &row.model))?;
    let ModelRow { input, output, cache_read, cache_write, .. } = *row;
    Some(Price { input, output, cache_read, cache_write })
}

fn short_name(model: &str) -> &str {
    model.rsplit('/').next().unwrap_or(model)
}

/// Returns true if a name refers to a row in the table: it is the name in the row, alone or with a date. A name with
/// any other suffix is a different model.
fn is_model(name: &str, row: &str) -> bool {
    name.strip_prefix(row).is_some_and(is_date)
}

/// Returns true for an empty suffix, `-latest`, `-20250514` or `-2025-04-14`.
fn is_date(rest: &str) -> bool {
    match rest.strip_prefix('-') {
        None => rest.is_empty(),
        Some("latest") => true,
        Some(rest) => {
            let digits = rest.bytes().filter(u8::is_ascii_digit).count();
            digits == 8 && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::Value;

    use super::*;

    /// Detects a row that is not parsed, a price in the wrong column, and a price per thousand instead of per million
    /// tokens.
    #[test]
    fn model_data_file_parses_with_plausible_prices() {
        let file: Value = serde_json::from_str(FILE).unwrap();
        assert_eq!(file["models"].as_array().unwrap().len(), DATA.models.len());
        assert_eq!(file["families"].as_array().unwrap().len(), DATA.families.len());
        assert!(DATA.models.len() > 30);
        let mut names = HashSet::new();
        for ModelRow { list, model, input, output, cache_read, cache_write, context_tokens, output_tokens } in
            &DATA.models
        {
            let name = format!("{list}/{model}");
            assert!(names.insert((list, model)), "the file has two rows for {name}");
            assert!((0.01..=100.0).contains(input) && (0.05..=500.0).contains(output), "{name}");
            assert!((1.0..=10.0).contains(&(output / input)), "{name}");
            assert!((0.05..=1.0).contains(&(cache_read / input)), "{name}");
            assert!((1.0..=2.0).contains(&(cache_write / input)), "{name}");
            assert!(output_tokens.is_none_or(|output| output < *context_tokens), "{name}");
            assert!(!file["sources"][list][0].is_null(), "{name} has no source");
        }
    }

    #[test]
    fn every_row_of_the_model_data_has_a_date_and_a_source() {
        let file: Value = serde_json::from_str(FILE).unwrap();
        for (rows, sources) in [("models", "sources"), ("families", "familySources")] {
            for row in file[rows].as_array().unwrap() {
                let date = row["date"].as_str().unwrap_or_else(|| panic!("the row has no date: {row}"));
                let date = date.parse::<jiff::civil::Date>().unwrap();
                assert!(
                    date >= file["date"].as_str().unwrap().parse().unwrap(),
                    "the row is older than the file: {row}"
                );
                let source = row["source"].as_str().unwrap_or_else(|| panic!("the row has no source: {row}"));
                assert!(file[sources][source].is_array(), "the source of the row is not in the file: {row}");
            }
        }
        let links = |part: &str| file[part].as_object().unwrap().values().cloned().collect::<Vec<_>>();
        for link in
            links("sources").iter().chain(&links("familySources")).flat_map(|one| one.as_array().unwrap())
        {
            assert!(link.as_str().unwrap().starts_with("https://"), "{link}");
        }
    }

    /// Checks the order of rows: a row after one with a shorter prefix would never be found.
    #[test]
    fn every_model_family_is_found_by_its_example_model() {
        for family in families() {
            let found = family_of(&family.example).map(|found| found.example.as_str());
            assert_eq!(found, Some(family.example.as_str()));
        }
        assert_eq!(family_of("openai/gpt-5-mini").unwrap().prefix, "gpt-5");
        assert!(family_of("my-own-model").is_none());
    }

    #[test]
    fn model_sizes_are_found_by_name_or_by_family() {
        let sizes = |model: &str| {
            let ModelSizes { context_tokens, output_tokens } = sizes_of(model);
            (context_tokens, output_tokens)
        };
        assert_eq!(sizes("claude-sonnet-4-5-20250929"), (Some(200_000), Some(64_000)));
        assert_eq!(sizes("openai/gpt-4o"), (Some(128_000), Some(16_384)));
        assert_eq!(sizes("llama3:8b"), (Some(8192), None));
        assert_eq!(sizes("m"), (None, None));
    }
}

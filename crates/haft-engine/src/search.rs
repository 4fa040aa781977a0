//! Finds tools by words: the index that a model, a person or a program searches when there are too many to show.
//!
//! The ranking is lexical. It was chosen by measurement over 12,000 real tools: BM25 over weighted fields, where a query
//! term also matches joined words (`configmap` for `config_map`), prefixes and a few synonyms at a discount, multiplied by
//! how much of the query a tool covers. A tool that the query names goes first.

mod synonyms;
mod words;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use haft_core::tool::ToolDefinition;
use serde_json::Value;

use self::synonyms::synonyms;
use self::words::{joined_neighbours, words};

/// The longest part of a query that counts, in bytes. Longer texts are documents, not queries.
pub const QUERY_BYTES_MAX: usize = 4_096;
/// The number of different terms of a query that count.
pub const QUERY_TERMS_MAX: usize = 64;
/// The depth of nested properties in a schema whose names and texts are indexed.
const SCHEMA_DEPTH_MAX: usize = 4;
/// The number of words of one field that are indexed; a longer text adds noise and memory.
const FIELD_WORDS_MAX: usize = 200;

/// How fast repetitions of a term stop counting.
const K1: f32 = 1.4;
const JOINED_FACTOR: f32 = 0.6;
const PREFIX_FACTOR: f32 = 0.4;
const SYNONYM_FACTOR: f32 = 0.3;
/// The shortest word that counts as a prefix of another one.
const PREFIX_CHARS_MIN: usize = 4;

/// The parts of a definition that are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchField {
    Name,
    Description,
    ParameterNames,
    ParameterTexts,
    Server,
}

impl SearchField {
    const ALL: [Self; 5] =
        [Self::Name, Self::Description, Self::ParameterNames, Self::ParameterTexts, Self::Server];

    fn weight(self) -> f32 {
        match self {
            Self::Name => 4.0,
            Self::Description => 1.0,
            Self::ParameterNames => 0.3,
            Self::ParameterTexts => 0.15,
            Self::Server => 0.5,
        }
    }

    /// Returns how strongly a long field is discounted, from 0 (not at all) to 1.
    fn length_discount(self) -> f32 {
        match self {
            Self::Name | Self::Description => 0.6,
            Self::ParameterNames => 0.9,
            Self::ParameterTexts => 0.7,
            Self::Server => 0.2,
        }
    }
}

/// One tool found by a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchHit {
    /// The position of the tool in the list that the index was built from.
    pub tool: usize,
    /// The score; higher is better. It has no unit and compares only within one search.
    pub score: f32,
}

/// An index over the definitions of tools.
#[derive(Debug, Default)]
pub struct ToolSearchIndex {
    tools: usize,
    /// The tools by their names in lower case.
    whole_names: HashMap<Box<str>, u32>,
    /// The tools by the parts of their names after `__`.
    own_names: HashMap<Box<str>, Vec<u32>>,
    terms: BTreeMap<Box<str>, TermPostings>,
}

/// The tools that contain one term.
#[derive(Debug, Default)]
struct TermPostings {
    exact: Vec<Posting>,
    /// Tools whose name contains two neighbouring words that joined give this term.
    joined: Vec<Posting>,
}

#[derive(Debug, Clone, Copy)]
struct Posting {
    tool: u32,
    /// How often the term occurs, weighted by field and field length.
    frequency: f32,
}

impl ToolSearchIndex {
    /// Builds the index. Names are the exposed ones: the words before `__` count as the server.
    pub fn new<'a>(tools: impl IntoIterator<Item = &'a ToolDefinition>) -> Self {
        let documents: Vec<SearchDocument> = tools.into_iter().map(SearchDocument::new).collect();
        let averages = SearchField::ALL.map(|field| average_length(&documents, field));
        let mut index = Self::default();
        for (tool, document) in documents.into_iter().enumerate() {
            let Ok(tool) = u32::try_from(tool) else { break };
            index.add(tool, &document, &averages);
            index.add_name(tool, document.name);
        }
        index
    }

    /// Returns the number of tools.
    pub fn len(&self) -> usize {
        self.tools
    }

    /// Returns true if there is no tool.
    pub fn is_empty(&self) -> bool {
        self.tools == 0
    }

    /// Returns the best tools for the query, best first, at most `limit`. A query without a word that occurs gives none.
    pub fn search(&self, query: &str, limit: usize) -> Vec<SearchHit> {
        let query = shortened(query);
        let mut scores = self.scores(&query_terms(query));
        self.put_named_first(query, &mut scores);
        let mut hits: Vec<SearchHit> =
            scores.into_iter().map(|(tool, score)| SearchHit { tool: tool as usize, score }).collect();
        // Equal scores keep the order of the list, so that an answer does not depend on a hash.
        hits.sort_by(|one, other| other.score.total_cmp(&one.score).then(one.tool.cmp(&other.tool)));
        hits.truncate(limit);
        hits
    }

    fn add(&mut self, tool: u32, document: &SearchDocument, averages: &[f32; 5]) {
        let mut frequencies: HashMap<&str, f32> = HashMap::new();
        for (field, average) in SearchField::ALL.into_iter().zip(averages) {
            let words = document.field(field);
            let length = length_of(words) / average.max(1.0);
            let discount = field.length_discount();
            let one = field.weight() / (1.0 - discount + discount * length);
            for word in words {
                *frequencies.entry(word).or_default() += one;
            }
        }
        for (word, frequency) in frequencies {
            self.postings(word).exact.push(Posting { tool, frequency });
        }
        let joined: BTreeSet<String> = joined_neighbours(&document.name_words).collect();
        for word in joined {
            let frequency = SearchField::Name.weight();
            self.postings(&word).joined.push(Posting { tool, frequency });
        }
    }

    fn add_name(&mut self, tool: u32, name: Box<str>) {
        let own = name.rsplit_once("__").map_or(&*name, |(_, own)| own);
        self.own_names.entry(own.into()).or_default().push(tool);
        self.whole_names.insert(name, tool);
        self.tools += 1;
    }

    fn postings(&mut self, word: &str) -> &mut TermPostings {
        if !self.terms.contains_key(word) {
            self.terms.insert(word.into(), TermPostings::default());
        }
        self.terms.entry(word.into()).or_default()
    }

    fn scores(&self, terms: &[String]) -> HashMap<u32, f32> {
        let mut sums: HashMap<u32, TermSum> = HashMap::new();
        let mut all_weights = 0.0;
        for (at, term) in terms.iter().enumerate() {
            let weight = self.rarity(self.terms.get(term.as_str()).map_or(0, |found| found.exact.len()));
            all_weights += weight;
            let next = terms.get(at + 1).map(|next| format!("{term}{next}"));
            let before = at.checked_sub(1).map(|before| format!("{}{term}", terms[before]));
            for (tool, score) in self.matches(term, next.into_iter().chain(before)) {
                let sum = sums.entry(tool).or_default();
                sum.score += score;
                sum.covered += weight;
            }
        }
        let total = |sum: TermSum| {
            let coverage = if all_weights > 0.0 { sum.covered / all_weights } else { 0.0 };
            sum.score * (1.0 + coverage * coverage)
        };
        sums.into_iter().map(|(tool, sum)| (tool, total(sum))).collect()
    }

    /// Returns the best match of one query term with each tool.
    fn matches(&self, term: &str, joined: impl Iterator<Item = String>) -> HashMap<u32, f32> {
        let mut best: HashMap<u32, f32> = HashMap::new();
        let mut keep = |postings: &[Posting], factor: f32| {
            let rarity = self.rarity(postings.len()) * factor;
            for posting in postings {
                let score = rarity * posting.frequency * (K1 + 1.0) / (posting.frequency + K1);
                let kept = best.entry(posting.tool).or_default();
                *kept = kept.max(score);
            }
        };
        if let Some(found) = self.terms.get(term) {
            keep(&found.exact, 1.0);
            keep(&found.joined, JOINED_FACTOR);
        }
        for word in joined {
            if let Some(found) = self.terms.get(word.as_str()) {
                keep(&found.exact, JOINED_FACTOR);
            }
        }
        for found in self.prefix_relatives(term) {
            keep(&found.exact, PREFIX_FACTOR);
        }
        for synonym in synonyms(term) {
            if let Some(found) = self.terms.get(synonym) {
                keep(&found.exact, SYNONYM_FACTOR);
            }
        }
        best
    }

    /// Returns the terms that begin with this one, and those that this one begins with.
    fn prefix_relatives<'a>(&'a self, term: &'a str) -> impl Iterator<Item = &'a TermPostings> {
        let is_long = term.chars().count() >= PREFIX_CHARS_MIN;
        let longer = is_long.then(|| {
            let after = self.terms.range::<str, _>((Bound::Excluded(term), Bound::Unbounded));
            after.take_while(move |(word, _)| word.starts_with(term)).map(|(_, found)| found)
        });
        let shorter = term.char_indices().map(|(at, _)| at).skip(PREFIX_CHARS_MIN);
        let shorter = shorter.filter_map(|end| self.terms.get(&term[..end]));
        longer.into_iter().flatten().chain(shorter)
    }

    /// Returns the weight of a term that occurs in this many tools: the inverse document frequency of BM25.
    fn rarity(&self, tools: usize) -> f32 {
        let (all, tools) = (count(self.tools), count(tools));
        (1.0 + (all - tools + 0.5) / (tools + 0.5)).ln()
    }

    /// Raises the tools that the query names, whole or by the part after `__`, above all others.
    fn put_named_first(&self, query: &str, scores: &mut HashMap<u32, f32>) {
        let is_outside = |c: char| !(c.is_alphanumeric() || c == '_' || c == '-' || c == '.');
        let named: BTreeSet<String> =
            query.split(is_outside).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
        let top = scores.values().copied().fold(0.0, f32::max);
        for word in &named {
            for tool in self.own_names.get(word.as_str()).into_iter().flatten() {
                *scores.entry(*tool).or_default() += top + 1.0;
            }
            if let Some(tool) = self.whole_names.get(word.as_str()) {
                *scores.entry(*tool).or_default() += 2.0 * (top + 1.0);
            }
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct TermSum {
    score: f32,
    /// The weights of the query terms that the tool matches.
    covered: f32,
}

/// The words of one definition, by field.
#[derive(Debug)]
struct SearchDocument {
    name: Box<str>,
    name_words: Vec<String>,
    description: Vec<String>,
    parameter_names: Vec<String>,
    parameter_texts: Vec<String>,
    server: Vec<String>,
}

impl SearchDocument {
    fn new(tool: &ToolDefinition) -> Self {
        let name = tool.name.as_str();
        let (server, own) = name.rsplit_once("__").unwrap_or(("", name));
        let (mut parameter_names, mut parameter_texts) = (Vec::new(), Vec::new());
        parameters(&tool.input_schema, SCHEMA_DEPTH_MAX, &mut parameter_names, &mut parameter_texts);
        parameter_names.truncate(FIELD_WORDS_MAX);
        parameter_texts.truncate(FIELD_WORDS_MAX);
        Self {
            name: name.to_lowercase().into(),
            name_words: words(own).take(FIELD_WORDS_MAX).collect(),
            description: words(&tool.description).take(FIELD_WORDS_MAX).collect(),
            parameter_names,
            parameter_texts,
            server: words(server).take(FIELD_WORDS_MAX).collect(),
        }
    }

    fn field(&self, field: SearchField) -> &[String] {
        match field {
            SearchField::Name => &self.name_words,
            SearchField::Description => &self.description,
            SearchField::ParameterNames => &self.parameter_names,
            SearchField::ParameterTexts => &self.parameter_texts,
            SearchField::Server => &self.server,
        }
    }
}

/// Collects the words of property names and descriptions, also of nested objects and items.
fn parameters(schema: &Value, depth: usize, names: &mut Vec<String>, texts: &mut Vec<String>) {
    if depth == 0 || names.len() >= FIELD_WORDS_MAX {
        return;
    }
    if let Some(Value::Object(properties)) = schema.get("properties") {
        for (name, property) in properties {
            names.extend(words(name));
            if let Some(Value::String(text)) = property.get("description") {
                texts.extend(words(text).take(FIELD_WORDS_MAX));
            }
            parameters(property, depth - 1, names, texts);
        }
    }
    if let Some(items) = schema.get("items") {
        parameters(items, depth - 1, names, texts);
    }
}

/// Returns the different terms of a query in their order.
fn query_terms(query: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    words(query).filter(|word| seen.insert(word.clone())).take(QUERY_TERMS_MAX).collect()
}

fn shortened(query: &str) -> &str {
    if query.len() <= QUERY_BYTES_MAX {
        return query;
    }
    let end = (0..=QUERY_BYTES_MAX).rev().find(|end| query.is_char_boundary(*end)).unwrap_or(0);
    &query[..end]
}

fn average_length(documents: &[SearchDocument], field: SearchField) -> f32 {
    let sum: f32 = documents.iter().map(|document| length_of(document.field(field))).sum();
    sum / count(documents.len().max(1))
}

fn length_of(words: &[String]) -> f32 {
    count(words.len())
}

#[expect(clippy::cast_precision_loss, reason = "counts of tools and words are far below 2^24")]
fn count(number: usize) -> f32 {
    number as f32
}

#[cfg(test)]
mod tests;

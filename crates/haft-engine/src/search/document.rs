//! The terms of one definition in the form that an index stores.

use haft_core::tool::ToolDefinition;
use serde_json::Value;

use super::vocabulary::{TermId, TermTable};

/// The maximum depth of nested schema properties whose names and texts are indexed.
const SCHEMA_DEPTH_MAX: usize = 4;
/// The maximum number of terms that are indexed per field. A longer text would add noise and use memory.
const FIELD_TERMS_MAX: usize = 200;

/// The parts of a definition that are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchField {
    Name,
    Description,
    ParameterNames,
    ParameterTexts,
    Server,
}

/// The number of searched fields.
pub(super) const FIELDS: usize = 5;

impl SearchField {
    pub(super) const ALL: [Self; FIELDS] =
        [Self::Name, Self::Description, Self::ParameterNames, Self::ParameterTexts, Self::Server];

    pub(super) fn weight(self) -> f32 {
        match self {
            Self::Name => 4.0,
            Self::Description => 1.0,
            Self::ParameterNames => 0.3,
            Self::ParameterTexts => 0.15,
            Self::Server => 0.5,
        }
    }

    /// Returns how strongly the length of a field reduces its weight, from 0 (not at all) to 1.
    pub(super) fn length_discount(self) -> f32 {
        match self {
            Self::Name | Self::Description => 0.6,
            Self::ParameterNames => 0.9,
            Self::ParameterTexts => 0.7,
            Self::Server => 0.2,
        }
    }
}

/// A tool to index. Its name is the exposed name, in which the words before `__` are the server name.
#[derive(Debug, Clone, Copy)]
pub struct SearchedTool<'a> {
    /// The exposed name.
    pub name: &'a str,
    /// The description for the model.
    pub description: &'a str,
    /// The schema of the arguments.
    pub schema: &'a Value,
}

impl<'a> From<&'a ToolDefinition> for SearchedTool<'a> {
    fn from(tool: &'a ToolDefinition) -> Self {
        Self { name: tool.name.as_str(), description: &tool.description, schema: &tool.input_schema }
    }
}

impl SearchedTool<'_> {
    /// Returns the address of the definition. As long as both lists are alive, two tools have the same address only if
    /// they are the same tool.
    pub(super) fn address(&self) -> (usize, usize) {
        (self.description.as_ptr() as usize, std::ptr::from_ref(self.schema) as usize)
    }
}

/// The terms of one tool definition.
#[derive(Debug)]
pub(super) struct SearchDocument {
    /// The exposed name in lower case.
    pub(super) name: Box<str>,
    pub(super) address: (usize, usize),
    /// Each distinct term, with its number of occurrences by field.
    pub(super) terms: Box<[TermCount]>,
    /// The number of terms in each field.
    pub(super) lengths: [u16; FIELDS],
    /// The terms formed from two neighbouring words of the name: `config_map` gives `configmap`.
    pub(super) joined: Box<[TermId]>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct TermCount {
    pub(super) term: TermId,
    pub(super) counts: [u8; FIELDS],
}

/// Converts definitions into documents. It reuses the same buffers for all documents.
#[derive(Debug)]
pub(super) struct DocumentReader<'a> {
    vocabulary: &'a mut TermTable,
    /// The index of each term in `counts`. An entry is valid only if the count at that index belongs to the same term,
    /// so the list need not be cleared between documents.
    positions: Vec<u32>,
    counts: Vec<TermCount>,
    lengths: [usize; FIELDS],
    name: Vec<TermId>,
}

impl<'a> DocumentReader<'a> {
    pub(super) fn new(vocabulary: &'a mut TermTable) -> Self {
        Self { vocabulary, positions: Vec::new(), counts: Vec::new(), lengths: [0; FIELDS], name: Vec::new() }
    }

    pub(super) fn read(&mut self, tool: &SearchedTool<'_>) -> SearchDocument {
        self.counts.clear();
        self.lengths = [0; FIELDS];
        let (server, own) = tool.name.rsplit_once("__").unwrap_or(("", tool.name));
        let joined = self.read_name(without_digest(own));
        self.add(tool.description, SearchField::Description);
        self.add_parameters(tool.schema, SCHEMA_DEPTH_MAX);
        self.add(server, SearchField::Server);
        SearchDocument {
            name: tool.name.to_lowercase().into(),
            address: tool.address(),
            terms: self.counts.as_slice().into(),
            lengths: self.lengths.map(|length| u16::try_from(length).unwrap_or(u16::MAX)),
            joined,
        }
    }

    /// Adds the name, and returns the terms formed from two neighbouring words of the name.
    fn read_name(&mut self, own: &str) -> Box<[TermId]> {
        self.add(own, SearchField::Name);
        self.name.clear();
        let Self { vocabulary, name, .. } = self;
        vocabulary.each_term(own, FIELD_TERMS_MAX, |term| name.push(term));
        let mut joined: Vec<TermId> =
            name.windows(2).map(|pair| vocabulary.intern_joined(pair[0], pair[1])).collect();
        joined.sort_unstable();
        joined.dedup();
        joined.into()
    }

    fn add(&mut self, text: &str, field: SearchField) {
        let Self { vocabulary, positions, counts, lengths, .. } = self;
        let length = &mut lengths[field as usize];
        let left = FIELD_TERMS_MAX.saturating_sub(*length);
        *length += vocabulary.each_term(text, left, |term| count(positions, counts, term, field));
    }

    /// Adds the names and descriptions of properties, including those of nested objects and items.
    fn add_parameters(&mut self, schema: &Value, depth: usize) {
        if depth == 0 || self.lengths[SearchField::ParameterNames as usize] >= FIELD_TERMS_MAX {
            return;
        }
        if let Some(Value::Object(properties)) = schema.get("properties") {
            for (name, property) in properties {
                self.add(name, SearchField::ParameterNames);
                if let Some(Value::String(text)) = property.get("description") {
                    self.add(text, SearchField::ParameterTexts);
                }
                self.add_parameters(property, depth - 1);
            }
        }
        if let Some(items) = schema.get("items") {
            self.add_parameters(items, depth - 1);
        }
    }
}

/// The minimum length of a name that may end with a digest, in characters.
const SHORTENED_CHARS_MIN: usize = 40;

/// Returns a name without the digest that replaces the end of a long name. A digest consists of letters and digits and
/// contains no words.
fn without_digest(own: &str) -> &str {
    let is_digest = |end: &str| {
        end.len() == 8 && end.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    match own.rsplit_once('_') {
        Some((beginning, end)) if own.len() >= SHORTENED_CHARS_MIN && is_digest(end) => beginning,
        Some(_) | None => own,
    }
}

/// Counts one occurrence of a term.
fn count(positions: &mut Vec<u32>, counts: &mut Vec<TermCount>, term: TermId, field: SearchField) {
    let index = term as usize;
    if index >= positions.len() {
        positions.resize(index + 1, 0);
    }
    let known = counts.get_mut(positions[index] as usize).filter(|known| known.term == term);
    if let Some(known) = known {
        known.counts[field as usize] = known.counts[field as usize].saturating_add(1);
        return;
    }
    positions[index] = u32::try_from(counts.len()).unwrap_or(u32::MAX);
    let mut first = [0; FIELDS];
    first[field as usize] = 1;
    counts.push(TermCount { term, counts: first });
}

//! The terms of one definition, as an index keeps them.

use haft_core::tool::ToolDefinition;
use serde_json::Value;

use super::vocabulary::{TermId, TermTable};

/// The depth of nested properties in a schema whose names and texts are indexed.
const SCHEMA_DEPTH_MAX: usize = 4;
/// The number of terms of one field that are indexed; a longer text adds noise and memory.
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

/// The number of fields.
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

    /// Returns how strongly a long field is discounted, from 0 (not at all) to 1.
    pub(super) fn length_discount(self) -> f32 {
        match self {
            Self::Name | Self::Description => 0.6,
            Self::ParameterNames => 0.9,
            Self::ParameterTexts => 0.7,
            Self::Server => 0.2,
        }
    }
}

/// A tool to index. Its name is the exposed one: the words before `__` count as the server.
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
    /// Returns the address of the definition. Two tools of lists that are both alive have the same address only if they
    /// are the same tool.
    pub(super) fn address(&self) -> (usize, usize) {
        (self.description.as_ptr() as usize, std::ptr::from_ref(self.schema) as usize)
    }
}

/// The terms of one definition.
#[derive(Debug)]
pub(super) struct SearchDocument {
    /// The exposed name in lower case.
    pub(super) name: Box<str>,
    pub(super) address: (usize, usize),
    /// Each term once, with the number of its occurrences by field.
    pub(super) terms: Box<[TermCount]>,
    /// The number of terms by field.
    pub(super) lengths: [u16; FIELDS],
    /// Terms made of two neighbouring words of the name: `config_map` gives `configmap`.
    pub(super) joined: Box<[TermId]>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct TermCount {
    pub(super) term: TermId,
    pub(super) counts: [u8; FIELDS],
}

impl SearchDocument {
    pub(super) fn new(tool: &SearchedTool<'_>, vocabulary: &mut TermTable) -> Self {
        let (server, own) = tool.name.rsplit_once("__").unwrap_or(("", tool.name));
        let mut fields: [Vec<TermId>; FIELDS] = Default::default();
        let [name, description, parameter_names, parameter_texts, of_server] = &mut fields;
        vocabulary.add_text(own, FIELD_TERMS_MAX, name);
        vocabulary.add_text(tool.description, FIELD_TERMS_MAX, description);
        add_parameters(tool.schema, SCHEMA_DEPTH_MAX, vocabulary, (parameter_names, parameter_texts));
        vocabulary.add_text(server, FIELD_TERMS_MAX, of_server);
        let joined = joined_neighbours(&fields[0], vocabulary);
        let lengths = fields.each_ref().map(|terms| u16::try_from(terms.len()).unwrap_or(u16::MAX));
        Self {
            name: tool.name.to_lowercase().into(),
            address: tool.address(),
            terms: counted(&fields),
            lengths,
            joined,
        }
    }
}

fn counted(fields: &[Vec<TermId>; FIELDS]) -> Box<[TermCount]> {
    let all =
        fields.iter().enumerate().flat_map(|(field, terms)| terms.iter().map(move |term| (*term, field)));
    let mut all: Vec<(TermId, usize)> = all.collect();
    all.sort_unstable();
    let mut counted: Vec<TermCount> = Vec::with_capacity(all.len());
    for (term, field) in all {
        match counted.last_mut() {
            Some(last) if last.term == term => last.counts[field] = last.counts[field].saturating_add(1),
            _ => {
                let mut counts = [0; FIELDS];
                counts[field] = 1;
                counted.push(TermCount { term, counts });
            }
        }
    }
    counted.into()
}

fn joined_neighbours(name: &[TermId], vocabulary: &mut TermTable) -> Box<[TermId]> {
    let pair = |pair: &[TermId], vocabulary: &TermTable| {
        format!("{}{}", vocabulary.term(pair[0]), vocabulary.term(pair[1]))
    };
    let texts: Vec<String> = name.windows(2).map(|two| pair(two, vocabulary)).collect();
    let mut joined: Vec<TermId> = texts.iter().map(|text| vocabulary.intern(text)).collect();
    joined.sort_unstable();
    joined.dedup();
    joined.into()
}

/// Collects the terms of property names and descriptions, also of nested objects and items.
fn add_parameters(
    schema: &Value,
    depth: usize,
    vocabulary: &mut TermTable,
    (names, texts): (&mut Vec<TermId>, &mut Vec<TermId>),
) {
    let left = |terms: &Vec<TermId>| FIELD_TERMS_MAX.saturating_sub(terms.len());
    if depth == 0 || left(names) == 0 {
        return;
    }
    if let Some(Value::Object(properties)) = schema.get("properties") {
        for (name, property) in properties {
            vocabulary.add_text(name, left(names), names);
            if let Some(Value::String(text)) = property.get("description") {
                vocabulary.add_text(text, left(texts), texts);
            }
            add_parameters(property, depth - 1, vocabulary, (&mut *names, &mut *texts));
        }
    }
    if let Some(items) = schema.get("items") {
        add_parameters(items, depth - 1, vocabulary, (names, texts));
    }
}

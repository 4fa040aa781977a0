//! The numbered terms of an index, and the words that led to them.
//!
//! Stemming takes most of the time of building an index, and tools repeat their words: each word is stemmed once.

use std::collections::HashMap;

use super::words::{is_stop_word, split, stem};

/// The number of a term.
pub(super) type TermId = u32;

/// The terms of an index. It only grows, so numbers stay valid when the list of tools changes.
#[derive(Debug, Default, Clone)]
pub(super) struct TermTable {
    terms: Vec<Box<str>>,
    ids: HashMap<Box<str>, TermId>,
    /// The term of each word that was seen; `None` for a stop word.
    words: HashMap<Box<str>, Option<TermId>>,
}

impl TermTable {
    /// Appends the terms of a text, at most `terms_max`.
    pub(super) fn add_text(&mut self, text: &str, terms_max: usize, terms: &mut Vec<TermId>) {
        let end = terms.len() + terms_max;
        split(text, |word| {
            if terms.len() < end {
                terms.extend(self.term_of_word(word));
            }
        });
    }

    /// Returns the number of a term, which must already be a stem.
    pub(super) fn intern(&mut self, term: &str) -> TermId {
        if let Some(id) = self.ids.get(term) {
            return *id;
        }
        let id = TermId::try_from(self.terms.len()).unwrap_or(TermId::MAX);
        self.terms.push(term.into());
        self.ids.insert(term.into(), id);
        id
    }

    pub(super) fn id(&self, term: &str) -> Option<TermId> {
        self.ids.get(term).copied()
    }

    pub(super) fn term(&self, id: TermId) -> &str {
        &self.terms[id as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.terms.len()
    }

    fn term_of_word(&mut self, word: &str) -> Option<TermId> {
        if let Some(known) = self.words.get(word) {
            return *known;
        }
        let term = (!is_stop_word(word)).then(|| self.intern(&stem(word)));
        self.words.insert(word.into(), term);
        term
    }
}

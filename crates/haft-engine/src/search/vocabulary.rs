//! The numbered terms of an index, and the words from which they were derived.
//!
//! Stemming takes most of the time to build an index, and tools share many words, so each word is stemmed only once.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::words::{is_stop_word, split, stem};

/// The number that identifies a term in the index.
pub(super) type TermId = u32;

/// The number of bytes of a text that are read for each allowed term. It includes stop words and separators.
const TERM_BYTES: usize = 24;

/// The terms of an index. The table only grows, so numbers stay valid when the tool list changes. An index looks up
/// every word of every definition, and this hash function takes a third of the time of the standard one. Its seed
/// differs between processes, so that a server cannot easily choose words that collide.
#[derive(Debug, Default, Clone)]
pub(super) struct TermTable {
    terms: Vec<Box<str>>,
    ids: HashMap<Box<str>, TermId, RandomState>,
    /// The term for each word seen so far; `None` for a stop word.
    words: HashMap<Box<str>, Option<TermId>, RandomState>,
    /// A reused buffer for joined terms.
    joined: String,
}

impl TermTable {
    /// Calls `each` for at most `terms_max` terms of a text, and returns the number of terms.
    pub(super) fn each_term(&mut self, text: &str, terms_max: usize, mut each: impl FnMut(TermId)) -> usize {
        let mut left = terms_max;
        let read = &text[..text.floor_char_boundary(terms_max.saturating_mul(TERM_BYTES))];
        split(read, |word| {
            if left > 0
                && let Some(term) = self.term_of_word(word)
            {
                left -= 1;
                each(term);
            }
        });
        terms_max - left
    }

    /// Returns the number of a term and adds the term if it is new. The term must already be a stem.
    pub(super) fn intern(&mut self, term: &str) -> TermId {
        if let Some(id) = self.ids.get(term) {
            return *id;
        }
        let id = TermId::try_from(self.terms.len()).unwrap_or(TermId::MAX);
        self.terms.push(term.into());
        self.ids.insert(term.into(), id);
        id
    }

    /// Returns the number of the term that results from joining two terms.
    pub(super) fn intern_joined(&mut self, first: TermId, second: TermId) -> TermId {
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        joined.push_str(self.term(first));
        joined.push_str(self.term(second));
        let id = self.intern(&joined);
        self.joined = joined;
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

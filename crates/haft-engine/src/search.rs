//! Finds tools by words. A model, a person or a program searches this index when there are too many tools to show.
//!
//! The ranking is lexical and was chosen by measurements with 12,000 real tools. The score is BM25 over weighted
//! fields, multiplied by a factor that grows with the share of the query that a tool matches, and divided by a factor
//! that grows with the length of its name. A query term also matches joined words (`configmap` for `config_map`),
//! prefixes and a few synonyms, with a lower weight. Synonyms in one query, such as `get` and `list`, are treated as
//! one term. A tool whose name is in the query comes first.

pub(crate) mod answer;
mod document;
mod postings;
mod synonyms;
mod vocabulary;
mod words;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

pub use self::document::SearchedTool;
use self::document::{DocumentReader, FIELDS, SearchDocument, SearchField};
use self::postings::{Posting, PostingLists};
use self::synonyms::{are_synonyms, synonyms};
use self::vocabulary::{TermId, TermTable};
use self::words::QueryTerm;

/// The maximum length of a query, in bytes; the rest is ignored. Longer texts are documents, not queries.
pub const QUERY_BYTES_MAX: usize = 4_096;
/// The maximum number of different terms in a query; further terms are ignored.
pub const QUERY_TERMS_MAX: usize = 64;

/// The BM25 parameter `k1`: with a smaller value, repetitions of a term add less to the score.
const K1: f32 = 1.4;
const JOINED_FACTOR: f32 = 0.6;
const PREFIX_FACTOR: f32 = 0.4;
const SYNONYM_FACTOR: f32 = 0.3;
/// The weight of query coverage in the score. Coverage is the share of the query that a tool matches.
const COVERAGE_FACTOR: f32 = 2.0;
/// The amount that an average word in a tool's name adds to the divisor of the tool's score.
const NAME_WORD_DISCOUNT: f32 = 0.3;
/// The minimum length of a word that can match as a prefix of another word, in characters.
const PREFIX_CHARS_MIN: usize = 4;

/// One tool found by a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchHit {
    /// The index of the tool in the list from which the search index was built.
    pub tool: usize,
    /// The score; higher is better. It has no unit, and scores are comparable only within one search.
    pub score: f32,
    /// The share of the query that the tool matches, from 0 to 1. Rare words have a higher weight. The share is 1 for a
    /// tool whose name is in the query.
    pub coverage: f32,
}

/// A search index over tool definitions.
#[derive(Debug, Default)]
pub struct ToolSearchIndex {
    vocabulary: Arc<TermTable>,
    documents: Vec<Arc<SearchDocument>>,
    /// The tools, sorted by name.
    by_name: Vec<u32>,
    /// The tools, sorted by the part of their name after `__`, which is the name on their server.
    by_own_name: Vec<u32>,
    exact: PostingLists,
    /// For each term, the tools whose name contains two neighbouring words that form this term when joined.
    joined: PostingLists,
    /// All terms, in alphabetical order.
    sorted: Vec<TermId>,
    /// The divisor of each tool's score, which depends on the length of its name.
    discounts: Vec<f32>,
}

impl ToolSearchIndex {
    /// Builds the search index of these tools.
    pub fn new<'a, T: Into<SearchedTool<'a>>>(tools: impl IntoIterator<Item = T>) -> Self {
        Self::default().renewed(tools)
    }

    /// Builds the index of a changed list. Tools that are in both lists, at the same address, are not read again, so
    /// the caller must keep the old list alive until this returns.
    #[must_use]
    pub fn renewed<'a, T: Into<SearchedTool<'a>>>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        let known: HashMap<(usize, usize), Arc<SearchDocument>> =
            self.documents.drain(..).map(|document| (document.address, document)).collect();
        let vocabulary = Arc::make_mut(&mut self.vocabulary);
        let mut reader = DocumentReader::new(vocabulary);
        let document = |tool: SearchedTool<'_>| match known.get(&tool.address()) {
            Some(document) if document.name.eq_ignore_ascii_case(tool.name) => Arc::clone(document),
            Some(_) | None => Arc::new(reader.read(&tool)),
        };
        self.documents = tools.into_iter().map(Into::into).map(document).collect();
        self.rebuild();
        self
    }

    /// Returns the number of tools in the index.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Returns true if the index contains no tools.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Returns at most `limit` tools for the query, best first. Returns none if no word of the query occurs in a tool.
    pub fn search(&self, query: &str, limit: usize) -> Vec<SearchHit> {
        self.search_where(query, limit, |_| true)
    }

    /// Works like [`search`](Self::search), but only among the tools for which `keep` returns true.
    pub fn search_where(&self, query: &str, limit: usize, keep: impl Fn(usize) -> bool) -> Vec<SearchHit> {
        let query = shortened(query);
        let mut hits = self.scores(&query_terms(query));
        self.put_named_first(query, &mut hits);
        // Tools with equal scores keep the order of the list, so that the result does not depend on a hash.
        hits.sort_unstable_by(|one, other| other.score.total_cmp(&one.score).then(one.tool.cmp(&other.tool)));
        hits.into_iter().filter(|hit| keep(hit.tool)).take(limit).collect()
    }

    /// Returns the index of the tool with this exact name, ignoring case.
    pub fn named(&self, name: &str) -> Option<usize> {
        self.named_in_lower_case(&name.to_lowercase())
    }

    fn named_in_lower_case(&self, name: &str) -> Option<usize> {
        let found = self.by_name.binary_search_by(|tool| (*self.documents[*tool as usize].name).cmp(name));
        found.ok().map(|at| self.by_name[at] as usize)
    }

    fn rebuild(&mut self) {
        let documents = &self.documents;
        let all = 0..position(documents.len());
        (self.by_name, self.by_own_name) = (all.clone().collect(), all.collect());
        let name = |tool: &u32| &*documents[*tool as usize].name;
        self.by_name.sort_unstable_by(|one, other| name(one).cmp(name(other)));
        self.by_own_name.sort_unstable_by_key(|tool| (own_name(name(tool)), *tool));
        let terms = self.vocabulary.len();
        let averages = SearchField::ALL.map(|field| average_length(documents, field));
        let numbered = || documents.iter().enumerate().map(|(tool, document)| (position(tool), document));
        let exact = numbered().flat_map(|(tool, document)| {
            weighted(document, &averages).map(move |(term, frequency)| (term, Posting { tool, frequency }))
        });
        let joined = numbered().flat_map(|(tool, document)| {
            let posting = Posting { tool, frequency: SearchField::Name.weight() };
            document.joined.iter().map(move |term| (*term, posting))
        });
        let all_terms = documents.iter().flat_map(|document| document.terms.iter().map(|term| term.term));
        let all_joined = documents.iter().flat_map(|document| document.joined.iter().copied());
        let exact = PostingLists::new(terms, all_terms, exact);
        let joined = PostingLists::new(terms, all_joined, joined);
        let mut sorted: Vec<TermId> =
            (0..position(terms)).filter(|term| !exact.of(*term).is_empty()).collect();
        sorted.sort_unstable_by(|one, other| self.vocabulary.term(*one).cmp(self.vocabulary.term(*other)));
        (self.exact, self.joined, self.sorted) = (exact, joined, sorted);
        self.discounts = self.name_discounts();
    }

    /// Returns the divisor for the length of each tool's name. A tool with a long name is usually a special case of a
    /// tool with a shorter name, such as `create-deployment-status` and `create-deployment`, and a query usually means
    /// the general case. A word that many tools have, such as an API version, makes a name longer but not more special,
    /// so it has less weight.
    fn name_discounts(&self) -> Vec<f32> {
        let special = |document: &Arc<SearchDocument>| -> f32 {
            let terms = document.terms.iter().filter(|term| term.counts[SearchField::Name as usize] > 0);
            terms.map(|term| self.rarity(self.exact.of(term.term).len())).sum()
        };
        let sums: Vec<f32> = self.documents.iter().map(special).collect();
        let words: f32 = average_length(&self.documents, SearchField::Name);
        let average = sums.iter().sum::<f32>() / count(sums.len().max(1));
        let discount = |sum: f32| 1.0 + NAME_WORD_DISCOUNT * words * sum / average.max(f32::MIN_POSITIVE);
        sums.into_iter().map(discount).collect()
    }

    /// Returns the tools whose name without the server equals `own`, which must be in lower case.
    fn with_own_name(&self, own: &str) -> &[u32] {
        let name = |tool: &u32| own_name(&self.documents[*tool as usize].name);
        let from = self.by_own_name.partition_point(|tool| name(tool) < own);
        let found = self.by_own_name[from..].partition_point(|tool| name(tool) == own);
        &self.by_own_name[from..from + found]
    }

    fn scores(&self, terms: &[QueryTerm]) -> Vec<SearchHit> {
        let mut sums = vec![TermSum::default(); self.documents.len()];
        let mut best = vec![TermMatch::default(); self.documents.len()];
        let mut touched: Vec<u32> = Vec::new();
        let mut all_weights = 0.0;
        for concept in concepts(terms) {
            let mut weight: f32 = 0.0;
            for at in concept {
                weight = weight.max(self.term_weight(&terms[at].term));
                self.matches(&terms[at].term, joined_terms(terms, at), &mut best, &mut touched);
            }
            all_weights += weight;
            for tool in touched.drain(..) {
                let found = std::mem::take(&mut best[tool as usize]);
                let sum = &mut sums[tool as usize];
                sum.score += found.score;
                sum.covered += weight;
                sum.covered_exactly += weight * found.factor;
            }
        }
        let hit = |(tool, sum): (usize, &TermSum)| {
            let share = |covered: f32| if all_weights > 0.0 { covered / all_weights } else { 0.0 };
            let coverage = 1.0 + COVERAGE_FACTOR * share(sum.covered_exactly);
            SearchHit {
                tool,
                score: sum.score * coverage / self.discounts[tool],
                coverage: share(sum.covered),
            }
        };
        sums.iter().enumerate().filter(|(_, sum)| sum.score > 0.0).map(hit).collect()
    }

    fn term_weight(&self, term: &str) -> f32 {
        self.rarity(self.vocabulary.id(term).map_or(0, |id| self.exact.of(id).len()))
    }

    /// Finds the best match of one query term in each tool, and lists the tools that have a match.
    fn matches(
        &self,
        term: &str,
        joined: impl Iterator<Item = String>,
        best: &mut [TermMatch],
        touched: &mut Vec<u32>,
    ) {
        let mut keep = |postings: &[Posting], factor: f32| {
            let rarity = self.rarity(postings.len()) * factor;
            for posting in postings {
                let score = rarity * posting.frequency * (K1 + 1.0) / (posting.frequency + K1);
                let best_match = &mut best[posting.tool as usize];
                if best_match.factor == 0.0 {
                    touched.push(posting.tool);
                }
                if score > best_match.score || best_match.factor == 0.0 {
                    *best_match = TermMatch { score, factor };
                }
            }
        };
        if let Some(id) = self.vocabulary.id(term) {
            keep(self.exact.of(id), 1.0);
            keep(self.joined.of(id), JOINED_FACTOR);
        }
        for id in joined.filter_map(|word| self.vocabulary.id(&word)) {
            keep(self.exact.of(id), JOINED_FACTOR);
        }
        for id in self.prefix_relatives(term) {
            keep(self.exact.of(id), PREFIX_FACTOR);
        }
        for id in synonyms(term).filter_map(|word| self.vocabulary.id(word)) {
            keep(self.exact.of(id), SYNONYM_FACTOR);
        }
    }

    /// Returns the terms of which this term is a prefix, and the terms that are a prefix of this term.
    fn prefix_relatives<'a>(&'a self, term: &'a str) -> impl Iterator<Item = TermId> {
        let is_long = term.chars().count() >= PREFIX_CHARS_MIN;
        let longer = is_long.then(|| {
            let from = self.sorted.partition_point(|id| self.vocabulary.term(*id) <= term);
            self.sorted[from..]
                .iter()
                .copied()
                .take_while(move |id| self.vocabulary.term(*id).starts_with(term))
        });
        let shorter = term.char_indices().map(|(at, _)| at).skip(PREFIX_CHARS_MIN);
        let shorter = shorter.filter_map(|end| self.vocabulary.id(&term[..end]));
        longer.into_iter().flatten().chain(shorter)
    }

    /// Returns the weight of a term that occurs in this many tools: the inverse document frequency of BM25.
    fn rarity(&self, tools: usize) -> f32 {
        let (all, tools) = (count(self.documents.len()), count(tools));
        (1.0 + (all - tools + 0.5) / (tools + 0.5)).ln()
    }

    /// Ranks the tools whose name is in the query above all others. The name may be complete or the part after `__`.
    fn put_named_first(&self, query: &str, hits: &mut Vec<SearchHit>) {
        let is_outside = |c: char| !(c.is_alphanumeric() || c == '_' || c == '-' || c == '.');
        let named: BTreeSet<String> =
            query.split(is_outside).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
        let top = hits.iter().map(|hit| hit.score).fold(0.0, f32::max);
        let mut raise = |tool: usize, by: f32| match hits.iter_mut().find(|hit| hit.tool == tool) {
            Some(hit) => (hit.score, hit.coverage) = (hit.score + by, 1.0),
            None => hits.push(SearchHit { tool, score: by, coverage: 1.0 }),
        };
        for word in &named {
            for tool in self.with_own_name(word) {
                raise(*tool as usize, top + 1.0);
            }
            if let Some(tool) = self.named_in_lower_case(word) {
                raise(tool, 2.0 * (top + 1.0));
            }
        }
    }
}

/// Returns the part of a tool name after the server name.
fn own_name(name: &str) -> &str {
    name.rsplit_once("__").map_or(name, |(_, own)| own)
}

#[derive(Debug, Default, Clone, Copy)]
struct TermSum {
    score: f32,
    /// The sum of the weights of the query terms that the tool matches.
    covered: f32,
    /// Like `covered`, but a query term that matches only as a prefix or by a synonym adds less.
    covered_exactly: f32,
}

/// The best match of one query term with one tool.
#[derive(Debug, Default, Clone, Copy)]
struct TermMatch {
    score: f32,
    /// The closeness of the match: 1 for the same term, 0 for no match.
    factor: f32,
}

/// Returns the frequency of each term in a document, weighted by field and field length.
fn weighted<'a>(
    document: &'a SearchDocument,
    averages: &[f32; FIELDS],
) -> impl Iterator<Item = (TermId, f32)> + use<'a> {
    let mut one = [0.0; FIELDS];
    for (at, field) in SearchField::ALL.into_iter().enumerate() {
        let (length, discount) = (f32::from(document.lengths[at]), field.length_discount());
        one[at] = field.weight() / (1.0 - discount + discount * length / averages[at].max(1.0));
    }
    document.terms.iter().map(move |term| {
        let frequency = term.counts.iter().zip(one).map(|(count, one)| f32::from(*count) * one).sum();
        (term.term, frequency)
    })
}

/// Groups the indexes of terms that are synonyms of each other. A query such as `get a list` asks for one action. If
/// the action were counted twice, it would outweigh the object of the query.
fn concepts(terms: &[QueryTerm]) -> Vec<Vec<usize>> {
    let mut concepts: Vec<Vec<usize>> = Vec::new();
    for (at, QueryTerm { term, .. }) in terms.iter().enumerate() {
        let is_same =
            |concept: &&mut Vec<usize>| concept.iter().any(|other| are_synonyms(&terms[*other].term, term));
        match concepts.iter_mut().find(is_same) {
            Some(concept) => concept.push(at),
            None => concepts.push(vec![at]),
        }
    }
    concepts
}

/// Returns the terms that result from joining a term with its neighbours.
fn joined_terms(terms: &[QueryTerm], at: usize) -> impl Iterator<Item = String> {
    let QueryTerm { term, phrase } = &terms[at];
    let next = terms.get(at + 1).map(|next| format!("{term}{}", next.term));
    let before = at.checked_sub(1).map(|before| format!("{}{term}", terms[before].term));
    next.into_iter().chain(before).chain(phrase.clone())
}

/// Returns the distinct terms of a query, in order.
fn query_terms(query: &str) -> Vec<QueryTerm> {
    let mut seen = BTreeSet::new();
    let all = words::query_terms(query).into_iter();
    all.filter(|term| seen.insert(term.term.clone())).take(QUERY_TERMS_MAX).collect()
}

fn shortened(query: &str) -> &str {
    &query[..query.floor_char_boundary(QUERY_BYTES_MAX)]
}

fn average_length(documents: &[Arc<SearchDocument>], field: SearchField) -> f32 {
    let sum: f32 = documents.iter().map(|document| f32::from(document.lengths[field as usize])).sum();
    sum / count(documents.len().max(1))
}

fn position(tool: usize) -> u32 {
    u32::try_from(tool).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "counts of tools and words are far below 2^24")]
fn count(number: usize) -> f32 {
    number as f32
}

#[cfg(test)]
mod tests;

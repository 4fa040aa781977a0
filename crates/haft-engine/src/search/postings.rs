//! The tools that contain each term. They are stored in two flat lists, because a list per term would need an
//! allocation for each term.

use super::vocabulary::TermId;

/// One tool that contains a term.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Posting {
    pub(super) tool: u32,
    /// The frequency of the term, weighted by field and field length.
    pub(super) frequency: f32,
}

/// For each term, the tools that contain it (the postings of the term).
#[derive(Debug, Default)]
pub(super) struct PostingLists {
    /// The end of each term's postings in the flat list. They start at the end of the previous term's postings.
    ends: Vec<u32>,
    postings: Vec<Posting>,
}

impl PostingLists {
    /// Sorts postings by term. `terms` holds the term of each posting in any order.
    pub(super) fn new(
        terms_len: usize,
        terms: impl Iterator<Item = TermId>,
        all: impl Iterator<Item = (TermId, Posting)>,
    ) -> Self {
        let mut ends = vec![0_u32; terms_len + 1];
        for term in terms {
            ends[term as usize + 1] += 1;
        }
        for at in 1..ends.len() {
            ends[at] += ends[at - 1];
        }
        let mut postings = vec![Posting::default(); ends.last().copied().unwrap_or(0) as usize];
        for (term, posting) in all {
            let next = &mut ends[term as usize];
            postings[*next as usize] = posting;
            *next += 1;
        }
        Self { ends, postings }
    }

    /// Returns the postings of a term, in the order of the tools.
    pub(super) fn of(&self, term: TermId) -> &[Posting] {
        let term = term as usize;
        if term + 1 >= self.ends.len() {
            return &[];
        }
        let begin = term.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.postings[begin as usize..self.ends[term] as usize]
    }
}

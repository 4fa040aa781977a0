//! Computes the distance between two names, fast enough to compare an unknown name with 10,000 tools.

/// A written name, prepared for comparison with many others.
pub(super) struct WrittenName<'a> {
    folded: &'a [u8],
    letters: LetterCounts,
    /// For each byte, the positions at which the written name contains it. `None` if the name is too long for one
    /// machine word.
    positions: Option<Box<[u64; 256]>>,
}

/// The count of each letter in a name. The number of letters that only one of two names has is a lower bound of their
/// edit distance.
#[derive(Debug, Clone)]
pub(super) struct LetterCounts([u8; LETTERS]);

/// The number of counters: letters, digits, `_`, `-`, and one for all other bytes.
const LETTERS: usize = 39;

impl LetterCounts {
    pub(super) fn of(name: &[u8]) -> Self {
        let mut counts = [0_u8; LETTERS];
        for byte in name {
            let slot = match byte {
                b'a'..=b'z' => byte - b'a',
                b'A'..=b'Z' => byte - b'A',
                b'0'..=b'9' => 26 + byte - b'0',
                b'_' => 36,
                b'-' => 37,
                _ => 38,
            };
            let count = &mut counts[usize::from(slot)];
            *count = count.saturating_add(1);
        }
        Self(counts)
    }

    /// Returns a lower bound of the edit distance between two names with these letter counts. A substitution removes
    /// one letter and adds one, and is one edit.
    fn edits_min(&self, other: &Self) -> usize {
        let pairs = || self.0.iter().zip(&other.0);
        let missing: u32 = pairs().map(|(left, right)| u32::from(left.saturating_sub(*right))).sum();
        let extra: u32 = pairs().map(|(left, right)| u32::from(right.saturating_sub(*left))).sum();
        usize::try_from(missing.max(extra)).unwrap_or(usize::MAX)
    }
}

impl<'a> WrittenName<'a> {
    /// Prepares a name for comparison. The name must be in lower case.
    pub(super) fn new(folded: &'a str) -> Self {
        let folded = folded.as_bytes();
        let positions = (folded.len() <= 64).then(|| Box::new(positions(folded)));
        Self { folded, letters: LetterCounts::of(folded), positions }
    }

    /// Returns the similarity to a name in lower case, from 0 to 1, or `None` if it is less than `least`.
    pub(super) fn similarity(&self, name: &[u8], letters: &LetterCounts, least: f64) -> Option<f64> {
        let longer = name.len().max(self.folded.len());
        // These two bounds skip most of 10,000 names without computing a distance.
        let edits_min = name.len().abs_diff(self.folded.len());
        reach(edits_min, longer, least)?;
        reach(self.letters.edits_min(letters), longer, least)?;
        let edits = match &self.positions {
            Some(positions) => edits(positions, self.folded.len(), name),
            // Tool names have at most 64 characters, so one of the two names fits into a machine word.
            None if name.len() <= 64 => edits(&positions(name), name.len(), self.folded),
            None => longer,
        };
        reach(edits, longer, least)
    }
}

/// Converts a number of edits to a similarity, or `None` if the similarity is less than `least`.
fn reach(edits: usize, longer: usize, least: f64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "the lengths of names are small numbers")]
    let similarity = if longer == 0 { 1.0 } else { 1.0 - edits as f64 / longer as f64 };
    (similarity >= least).then_some(similarity)
}

fn positions(name: &[u8]) -> [u64; 256] {
    let mut positions = [0_u64; 256];
    for (at, byte) in name.iter().enumerate() {
        positions[usize::from(*byte)] |= 1 << at;
    }
    positions
}

/// Counts the insertions, deletions, replacements and swaps of neighbours between a pattern of at most 64 bytes and a
/// text. Each machine word holds one column of the usual distance table, as differences between its rows (Hyyrö, "A
/// Bit-Vector Algorithm for Computing Levenshtein and Damerau Edit Distances", 2003).
fn edits(positions: &[u64; 256], pattern_len: usize, text: &[u8]) -> usize {
    if pattern_len == 0 {
        return text.len();
    }
    let last = 1_u64 << (pattern_len - 1);
    let (mut rises, mut falls, mut diagonal, mut before) = (u64::MAX, 0_u64, 0_u64, 0_u64);
    let mut edits = pattern_len;
    for byte in text {
        let equal = positions[usize::from(*byte)];
        let swapped = ((!diagonal & equal) << 1) & before;
        diagonal = ((equal & rises).wrapping_add(rises) ^ rises) | equal | falls | swapped;
        let (right_up, right_down) = (falls | !(diagonal | rises), diagonal & rises);
        edits = edits + usize::from(right_up & last != 0) - usize::from(right_down & last != 0);
        let right_up = (right_up << 1) | 1;
        rises = (right_down << 1) | !(diagonal | right_up);
        falls = right_up & diagonal;
        before = equal;
    }
    edits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn edit_distance_equals_the_reference_implementation(left in "[abc_]{0,12}|[ab]{50,64}", right in "[abc_]{0,12}|[ab]{50,90}") {
            let found = edits(&positions(left.as_bytes()), left.len(), right.as_bytes());
            prop_assert_eq!(found, strsim::osa_distance(&left, &right));
            let (few, many) = (LetterCounts::of(left.as_bytes()), LetterCounts::of(right.as_bytes()));
            prop_assert!(few.edits_min(&many) <= found, "the lower bound is at most the edit distance");
        }
    }

    #[test]
    fn name_below_the_similarity_threshold_has_no_similarity() {
        let check = |written: &str, name: &str, least: f64, expected: Option<f64>| {
            let letters = LetterCounts::of(name.as_bytes());
            let found = WrittenName::new(written).similarity(name.as_bytes(), &letters, least);
            assert_eq!(found, expected, "{written} {name}");
        };
        check("ehco", "echo", 0.6, Some(0.75));
        check("ehco", "echo", 0.8, None);
        check("abc", "xyz", 0.6, None);
        check("", "", 0.6, Some(1.0));
        check(&"x".repeat(80), &"x".repeat(64), 0.6, Some(0.8));
    }
}

//! Logarithmic slots: sorts numbers of any size into a bounded number of slots. The width of a slot is at most 1/128 of
//! the numbers in it.

/// There are 2^7 slots between a number and its double.
const SLOT_BITS: u32 = 7;

/// Returns the slot of a number. Each number below 256 has a slot of its own. Slots have the same order as their
/// numbers.
pub(crate) fn slot_of(number: u64) -> u32 {
    let bits = u64::BITS - number.leading_zeros();
    let shift = bits.saturating_sub(SLOT_BITS + 1);
    // After the shift, the number is at most 2^8 - 1, so the sum is below 2^13.
    let leading = u32::try_from(number >> shift).unwrap_or(u32::MAX);
    (shift << SLOT_BITS) + leading
}

/// Returns the number in the middle of a slot. It differs from every number of the slot by less than 0.4 %.
pub(crate) fn slot_midpoint(slot: u32) -> u64 {
    let shift = (slot >> SLOT_BITS).saturating_sub(1);
    let lowest = u64::from(slot - (shift << SLOT_BITS)) << shift;
    lowest + ((1 << shift) - 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_slots_preserve_order_and_bound_the_relative_error() {
        let around = |power: u32| {
            let number = 1_u64 << power;
            [number.saturating_sub(1), number, number | 1, number | (number >> 1), number | (number >> 8)]
        };
        let mut numbers: Vec<u64> = (0..64).flat_map(around).chain(0..5_000).chain([u64::MAX]).collect();
        numbers.sort_unstable();
        for pair in numbers.windows(2) {
            assert!(slot_of(pair[0]) <= slot_of(pair[1]), "{pair:?}");
        }
        for number in numbers {
            let middle = slot_midpoint(slot_of(number));
            assert_eq!(slot_of(middle), slot_of(number), "{number}");
            assert!(middle.abs_diff(number) <= number / 250, "the slot of {number} has the middle {middle}");
            assert!(number >= 256 || middle == number);
        }
    }
}

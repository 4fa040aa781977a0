//! Formats times for messages, such as `250 ms`, `1.5 s` and `1 h 30 min`.

use std::time::Duration;

/// The units of whole seconds, from long to short.
const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];

/// Formats a time exactly to the millisecond below a minute, and exactly to the second above.
pub fn in_words(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        return format!("{} ms", time.as_millis());
    }
    if time < Duration::from_mins(1) {
        let seconds = format!("{}.{:03}", time.as_secs(), time.subsec_millis());
        return format!("{} s", seconds.trim_end_matches('0').trim_end_matches('.'));
    }
    let mut left = time.as_secs();
    let mut parts = Vec::new();
    for (unit, name) in UNITS {
        if left >= unit {
            parts.push(format!("{} {name}", left / unit));
            left %= unit;
        }
    }
    parts.join(" ")
}

/// Formats a measured time to a tenth of a second, because further digits only make it harder to read.
pub fn measured(time: Duration) -> String {
    const TENTH: u128 = 100;
    if time < Duration::from_secs(1) {
        return in_words(time);
    }
    let tenths = time.as_millis().saturating_add(TENTH / 2) / TENTH;
    in_words(Duration::from_millis(u64::try_from(tenths * TENTH).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_formatted_in_the_longest_units_that_fit() {
        let check = |millis: u64, expected: &str| {
            assert_eq!(in_words(Duration::from_millis(millis)), expected, "{millis}");
        };
        check(0, "0 ms");
        check(250, "250 ms");
        check(1_000, "1 s");
        check(1_500, "1.5 s");
        check(10_050, "10.05 s");
        check(40_000, "40 s");
        check(90_000, "1 min 30 s");
        check(600_000, "10 min");
        check(3_600_000, "1 h");
        check(5_430_000, "1 h 30 min 30 s");
        check(30 * 86_400_000, "30 d");
    }

    #[test]
    fn measured_time_has_at_most_one_decimal() {
        let check = |millis: u64, expected: &str| {
            assert_eq!(measured(Duration::from_millis(millis)), expected, "{millis}");
        };
        check(999, "999 ms");
        check(1_234, "1.2 s");
        check(2_000, "2 s");
        check(59_960, "1 min");
        check(61_940, "1 min 1 s");
    }
}

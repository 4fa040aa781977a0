//! Parses durations in human notation.

use std::time::Duration;

/// The regular expression for a duration, for editors.
pub(super) const PATTERN: &str = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d|w|mo|y)?$";

/// The maximum duration. No useful wait is longer, and larger values could overflow clocks.
const DURATION_MAX: Duration = Duration::from_hours(24 * 365 * 100);

/// Parses `90s`, `1500ms`, `2m`, `1.5h`, `2d`, `1w`, `6mo`, `1y`; a bare number is milliseconds. Refuses durations
/// below a millisecond and above a hundred years.
pub fn parse(text: &str) -> Result<Duration, String> {
    let bad = || {
        format!("expected a duration such as 90s, 1500ms or 2m; got `{}`", super::printable::excerpt(text))
    };
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| bad())?;
    let seconds = match &text[digits..] {
        "" | "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        "w" => number * 604_800.0,
        // A month has 30 days and a year 365, which is exact enough for retention times.
        "mo" => number * 2_592_000.0,
        "y" => number * 31_536_000.0,
        _ => return Err(bad()),
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration.as_millis() > 0 && duration <= DURATION_MAX => Ok(duration),
        Ok(_) | Err(_) => Err(bad()),
    }
}

/// Units that every person reads the same way, from long to short, in milliseconds.
const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];

/// Writes a duration in the notation that [`parse`] reads, in the longest unit that expresses it exactly.
pub fn notation(millis: u64) -> String {
    let exact = UNITS.into_iter().find(|(unit, _)| millis > 0 && millis.is_multiple_of(*unit));
    exact.map_or_else(|| format!("{millis}ms"), |(unit, name)| format!("{}{name}", millis / unit))
}

/// Returns true for a number without a unit, which means milliseconds in a file.
pub(super) fn has_no_unit(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_notation_is_exact_and_can_be_read_again() {
        for (millis, expected) in [
            (300_000, "5m"),
            (90_000, "90s"),
            (1500, "1500ms"),
            (5_400_000, "90m"),
            (30 * 86_400_000, "30d"),
            (1, "1ms"),
        ] {
            assert_eq!(notation(millis), expected);
            assert_eq!(parse(expected), Ok(Duration::from_millis(millis)), "{expected}");
        }
    }

    #[test]
    fn duration_strings_parse_and_invalid_ones_are_rejected() {
        let check =
            |text: &str, millis: u64| assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        check("90s", 90_000);
        check("1500ms", 1500);
        check("1500", 1500);
        check("2m", 120_000);
        check("1.5h", 5_400_000);
        check("2d", 172_800_000);
        check("1w", 604_800_000);
        check("36500d", 3_153_600_000_000);
        check("6mo", 15_552_000_000);
        check("2y", 63_072_000_000);
        let bad = ["", "s", "-1s", "1years", "0s", "0.1ms", "1e9999s", "1..2s", "1 s", "off"];
        let too_long = ["36501d", "20000000000000w", "99999999999999999999d"];
        for bad in bad.into_iter().chain(too_long) {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}

//! Replaces the parts of a text that change between days and machines: dates, times and absolute paths.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// A pattern for numeric dates with or without a time, times, Unix timestamps in seconds and milliseconds, and dates
/// with names of days and months, in the orders that people and programs write them.
const DATES: &str = r"(?x)
    \b\d{4}-\d{2}-\d{2}(?:[T\ ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?(?:\ ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))?(?:\[[A-Za-z_/+-]+\])?
  | \b\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\ ?(?:UTC|GMT|Z))?\b
  | \b[12]\d{9}(?:\d{3})?\b
  | \b(?:(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?,?\ +)?
    (?:
        \d{1,2}(?:st|nd|rd|th)?\ +
        (?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)
        \.?,?(?:\ +\d{4})?
      |
        (?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)
        \.?\ +\d{1,2}(?:st|nd|rd|th)?\b(?:,?\ +\d{4})?
    )\b
  | \b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b
";

/// A pattern for paths that start at the root, a home directory or a drive letter, at the start of a word.
const PATHS: &str = r#"(?x)
    (?P<before>^|[\s"'`(=:,;\[{<>|&])
    (?:file://)?(?:~|[A-Za-z]:)?
    (?:[\\/][A-Za-z0-9_.@+%\u{80}-\u{10ffff}-][^\s"'`()\[\]{}<>|&,;:*?]*)+
"#;

/// Replaces dates by `<date>` and paths by `<path>`.
pub(super) fn scrub(text: &str) -> Cow<'_, str> {
    static PATH: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(PATHS).ok());
    static DATE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(DATES).ok());
    let mut text = Cow::Borrowed(text);
    for (regex, word) in [(&*PATH, "${before}<path>"), (&*DATE, "<date>")] {
        let Some(regex) = regex else { continue };
        if let Cow::Owned(scrubbed) = regex.replace_all(&text, word) {
            text = Cow::Owned(scrubbed);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(scrub(text), expected, "{text}");
    }

    #[test]
    fn dates_in_common_formats_are_replaced_by_a_placeholder() {
        for date in [
            "2026-11-16",
            "2026-11-16T02:01:31Z",
            "2026-11-16 02:01:31.123456+01:00",
            "2026-11-16T02:01:31+01:00[Europe/Berlin]",
            "02:01:31",
            "02:01",
            "1794794491",
            "1794794491123",
            "16 November 2026",
            "November 16, 2026",
            "Nov 16",
            "Monday, 16 November 2026",
            "Monday",
        ] {
            check(&format!("it was {date}, then"), "it was <date>, then");
        }
        check("Mon Nov 16 02:01:31 UTC 2026", "<date> <date> 2026");
    }

    #[test]
    fn absolute_paths_are_replaced_by_a_placeholder() {
        check("read /home/ann/src/lib.rs:12 now", "read <path>:12 now");
        check(r#"{"file_path":"/tmp/x y"}"#, r#"{"file_path":"<path> y"}"#);
        check("~/notes and C:\\Users\\ann and file:///tmp/a", "<path> and <path> and <path>");
        check("PATH=/usr/bin:/bin", "PATH=<path>:<path>");
    }

    #[test]
    fn text_resembling_dates_or_paths_is_unchanged() {
        for text in [
            "https://example.org/a/b",
            "either/or and 3/4",
            "src/lib.rs",
            "a / b",
            "version 1.2.3 of 12345 things, may be 7",
            "// a comment",
            "10:5",
            "",
        ] {
            check(text, text);
        }
    }
}

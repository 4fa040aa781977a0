//! Splits names and texts into the terms that are indexed and searched.

use std::collections::HashSet;
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};

/// Words that occur in most descriptions and tell tools apart in none.
const STOP_WORDS: &str = "a about all also an and any are as at be been but by can could do does each for from has have how i if \
    in into is it its just may me more most my no not of on one only or other our out over please should so some \
    such than that the their them then there these they this to up us use used using via want was we were what when where which \
    while who will with would you your";

/// Returns the terms of a text: identifiers split at underscores, capitals and digits, in lower case, without stop words,
/// reduced to their English stem. Chinese, Japanese and Korean texts give single characters and pairs.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> {
    let stemmer = Stemmer::create(Algorithm::English);
    split(text)
        .into_iter()
        .filter(|word| !is_stop_word(word))
        .map(move |word| if word.is_ascii() { stemmer.stem(&word).into_owned() } else { word })
}

/// Returns each two neighbouring words as one: `config`, `map` give `configmap`.
pub(super) fn joined_neighbours(words: &[String]) -> impl Iterator<Item = String> {
    words.windows(2).map(<[std::string::String]>::concat)
}

fn is_stop_word(word: &str) -> bool {
    static SET: LazyLock<HashSet<&str>> = LazyLock::new(|| STOP_WORDS.split_ascii_whitespace().collect());
    SET.contains(word)
}

/// The class of a character. A word ends where the class changes, except from a capital to a small letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Lower,
    Upper,
    Digit,
    Ideograph,
    Separator,
}

impl CharClass {
    fn of(c: char) -> Self {
        match c {
            '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' => Self::Ideograph,
            c if c.is_uppercase() => Self::Upper,
            c if c.is_alphabetic() => Self::Lower,
            c if c.is_numeric() => Self::Digit,
            _ => Self::Separator,
        }
    }
}

fn split(text: &str) -> Vec<String> {
    let chars: Vec<(char, CharClass)> = text.chars().map(|c| (c, CharClass::of(c))).collect();
    let mut found = Vec::new();
    let mut word = String::new();
    for (at, &(c, class)) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map_or(CharClass::Separator, |before| chars[before].1);
        let after = chars.get(at + 1).map_or(CharClass::Separator, |after| after.1);
        if begins_word(before, class, after) && !word.is_empty() {
            found.push(std::mem::take(&mut word));
        }
        match class {
            CharClass::Separator => {}
            CharClass::Ideograph => {
                found.push(c.to_string());
                if let Some((next, CharClass::Ideograph)) = chars.get(at + 1) {
                    found.push([c, *next].iter().collect());
                }
            }
            CharClass::Lower | CharClass::Upper | CharClass::Digit => word.extend(c.to_lowercase()),
        }
    }
    if !word.is_empty() {
        found.push(word);
    }
    found
}

/// Decides whether a new word begins: `getURL2` is `get url 2`, and `HTTPServer` is `http server`.
fn begins_word(before: CharClass, class: CharClass, after: CharClass) -> bool {
    match (before, class) {
        (CharClass::Upper, CharClass::Upper) => after == CharClass::Lower,
        (CharClass::Upper, CharClass::Lower) => false,
        (before, class) => before != class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_split_at_case_digits_and_separators() {
        let check = |text: &str, expected: &[&str]| assert_eq!(split(text), expected, "{text}");
        check("config_map", &["config", "map"]);
        check("getHTTPServer2Url", &["get", "http", "server", "2", "url"]);
        check("S3-bucket.list", &["s", "3", "bucket", "list"]);
        check("", &[]);
        check("__", &[]);
        check("Größe ändern", &["größe", "ändern"]);
    }

    #[test]
    fn ideographs_give_characters_and_pairs() {
        assert_eq!(split("天気予"), ["天", "天気", "気", "気予", "予"]);
    }

    #[test]
    fn stop_words_go_and_the_rest_is_stemmed() {
        assert_eq!(
            words("Creates the issues of a repository").collect::<Vec<_>>(),
            ["creat", "issu", "repositori"]
        );
    }

    #[test]
    fn neighbours_are_joined() {
        let words: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!(joined_neighbours(&words).collect::<Vec<_>>(), ["ab", "bc"]);
    }
}

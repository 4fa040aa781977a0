//! Splits names and texts into the terms that are indexed and searched.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};

use super::synonyms::synonyms;

/// Words that occur in most descriptions and do not help to tell tools apart.
const STOP_WORDS: &str = "a about all also an and any are as at be been but by can could do does each for from has have how i if \
    in into is it its just may me more most my no not of on one only or other our out over please should so some \
    such than that the their them then there these they this to up us use used using via want was we were what when where which \
    while who will with would you your";

/// Returns the terms of a text: identifiers are split at underscores, capitals and digits, and words are in lower case,
/// without stop words, reduced to their English stem. Chinese, Japanese and Korean texts give single characters and
/// pairs.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    split(text, |word| {
        if !is_stop_word(word) {
            found.push(stem(word).into_owned());
        }
    });
    found
}

/// Words in a request that name neither an action nor an object. They stay in the index, because a word such as `need`
/// may be part of a name.
const REQUEST_WORDS: &str =
    "ability able am anyone certain given need possibility possible somebody someone something specific way";

/// Abbreviations that are not a prefix of the words that they stand for, so prefix matching cannot find these words.
const ABBREVIATIONS: [(&str, [&str; 2]); 4] = [
    ("pr", ["pull", "request"]),
    ("prs", ["pull", "request"]),
    ("mr", ["merge", "request"]),
    ("vm", ["virtual", "machine"]),
];

/// Words that form one word with the verb before them: `pay out` is a `payout`, and `log in` a `login`.
const PARTICLES: [&str; 8] = ["back", "down", "in", "off", "on", "out", "over", "up"];

/// A term in a search query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueryTerm {
    pub(super) term: String,
    /// The stem of the word joined with the particle after it.
    pub(super) phrase: Option<String>,
}

/// Returns the terms of a query, in order.
pub(super) fn query_terms(query: &str) -> Vec<QueryTerm> {
    let mut all: Vec<String> = Vec::new();
    split(query, |word| match ABBREVIATIONS.iter().find(|(short, _)| *short == word) {
        Some((_, long)) => all.extend(long.map(str::to_owned)),
        None => all.push(word.to_owned()),
    });
    let terms = all.iter().enumerate().filter(|(_, word)| !is_stop_word(word) && !is_request_word(word));
    terms.map(|(at, word)| query_term(word, all.get(at + 1).map(String::as_str))).collect()
}

/// Returns the term for a word. A verb and its particle together are the term if they have synonyms, because the verb
/// alone has a different meaning: `look up` means a search, but `look` does not.
fn query_term(word: &str, next: Option<&str>) -> QueryTerm {
    let particle = next.filter(|next| PARTICLES.contains(next));
    let phrase = particle.map(|particle| stem(&format!("{word}{particle}")).into_owned());
    match phrase {
        Some(phrase) if synonyms(&phrase).next().is_some() => QueryTerm { term: phrase, phrase: None },
        phrase => QueryTerm { term: stem(word).into_owned(), phrase },
    }
}

fn is_request_word(word: &str) -> bool {
    REQUEST_WORDS.split_ascii_whitespace().any(|other| other == word)
}

/// Returns the English stem of a word in lower case.
pub(super) fn stem(word: &str) -> Cow<'_, str> {
    thread_local! {
        static STEMMER: Stemmer = Stemmer::create(Algorithm::English);
    }
    // A number has no stem, and tool definitions contain many numbers.
    let has_stem = word.bytes().all(|byte| byte.is_ascii_lowercase());
    if has_stem { STEMMER.with(|stemmer| stemmer.stem(word)) } else { Cow::Borrowed(word) }
}

pub(super) fn is_stop_word(word: &str) -> bool {
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
            'a'..='z' => Self::Lower,
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            '\0'..='\x7f' => Self::Separator,
            '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' => Self::Ideograph,
            c if c.is_uppercase() => Self::Upper,
            c if c.is_alphabetic() => Self::Lower,
            c if c.is_numeric() => Self::Digit,
            _ => Self::Separator,
        }
    }
}

/// Calls `each` for every word of a text, in lower case. Does not allocate per word, because an index splits megabytes
/// of text.
pub(super) fn split(text: &str, each: impl FnMut(&str)) {
    if text.is_ascii() { split_ascii(text, each) } else { split_unicode(text, each) }
}

/// Splits an ASCII text like `split_unicode`. Nearly all definitions are ASCII, and this takes a fifth of the time: it
/// copies a word only to change its case.
fn split_ascii(text: &str, mut each: impl FnMut(&str)) {
    let mut lower = String::new();
    let mut at = 0;
    while at < text.len() {
        let end = ascii_word_end(text.as_bytes(), at);
        let Some(word) = text.get(at..end) else { return };
        at = end.max(at + 1);
        if word.bytes().any(|byte| byte.is_ascii_uppercase()) {
            lower.clear();
            lower.push_str(word);
            lower.make_ascii_lowercase();
            each(&lower);
        } else if !word.is_empty() {
            each(word);
        }
    }
}

/// Returns the end of the word that starts at this byte, or the same position if there is a separator.
fn ascii_word_end(text: &[u8], begin: usize) -> usize {
    const CLASSES: [CharClass; 128] = ascii_classes();
    let class_at =
        |at: usize| text.get(at).map_or(CharClass::Separator, |byte| CLASSES[usize::from(*byte & 127)]);
    let run = |from: usize, class: CharClass| {
        let mut end = from;
        while class_at(end) == class {
            end += 1;
        }
        end
    };
    match class_at(begin) {
        CharClass::Separator | CharClass::Ideograph => begin,
        CharClass::Upper => {
            let capitals = run(begin, CharClass::Upper);
            if class_at(capitals) != CharClass::Lower {
                return capitals;
            }
            // The last of several capitals begins the next word, as in `HTTPServer`. A single capital begins its own
            // word.
            if capitals - begin > 1 { capitals - 1 } else { run(capitals, CharClass::Lower) }
        }
        class @ (CharClass::Lower | CharClass::Digit) => run(begin, class),
    }
}

const fn ascii_classes() -> [CharClass; 128] {
    let mut classes = [CharClass::Separator; 128];
    let mut byte = 0_u8;
    while byte.is_ascii() {
        classes[byte as usize] = match byte {
            b'a'..=b'z' => CharClass::Lower,
            b'A'..=b'Z' => CharClass::Upper,
            b'0'..=b'9' => CharClass::Digit,
            _ => CharClass::Separator,
        };
        byte += 1;
    }
    classes
}

fn split_unicode(text: &str, mut each: impl FnMut(&str)) {
    let mut word = String::new();
    let mut before = CharClass::Separator;
    let mut chars = text.chars().map(|c| (c, CharClass::of(c))).peekable();
    while let Some((c, class)) = chars.next() {
        let after = chars.peek().copied();
        if begins_word(before, class, after.map_or(CharClass::Separator, |(_, class)| class)) {
            end_word(&mut word, &mut each);
        }
        match class {
            CharClass::Separator => {}
            CharClass::Ideograph => {
                word.push(c);
                end_word(&mut word, &mut each);
                if let Some((next, CharClass::Ideograph)) = after {
                    word.extend([c, next]);
                    end_word(&mut word, &mut each);
                }
            }
            CharClass::Lower | CharClass::Upper | CharClass::Digit => word.extend(c.to_lowercase()),
        }
        before = class;
    }
    end_word(&mut word, &mut each);
}

fn end_word(word: &mut String, each: &mut impl FnMut(&str)) {
    if !word.is_empty() {
        each(word);
        word.clear();
    }
}

/// Returns true if a new word starts: `getURL2` is `get url 2`, and `HTTPServer` is `http server`.
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

    fn all(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        split(text, |word| found.push(word.to_owned()));
        found
    }

    #[test]
    fn identifiers_split_at_case_digits_and_separators() {
        let check = |text: &str, expected: &[&str]| assert_eq!(all(text), expected, "{text}");
        check("config_map", &["config", "map"]);
        check("getHTTPServer2Url", &["get", "http", "server", "2", "url"]);
        check("S3-bucket.list", &["s", "3", "bucket", "list"]);
        check("", &[]);
        check("__", &[]);
        check("Größe ändern", &["größe", "ändern"]);
    }

    #[test]
    fn ascii_and_unicode_splitters_return_the_same_words() {
        let check = |text: &str| {
            let (mut fast, mut general) = (Vec::new(), Vec::new());
            split_ascii(text, |word| fast.push(word.to_owned()));
            split_unicode(text, |word| general.push(word.to_owned()));
            assert_eq!(fast, general, "{text:?}");
        };
        for text in [
            "",
            "aB",
            "HTTPServer2URLs",
            "x1y2 Z",
            "__a--B..9",
            "\u{0}a\u{7f}B",
            "ABCd EfG h1J",
            "A",
            "AB",
            "aBC",
            "A1b2C",
            "_Ab",
        ] {
            check(text);
        }
    }

    #[test]
    fn query_also_joins_a_verb_and_its_particle_into_one_word() {
        let found = query_terms("pay out the bank");
        assert_eq!(found[0], QueryTerm { term: "pay".into(), phrase: Some("payout".into()) });
        assert_eq!(found[1], QueryTerm { term: "bank".into(), phrase: None });
    }

    #[test]
    fn query_terms_are_words_that_name_an_action_or_an_object() {
        let check = |query: &str, expected: &[&str]| {
            let terms: Vec<String> = query_terms(query).into_iter().map(|found| found.term).collect();
            assert_eq!(terms, expected, "{query}");
        };
        check("ability to approve a specific PR", &["approv", "pull", "request"]);
        check("look up somebody", &["lookup"]);
        check("look at the map", &["look", "map"]);
    }

    #[test]
    fn ideographs_are_indexed_as_single_characters_and_pairs() {
        assert_eq!(all("天気予"), ["天", "天気", "気", "気予", "予"]);
    }

    #[test]
    fn stop_words_are_removed_and_other_words_are_stemmed() {
        assert_eq!(words("Creates the issues of a repository"), ["creat", "issu", "repositori"]);
    }
}

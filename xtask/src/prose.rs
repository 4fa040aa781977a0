//! Counts patterns of unclear language, and fails when a count rises.
//!
//! The patterns come from the style guide: comments that open with a free relative, indefinite pronouns, stilted
//! verbs, type names that are a bare participle, and type names that mean different things in different files. A match
//! is a reason to look at the text, not proof of a fault. The limits in `prose.json` may only decrease.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::tidy::files;

/// The file with the limits for the counts, next to the xtask manifest.
const LIMITS: &str = "xtask/prose.json";

/// Nouns that end like a participle.
const NOUNS: &str = "Token Screen Red Green Seed Feed Speed Need Zone Tone Phone Clone Stone Done Set Get Event Agent Client Content \
    Parent Intent Component Sound Bound Round Ground Cost Host Post Target Budget Secret Packet Bucket Socket Offset Subset \
    Preset Reset Facet Snippet Widget Ticket Document Argument Statement Element Segment Fragment Environment Experiment \
    Payment Deployment Comment Moment Attachment Threshold Hold Fold Old Gold Raid Paid Open Garden Pattern";

const OPENERS: &str = "^(What|Who|Whom|Whose|Whoever|Whatever|Whether|How|Where|Which)\\b";
const SENTENCE: &str = "[.;:] (What|Who|Whoever|How|Where) [a-z]";
const SOMEBODY: &str = "(?i)\\b(nobody|somebody|whoever|whomever|whatever)\\b";
const STILTED: &str = "(?i)\\b(stands? (in|on|at|here|there|for|beside|before|behind|around|above|below|between|once|twice|after)|\
    is (said|told)|are (said|told)|was (said|told)|were (said|told)|put down|lets? (one|you|them|it) in|of no use|as it is meant)\\b";
const COMMENT: &str = r"^\s*//[/!]?\s?(.*)$";
const TYPE: &str = r"(?m)^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|type|union)\s+([A-Z]\w*)";
const PARTICIPLE: &str =
    "^[A-Z][a-z]+(ed|en|own|ung|ept|eft|aid|old|ost|ought|eant|ent|ound|iven|ritten|aken|een|one|et)$";

/// Prints the counts as JSON and compares them with the limits.
pub(crate) fn prose() -> Result<(), String> {
    println!("==> prose");
    let counts = count(Path::new("."))?;
    println!("{}", Value::Object(counts.clone()));
    let text = fs::read_to_string(LIMITS).map_err(|error| format!("{LIMITS}: {error}"))?;
    let limits: Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| format!("{LIMITS}: {error}"))?;
    let risen = limits.iter().filter_map(|(key, limit)| {
        let (found, limit) = (counts.get(key)?.as_f64()?, limit.as_f64()?);
        (found > limit).then(|| format!("{key} rose from {limit} to {found}"))
    });
    let risen: Vec<String> = risen.collect();
    if risen.is_empty() { Ok(()) } else { Err(format!("unclear language:\n  {}", risen.join("\n  "))) }
}

#[derive(Default)]
struct ProseCounts {
    comments: u32,
    opening: u32,
    somebody: u32,
    stilted: u32,
    /// Each type name, with the files that define it.
    types: BTreeMap<String, BTreeSet<String>>,
}

struct ProsePatterns {
    opener: Regex,
    sentence: Regex,
    somebody: Regex,
    stilted: Regex,
    comment: Regex,
    type_name: Regex,
    participle: Regex,
}

impl ProsePatterns {
    fn new() -> Result<Self, String> {
        let regex = |text: &str| Regex::new(text).map_err(|error| error.to_string());
        Ok(Self {
            opener: regex(OPENERS)?,
            sentence: regex(SENTENCE)?,
            somebody: regex(SOMEBODY)?,
            stilted: regex(STILTED)?,
            comment: regex(COMMENT)?,
            type_name: regex(TYPE)?,
            participle: regex(PARTICIPLE)?,
        })
    }
}

fn count(root: &Path) -> Result<Map<String, Value>, String> {
    let patterns = ProsePatterns::new()?;
    let mut tally = ProseCounts::default();
    for file in files(root) {
        if file.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&file).unwrap_or_default();
            tally.comments_of(&text, &patterns);
            for found in patterns.type_name.captures_iter(&text) {
                tally.types.entry(found[1].to_owned()).or_default().insert(file.display().to_string());
            }
        }
    }
    Ok(tally.summary(&patterns))
}

impl ProseCounts {
    fn comments_of(&mut self, text: &str, patterns: &ProsePatterns) {
        let mut before: Option<String> = None;
        for line in text.lines() {
            let words = patterns.comment.captures(line).map(|found| found[1].trim().to_owned());
            let Some(words) = words.filter(|words| !words.is_empty()) else {
                before = None;
                continue;
            };
            let begins = before.as_ref().is_none_or(|before| before.ends_with(['.', ':']));
            // Do not count a question, because it may start with such a word.
            let opens = begins && patterns.opener.is_match(&words) && !words.contains('?');
            self.comments += 1;
            self.opening += u32::from(opens || patterns.sentence.is_match(&words));
            self.somebody += u32::from(patterns.somebody.is_match(&words));
            self.stilted += u32::from(patterns.stilted.is_match(&words));
            before = Some(words);
        }
    }

    fn summary(&self, patterns: &ProsePatterns) -> Map<String, Value> {
        let types = u32::try_from(self.types.len()).unwrap_or(u32::MAX).max(1);
        let names = self.types.keys();
        let is_participle = |name: &&String| {
            patterns.participle.is_match(name) && !NOUNS.split_whitespace().any(|noun| noun == **name)
        };
        let has_hump = |name: &String| {
            let bytes = name.as_bytes();
            bytes.windows(2).any(|pair| {
                (pair[0].is_ascii_lowercase() || pair[0].is_ascii_digit()) && pair[1].is_ascii_uppercase()
            })
        };
        let one_word = names.clone().filter(|name| !has_hump(name)).count();
        let participles = names.filter(is_participle).count();
        let shared = self.types.values().filter(|files| files.len() > 1).count();
        let permille = |count: u32| share(1000.0, count.into(), self.comments.max(1).into());
        let percent =
            |count: usize| share(100.0, f64::from(u32::try_from(count).unwrap_or(u32::MAX)), types.into());
        let pairs = [
            ("comment_lines", json!(self.comments)),
            ("open_with_relative_permille", permille(self.opening)),
            ("nobody_whoever_permille", permille(self.somebody)),
            ("stilted_verbs_permille", permille(self.stilted)),
            ("types", json!(types)),
            ("one_word_percent", percent(one_word)),
            ("bare_participles_percent", percent(participles)),
            ("same_name_elsewhere_percent", percent(shared)),
        ];
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Returns `of * count / all`, rounded to one decimal.
fn share(of: f64, count: f64, all: f64) -> Value {
    json!((of * count / all * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unclear_language_is_counted_in_comments_and_type_names() {
        let mut tally = ProseCounts::default();
        let patterns = ProsePatterns::new().unwrap();
        let text = "// What is kept here.\n// it is told by nobody\nlet x = 1; // not counted\n/// Why not?\nstruct Told;\n";
        tally.comments_of(text, &patterns);
        assert_eq!((tally.comments, tally.opening, tally.somebody, tally.stilted), (3, 1, 1, 1));
        tally.types.insert("Asked".into(), ["a".to_owned(), "b".to_owned()].into());
        tally.types.insert("JournalLine".into(), ["a".to_owned()].into());
        let summary = tally.summary(&patterns);
        assert_eq!(summary["bare_participles_percent"], json!(50.0));
        assert_eq!(summary["same_name_elsewhere_percent"], json!(50.0));
        assert_eq!(summary["one_word_percent"], json!(50.0));
    }
}

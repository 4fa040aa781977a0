//! Returns the lines that match a pattern, with context lines.

use std::fmt::Write;

use regex::{Regex, RegexBuilder};

use super::{ANSWER_BYTES_MAX, ExtractError};

/// The maximum size of the compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// `grep [-i] [-B n] [-A n] [-C n] PATTERN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grep {
    pattern: String,
    case_sensitive: bool,
    before: usize,
    after: usize,
}

impl Grep {
    pub(super) fn parse(text: &str) -> Result<Self, ExtractError> {
        let mut grep = Self { pattern: String::new(), case_sensitive: true, before: 0, after: 0 };
        let mut rest = text["grep".len()..].trim_start();
        while let Some(flag) = rest.split_whitespace().next().filter(|word| word.starts_with('-')) {
            rest = rest[flag.len()..].trim_start();
            match flag {
                "-i" => grep.case_sensitive = false,
                "--" => break,
                "-B" | "-A" | "-C" => {
                    let word = rest.split_whitespace().next().unwrap_or_default();
                    let count = word.parse().map_err(|_| {
                        ExtractError(format!("the grep option {flag} needs a number; got `{word}`"))
                    })?;
                    rest = rest[word.len()..].trim_start();
                    grep.set_context_lines(flag, count);
                }
                _ => {
                    return Err(ExtractError(format!(
                        "grep accepts only the options -i, -A n, -B n and -C n; got `{flag}`"
                    )));
                }
            }
        }
        unquoted(rest.trim()).clone_into(&mut grep.pattern);
        if grep.pattern.is_empty() {
            return Err(ExtractError("grep needs a pattern".into()));
        }
        grep.compile().map(|_| grep)
    }

    fn set_context_lines(&mut self, flag: &str, count: usize) {
        if flag != "-A" {
            self.before = count;
        }
        if flag != "-B" {
            self.after = count;
        }
    }

    /// Compiles the pattern. The `regex` crate matches in linear time, so no pattern can hang the search.
    fn compile(&self) -> Result<Regex, ExtractError> {
        RegexBuilder::new(&self.pattern)
            .case_insensitive(!self.case_sensitive)
            .size_limit(PATTERN_BYTES_MAX)
            .build()
            .map_err(|error| ExtractError(format!("the grep pattern is not valid: {error}")))
    }

    /// Returns matching lines as `12:text` and context lines as `11-text`, with `--` between groups, as `grep -n` does.
    pub(super) fn answer(&self, text: &str) -> String {
        let Ok(pattern) = self.compile() else { return String::new() };
        let lines: Vec<&str> = text.lines().collect();
        let hits: Vec<usize> = (0..lines.len()).filter(|at| pattern.is_match(lines[*at])).collect();
        if hits.is_empty() {
            return format!("no line matches `{}`", self.pattern);
        }
        let mut answer = String::new();
        let mut next = 0;
        for hit in &hits {
            let from = hit.saturating_sub(self.before).max(next);
            if from > next && next > 0 && (self.before > 0 || self.after > 0) {
                answer.push_str("--\n");
            }
            let to = hit.saturating_add(self.after).min(lines.len() - 1);
            for (at, line) in lines.iter().enumerate().take(to + 1).skip(from) {
                let mark = if hits.binary_search(&at).is_ok() { ':' } else { '-' };
                let _ = writeln!(answer, "{}{mark}{line}", at + 1);
            }
            next = to + 1;
            // Stop here: the pages of an answer end at this size, so the model would never see further matches.
            if answer.len() > ANSWER_BYTES_MAX {
                break;
            }
        }
        answer
    }
}

fn unquoted(text: &str) -> &str {
    let quoted = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    quoted('"').or_else(|| quoted('\'')).unwrap_or(text)
}

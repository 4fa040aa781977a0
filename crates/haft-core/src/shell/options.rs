//! The grammar of program options, in the notation that the table in `programs.rs` uses.
//!
//! A grammar is a list of options, each with a sign for its effect:
//!
//! | sign | effect |
//! |---|---|
//! | (none) | a flag |
//! | `=` | takes a value, attached or in the next word |
//! | `?` | may take a value, attached only |
//! | `!` | its value is a command line |
//! | `&` | starts a command, which ends at `;`, at `+` or at the last word |
//! | `%` | its value is code, or names a program in a way that the parser does not support |
//! | `.` | its value is a script, and all later words belong to the script |
//! | `~` | the program prints something about itself and runs nothing |
//!
//! Options with one letter can be clustered as for `getopt`, and a long option may be abbreviated as for `getopt_long`.
//! An option with one dash and several letters (`-exec`), and a word without a dash (`eval`), must match exactly.

use super::ShellWord;

/// The options of one program, in the notation of this module.
#[derive(Debug, Clone, Copy)]
pub(super) struct OptionGrammar(pub(super) &'static str);

/// The effect of an option on the following words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionEffect {
    Flag,
    Value,
    AttachedValue,
    Line,
    Command,
    Code,
    Script,
    Information,
}

/// One word of options, parsed by the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OptionWord<'w> {
    pub(super) effect: OptionEffect,
    /// The value of the option, if it is in the same word.
    pub(super) attached: Option<&'w str>,
    /// True if this option, or a letter in the cluster, is not in the grammar. Then it is unknown whether a value
    /// follows.
    pub(super) unknown: bool,
}

impl OptionGrammar {
    /// Parses a word. A lone dash is an option only if the grammar lists it, as for `env`.
    pub(super) fn read(self, text: &str) -> OptionWord<'_> {
        match (self.spelled_out(text), text.strip_prefix("--"), text.strip_prefix('-')) {
            (Some(word), ..) => word,
            (None, Some(long), _) => self.long(long),
            (None, None, Some("")) => {
                OptionWord { effect: OptionEffect::Flag, attached: None, unknown: true }
            }
            (None, None, Some(letters)) => self.cluster(letters),
            (None, None, None) => OptionWord { effect: OptionEffect::Flag, attached: None, unknown: false },
        }
    }

    /// Parses the first word of `tar xf file`, which is a cluster without a dash.
    pub(super) fn cluster(self, letters: &str) -> OptionWord<'_> {
        let mut effect = OptionEffect::Flag;
        let mut unknown = false;
        for (at, letter) in letters.char_indices() {
            let found =
                self.entries().find(|(name, _)| name.strip_prefix('-').is_some_and(|name| is(name, letter)));
            match found.map(|(_, effect)| effect) {
                // `nice -5` and `perl -0777` have a number as an option.
                None => unknown |= !letter.is_ascii_digit(),
                Some(OptionEffect::Flag) => {}
                Some(OptionEffect::Information) => effect = OptionEffect::Information,
                Some(effect) => {
                    let rest = &letters[at + letter.len_utf8()..];
                    return OptionWord {
                        effect,
                        attached: Some(rest).filter(|rest| !rest.is_empty()),
                        unknown,
                    };
                }
            }
        }
        OptionWord { effect, attached: None, unknown }
    }

    /// Parses an option that is not a cluster although it has one dash or no dash: `-exec`, `-TT`, `eval`.
    fn spelled_out(self, text: &str) -> Option<OptionWord<'_>> {
        let single = |name: &str| !name.starts_with("--") && (!name.starts_with('-') || name.len() != 2);
        let (name, effect) =
            self.entries().find(|(name, _)| single(name) && text.split('=').next() == Some(name))?;
        let attached = text[name.len()..].strip_prefix('=');
        Some(OptionWord { effect, attached, unknown: false })
    }

    /// Parses a long option, which may be abbreviated. If several options have this prefix, prefers one that runs a
    /// command. This is safe, because the program itself would reject an ambiguous prefix.
    fn long(self, option: &str) -> OptionWord<'_> {
        let (name, attached) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let long = || self.entries().filter_map(|(entry, effect)| Some((entry.strip_prefix("--")?, effect)));
        let exact = long().find(|(entry, _)| *entry == name);
        let begun = || long().filter(|(entry, _)| !name.is_empty() && entry.starts_with(name));
        let found = exact.or_else(|| begun().find(|(_, effect)| effect.runs())).or_else(|| begun().next());
        match found {
            Some((_, effect)) => OptionWord { effect, attached, unknown: false },
            None => OptionWord { effect: OptionEffect::Flag, attached, unknown: true },
        }
    }

    fn entries(self) -> impl Iterator<Item = (&'static str, OptionEffect)> {
        self.0.split_whitespace().map(entry)
    }
}

impl OptionEffect {
    fn runs(self) -> bool {
        match self {
            Self::Line | Self::Command | Self::Code => true,
            Self::Flag | Self::Value | Self::AttachedValue | Self::Script | Self::Information => false,
        }
    }
}

fn is(name: &str, letter: char) -> bool {
    let mut letters = name.chars();
    letters.next() == Some(letter) && letters.next().is_none()
}

fn entry(written: &'static str) -> (&'static str, OptionEffect) {
    const SIGNS: [(char, OptionEffect); 7] = [
        ('=', OptionEffect::Value),
        ('?', OptionEffect::AttachedValue),
        ('!', OptionEffect::Line),
        ('&', OptionEffect::Command),
        ('%', OptionEffect::Code),
        ('.', OptionEffect::Script),
        ('~', OptionEffect::Information),
    ];
    let signed = SIGNS.into_iter().find_map(|(sign, effect)| Some((written.strip_suffix(sign)?, effect)));
    signed.unwrap_or((written, OptionEffect::Flag))
}

/// Returns true for a word that the shell may expand to any option.
pub(super) fn may_be_option(word: &ShellWord) -> bool {
    word.opaque && matches!(word.text.as_str(), "" | "-" | "--")
}

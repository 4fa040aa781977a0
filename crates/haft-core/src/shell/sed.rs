//! Detects the `sed` commands that run programs: `e`, and `s` with the flag `e`.

use super::ShellWord;
use super::interpreters::is_input;

/// Returns true if a script in the arguments may run a program. A script in a file is treated like any other program.
pub(super) fn runs(arguments: &[ShellWord]) -> bool {
    reads_script_from_input(arguments)
        || scripts(arguments)
            .any(|script| script.opaque && script.text.is_empty() || script_runs(&script.text))
}

/// Returns true if the script comes from standard input: `-f -`, `-nf/dev/stdin`, `--file=-` and similar.
fn reads_script_from_input(arguments: &[ShellWord]) -> bool {
    let attached = |option: &str| match option.strip_prefix("--") {
        Some(long) => long.split_once('=').map(|(_, file)| file.to_owned()),
        None => option.strip_prefix('-')?.split_once('f').map(|(_, file)| file.to_owned()),
    };
    let options =
        arguments.iter().enumerate().filter(|(_, word)| word.text.starts_with('-') && word.text != "-");
    options.into_iter().any(|(at, word)| {
        let next = || arguments.get(at + 1).map(|word| word.text.clone());
        attached(&word.text).filter(|file| !file.is_empty()).or_else(next).is_some_and(|file| is_input(&file))
    })
}

/// Returns the words that may be scripts: the values of `-e`, and the first word that is not an option.
fn scripts(arguments: &[ShellWord]) -> impl Iterator<Item = ShellWord> + '_ {
    let mut takes_next = false;
    let mut has_script = false;
    arguments.iter().filter_map(move |word| {
        let text = word.text.as_str();
        let of = |text: &str| Some(ShellWord { text: text.to_owned(), opaque: word.opaque });
        if std::mem::take(&mut takes_next) {
            return of(text);
        }
        let long = text.strip_prefix("--");
        let name = long.map(|long| long.split('=').next().unwrap_or_default());
        let is_long = |option: &str| name.is_some_and(|name| !name.is_empty() && option.starts_with(name));
        if is_long("expression") || is_long("file") {
            has_script = true;
            takes_next = is_long("expression") && !text.contains('=');
            return text.split_once('=').filter(|_| is_long("expression")).and_then(|(_, script)| of(script));
        }
        let letters = text.strip_prefix('-').filter(|letters| long.is_none() && !letters.is_empty());
        match letters.map(|letters| (letters, letters.find(['e', 'f', 'i', 'l', 'E']))) {
            Some((letters, Some(at))) if letters[at..].starts_with('e') => {
                has_script = true;
                takes_next = at + 1 == letters.len();
                (!takes_next).then(|| of(&letters[at + 1..])).flatten()
            }
            Some((letters, Some(at))) if letters[at..].starts_with('E') => {
                // `E` is only a flag. If an `e` follows in the same word, the script begins after this `e`.
                let after = letters[at..].find('e').map(|e| &letters[at + e + 1..]);
                has_script |= after.is_some();
                takes_next = after == Some("");
                after.filter(|script| !script.is_empty()).and_then(of)
            }
            Some((letters, Some(at))) => {
                has_script |= letters[at..].starts_with('f');
                None
            }
            Some((_, None)) => None,
            None if long.is_some() || std::mem::replace(&mut has_script, true) => None,
            None => of(text),
        }
    })
}

/// Parses the commands of a script. Returns true for a script that this parser does not understand.
fn script_runs(script: &str) -> bool {
    let mut rest = script;
    while let Some(command) = next_command(rest) {
        match command {
            SedCommand::Runs => return true,
            SedCommand::Other(after) => rest = after,
        }
    }
    false
}

enum SedCommand<'s> {
    Runs,
    Other(&'s str),
}

/// Returns the next command, or `None` at the end of the script.
fn next_command(script: &str) -> Option<SedCommand<'_>> {
    let script = script.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ';' | '{' | '}'));
    let Some(script) = skip_addresses(script) else { return Some(SedCommand::Runs) };
    let command = script.chars().next()?;
    let after = &script[command.len_utf8()..];
    let line_end = after.find('\n').unwrap_or(after.len());
    Some(match command {
        's' | 'y' => substitution(after),
        // The rest of the line is text, a file name or a label.
        'a' | 'i' | 'c' | 'r' | 'R' | 'w' | 'W' | '#' => SedCommand::Other(&after[line_end..]),
        ':' | 'b' | 't' | 'T' => {
            SedCommand::Other(&after[after.find(['\n', ';', '}']).unwrap_or(after.len())..])
        }
        '=' | 'd' | 'D' | 'F' | 'g' | 'G' | 'h' | 'H' | 'l' | 'L' | 'n' | 'N' | 'p' | 'P' | 'q' | 'Q'
        | 'v' | 'x' | 'z' => {
            let number = |c: char| c.is_ascii_digit() || c == ' ';
            SedCommand::Other(after.trim_start_matches(number))
        }
        '{' | '}' | ';' => SedCommand::Other(after),
        // `e` runs a command; an unknown command may do so too.
        _ => SedCommand::Runs,
    })
}

/// Skips addresses such as `1,5`, `/re/I` and `$!`. Returns `None` for an address without an end.
fn skip_addresses(mut script: &str) -> Option<&str> {
    loop {
        script = script.trim_start_matches(|c: char| c.is_ascii_digit() || " \t,$~+!".contains(c));
        let delimiter = match script.strip_prefix('\\') {
            Some(custom) => custom.chars().next()?,
            None if script.starts_with('/') => '/',
            None => return Some(script),
        };
        let start = script.find(delimiter)? + delimiter.len_utf8();
        script = skip_expression(&script[start..], delimiter)?.trim_start_matches(['I', 'M']);
    }
}

/// Returns the text after the delimiter that ends a regular expression. A delimiter inside a set such as `[^/]` does
/// not end it.
fn skip_expression(text: &str, delimiter: char) -> Option<&str> {
    let mut rest = text;
    loop {
        let c = rest.chars().next()?;
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\\' => &after[after.chars().next()?.len_utf8()..],
            c if c == delimiter => return Some(after),
            '[' => skip_set(after)?,
            _ => after,
        };
    }
}

/// Returns the text after a character set. A bracket at the start of the set or in `[:alpha:]` is literal.
fn skip_set(set: &str) -> Option<&str> {
    let mut rest = set.strip_prefix('^').unwrap_or(set);
    rest = rest.strip_prefix(']').unwrap_or(rest);
    loop {
        let class = [":", ".", "="].into_iter().find(|mark| rest.starts_with(&format!("[{mark}")));
        if let Some(mark) = class {
            let end = rest[2..].find(&format!("{mark}]"))?;
            rest = &rest[2 + end + 2..];
            continue;
        }
        let c = rest.chars().next()?;
        rest = &rest[c.len_utf8()..];
        if c == ']' {
            return Some(rest);
        }
    }
}

/// Returns the text after the delimiter that ends a replacement.
fn skip_replacement(text: &str, delimiter: char) -> Option<&str> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == delimiter => return Some(&text[at + c.len_utf8()..]),
            _ => {}
        }
    }
    None
}

fn substitution(after: &str) -> SedCommand<'_> {
    let Some(delimiter) = after.chars().next() else { return SedCommand::Runs };
    let replacement = skip_expression(&after[delimiter.len_utf8()..], delimiter);
    let parts = replacement.and_then(|rest| skip_replacement(rest, delimiter));
    let Some(flags) = parts else { return SedCommand::Runs };
    let end = flags.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(flags.len());
    let named = flags[..end].find('w');
    if flags[..named.unwrap_or(end)].contains('e') {
        return SedCommand::Runs;
    }
    // The flag `w` uses the rest of the line as a file name.
    let next = named.map_or(end, |at| flags[at..].find('\n').map_or(flags.len(), |line| at + line));
    SedCommand::Other(&flags[next..])
}

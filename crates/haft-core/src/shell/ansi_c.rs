//! Decodes ANSI-C quoted words such as `$'\x72m'`.

use super::ShellWord;

/// Decodes the text between the quotes. The word is opaque if an escape does not encode exactly one character.
pub(super) fn decode(quoted: &str) -> ShellWord {
    let mut word = ShellWord::default();
    let mut rest = quoted;
    while let Some((before, escape)) = rest.split_once('\\') {
        word.text.push_str(before);
        let decoded = escaped(escape);
        word.opaque |= decoded.is_none();
        word.text.extend(decoded.map(|(c, _)| c));
        rest = decoded.map_or(escape, |(_, after)| after);
    }
    word.text.push_str(rest);
    word
}

fn escaped(escape: &str) -> Option<(char, &str)> {
    let first = escape.chars().next()?;
    let after = &escape[first.len_utf8()..];
    let c = match first {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'e' | 'E' => '\u{1b}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' | '\'' | '"' | '?' => first,
        'x' => return numbered(after, 16, 2, 0x7f),
        'u' => return numbered(after, 16, 4, u32::MAX),
        'U' => return numbered(after, 16, 8, u32::MAX),
        '0'..='7' => return numbered(escape, 8, 3, 0x7f),
        _ => return None,
    };
    Some((c, after))
}

/// Decodes a numeric escape. A NUL ends the word in bash, and a byte beyond ASCII is only a part of a character, so
/// both make the word opaque.
fn numbered(text: &str, radix: u32, digits_max: usize, code_max: u32) -> Option<(char, &str)> {
    let digits = text.chars().take(digits_max).take_while(|c| c.is_digit(radix)).count();
    let code = u32::from_str_radix(&text[..digits], radix).ok()?;
    let c = char::from_u32(code).filter(|_| (1..=code_max).contains(&code))?;
    Some((c, &text[digits..]))
}

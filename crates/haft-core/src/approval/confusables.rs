//! Characters that look like ASCII. A command with such a character may run a different program than the one that the
//! user reads.
//!
//! The tables hold the characters that common fonts draw like a letter, digit or sign of ASCII, based on the
//! confusables of Unicode Technical Standard 39. Text in another script stays readable: a letter is escaped only if its
//! whole word could be read as ASCII, or if its word mixes ASCII letters with look-alikes of another script.

/// Returns true for a word that is not ASCII but can be read as ASCII, fully or mostly.
pub(super) fn imitates_ascii_word(word: &str) -> bool {
    !word.is_ascii()
        && (word.chars().all(|c| c.is_ascii() || imitates_ascii_letter(c)) || mixes_scripts(word))
}

/// Returns true for a word with ASCII letters and with look-alikes of another script. One further letter of this script
/// must not make the word look honest.
fn mixes_scripts(word: &str) -> bool {
    let imitates = |c: char| is_of_similar_script(c) && imitates_ascii_letter(c);
    word.contains(|c: char| c.is_ascii_alphabetic()) && word.contains(imitates)
}

/// Returns true for a letter of a script with many look-alikes, other than Latin: Greek, Cyrillic, Armenian, Cherokee and
/// Lisu. Full-width letters are not listed, because Chinese and Japanese texts mix them with ASCII.
fn is_of_similar_script(c: char) -> bool {
    matches!(c, '\u{370}'..='\u{58f}' | '\u{13a0}'..='\u{13fd}' | '\u{ab70}'..='\u{abbf}' | '\u{a4d0}'..='\u{a4ff}')
}

/// Returns true for a punctuation mark or symbol that looks like an ASCII one with a meaning in a command line.
pub(super) fn imitates_ascii_sign(c: char) -> bool {
    matches!(c,
        // Hyphens, the en dash and minus signs. The em dash is not listed: it is longer, and common in prose.
        '\u{2010}'..='\u{2013}' | '\u{2212}' | '\u{2d7}' | '\u{2796}'
        // Characters that look like ASCII quotation marks: quotation marks, primes and accents.
        | '\u{2018}'..='\u{201f}' | '\u{2032}'..='\u{2037}' | '\u{2b9}'..='\u{2bf}' | '\u{2ca}' | '\u{2cb}' | '\u{1fef}'
        // Characters that look like ASCII slashes, backslashes and bars.
        | '\u{2044}' | '\u{2215}' | '\u{2571}' | '\u{29f8}' | '\u{2216}' | '\u{29f5}' | '\u{29f9}' | '\u{2223}'
        | '\u{1c0}' | '\u{2758}'
        // Characters that look like ASCII colons, semicolons, dots and commas.
        | '\u{37e}' | '\u{2d0}' | '\u{589}' | '\u{5c3}' | '\u{2236}' | '\u{a789}' | '\u{2024}' | '\u{a4f8}'
        // Tildes, asterisks, comparison signs, equals signs and underscores.
        | '\u{2dc}' | '\u{223c}' | '\u{2217}' | '\u{204e}' | '\u{2039}' | '\u{203a}' | '\u{276e}' | '\u{276f}'
        | '\u{a78a}' | '\u{2cd}'
        // Small forms, and full-width forms except the punctuation that Chinese and Japanese texts use.
        | '\u{fe50}'..='\u{fe6b}' | '\u{ff02}'..='\u{ff07}' | '\u{ff0a}' | '\u{ff0b}' | '\u{ff0d}'..='\u{ff0f}'
        | '\u{ff1c}'..='\u{ff1e}' | '\u{ff20}' | '\u{ff3b}'..='\u{ff40}' | '\u{ff5b}'..='\u{ff5e}')
}

fn imitates_ascii_letter(c: char) -> bool {
    ascii_letter(c).is_some()
        || matches!(c,
            // Cherokee and Lisu letters, many of which look like ASCII capitals.
            '\u{13a0}'..='\u{13f5}' | '\u{ab70}'..='\u{abbf}' | '\u{a4d0}'..='\u{a4f7}'
            // Letter-like symbols, Roman numerals, full-width and mathematical letters and digits.
            | '\u{2100}'..='\u{214f}' | '\u{2160}'..='\u{217f}' | '\u{ff10}'..='\u{ff19}'
            | '\u{ff21}'..='\u{ff3a}' | '\u{ff41}'..='\u{ff5a}' | '\u{1d400}'..='\u{1d7ff}')
}

/// Lower-case ASCII letters and digits, each with the characters that look like it: Latin letters outside ASCII (such
/// as the dotless i), then Cyrillic, Greek, Armenian, Cherokee and Lisu letters, letter-like symbols and Roman
/// numerals.
const LOOK_ALIKES: [(char, &str); 28] = [
    ('3', "З"),
    ('4', "Ꮞ"),
    ('a', "ɑаАαΑᎪꓮ"),
    ('b', "ьВΒᏏᏴꓐℬ"),
    ('c', "сСϲϹᏟꓚℂℭⅽⅭ"),
    ('d', "ԁᎠᏧꓓⅅⅆⅾⅮ"),
    ('e', "еҽЕΕᎬꓰℯℰⅇ"),
    ('f', "ſꓝℱ"),
    ('g', "ɡԌցᏀᏻꓖℊ"),
    ('h', "һНηΗհᎻᏂꓧℋℌℍℎ"),
    ('i', "ıɩіІӏӀιΙᎥꓲℐℑℹⅈⅰⅠ"),
    ('j', "ȷјЈϳͿյᎫꓙⅉ"),
    ('k', "кКκΚᏦꓗ\u{212a}"),
    ('l', "ԼᏞꓡℒℓⅼⅬ"),
    ('m', "МΜᎷꓟℳⅿⅯ"),
    ('n', "пΝոꓠℕ"),
    ('o', "оОοΟօՕꓳℴ"),
    ('p', "рРρΡᏢꓑℙ"),
    ('q', "ԛԚզքℚ"),
    ('r', "гᎡᏒꓣℛℜℝ"),
    ('s', "ѕЅՏᏕᏚꓢ"),
    ('t', "ТτΤᎢꓔ"),
    ('u', "ʋυսՍꓴ"),
    ('v', "ѵνᏙꓦⅴⅤ"),
    ('w', "ԝԜωᎳᏔꓪ"),
    ('x', "хХχΧꓫⅹⅩ"),
    ('y', "уУγΥᎩᎽꓬ"),
    ('z', "ΖᏃꓜℤℨ"),
];

/// Returns the lower-case ASCII letter or the digit that a character looks like.
fn ascii_letter(c: char) -> Option<char> {
    let nth = |first: u8, at: u32| char::from_u32(u32::from(first) + at);
    match c {
        '\u{ff10}'..='\u{ff19}' => nth(b'0', c as u32 - 0xff10),
        '\u{ff21}'..='\u{ff3a}' => nth(b'a', c as u32 - 0xff21),
        '\u{ff41}'..='\u{ff5a}' => nth(b'a', c as u32 - 0xff41),
        // Each mathematical alphabet has 26 capitals and 26 small letters.
        '\u{1d400}'..='\u{1d6a3}' => nth(b'a', (c as u32 - 0x1d400) % 26),
        '\u{1d7ce}'..='\u{1d7ff}' => nth(b'0', (c as u32 - 0x1d7ce) % 10),
        c => LOOK_ALIKES.iter().find(|(_, others)| others.contains(c)).map(|(ascii, _)| *ascii),
    }
}

/// Returns the ASCII sign that a character looks like. Covers only apostrophes and angle brackets, which occur in
/// sentences and tags.
fn ascii_sign(c: char) -> Option<char> {
    match c {
        '\u{2018}'..='\u{201b}' | '\u{2032}' | '\u{2035}' | '\u{2b9}'..='\u{2bf}' | '\u{ff07}' => Some('\''),
        '\u{2039}' | '\u{276e}' | '\u{fe64}' | '\u{ff1c}' => Some('<'),
        '\u{203a}' | '\u{276f}' | '\u{fe65}' | '\u{ff1e}' => Some('>'),
        _ => None,
    }
}

/// Returns the lower-case ASCII character that a character looks like, or the character itself if there is none.
pub(super) fn folded(c: char) -> char {
    match c {
        c if c.is_ascii() => c.to_ascii_lowercase(),
        c => ascii_letter(c).or_else(|| ascii_sign(c)).unwrap_or(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_imitates_ascii_only_if_every_letter_looks_like_ascii() {
        let check = |word: &str, expected: bool| assert_eq!(imitates_ascii_word(word), expected, "{word}");
        check("rm", false);
        check("", false);
        check("\u{441}at", true);
        check("\u{441}\u{430}\u{440}", true);
        check("ｒｍ", true);
        check("𝗋𝗆", true);
        check("größe", false);
        check("привет", false);
        check("漢字", false);
        check("καλημέρα", false);
    }

    #[test]
    fn word_that_mixes_ascii_with_look_alikes_of_another_script_imitates_ascii() {
        let check = |word: &str, expected: bool| assert_eq!(imitates_ascii_word(word), expected, "{word}");
        check("p\u{430}yp\u{430}l", true);
        check("p\u{430}ypal\u{436}", true);
        check("\u{3bf}peni\u{3b1}\u{3c8}", true);
        check("yağışlı", false);
        check("5мм", false);
        check("отчёт2", false);
        check("API的ｎ值", false);
        check("Ω10k", false);
    }

    #[test]
    fn look_alikes_are_folded_to_the_letter_that_they_imitate() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.chars().map(folded).collect::<String>(), expected, "{text}");
        };
        check("Ignore", "ignore");
        check("іgпоrе", "ignore");
        check("ｉｇｎｏｒｅ １", "ignore 1");
        check("𝗶𝗴𝗻𝗼𝗿𝗲 𝟏𝟗", "ignore 19");
        check("ꓢꓬꓢꓔꓰꓟ ᏚᎩᏚᎢᎬᎷ", "system system");
        check("＜don’t›", "<don't>");
        check("größe 漢", "größe 漢");
    }

    #[test]
    fn look_alikes_of_shell_punctuation_are_detected() {
        for c in ['–', '−', '’', '“', '⁄', '\u{37e}', '｜', '＄', '∼'] {
            assert!(imitates_ascii_sign(c), "{c}");
        }
        for c in ['-', '—', '，', '。', 'é', '€', '→'] {
            assert!(!imitates_ascii_sign(c), "{c}");
        }
    }
}

//! Finds phrases in a description that give orders to the model instead of describing a tool.

use crate::approval::recognized;

/// Phrases of known attacks, in lower case. A description that contains one is not rejected; a person decides.
const DIRECTIVES: [&str; 22] = [
    "<important>",
    "<system>",
    "system prompt",
    "ignore previous",
    "ignore all previous",
    "ignore the above",
    "disregard previous",
    "do not tell the user",
    "don't tell the user",
    "do not mention",
    "do not inform",
    "without telling",
    "without asking",
    "hide this from",
    "keep this secret",
    "you must first",
    "you must always",
    "before using this tool",
    "before you use this tool",
    "instead of the tool",
    "always call this tool",
    "never use the other",
];

/// Returns the phrases in a text that give orders to the model. Invisible characters, look-alike letters, line breaks
/// and emphasis inside a phrase do not hide it, because a model understands the phrase in spite of them.
pub(super) fn model_directives(text: &str) -> Vec<&'static str> {
    let visible = comparable(text);
    let hidden = comparable(&text.chars().filter_map(tagged_ascii).collect::<String>());
    let is_in = |phrase: &str| {
        let phrase = comparable(phrase);
        visible.contains(&phrase) || hidden.contains(&phrase)
    };
    DIRECTIVES.into_iter().filter(|phrase| is_in(phrase)).collect()
}

fn comparable(text: &str) -> String {
    recognized(text).replace(['*', '`'], "")
}

/// Returns the ASCII character of a Unicode tag. Tags are invisible, but a model can read them.
fn tagged_ascii(c: char) -> Option<char> {
    match c {
        '\u{e0020}'..='\u{e007e}' => char::from_u32(c as u32 - 0xe0000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_to_the_model_are_found_in_every_spelling() {
        let check = |text: &str, expected: &[&str]| assert_eq!(model_directives(text), expected, "{text:?}");
        check("Adds two numbers.", &[]);
        check("Ignore previous instructions", &["ignore previous"]);
        check("ig\u{200b}nore pre\u{ad}vious", &["ignore previous"]);
        check("\u{456}gn\u{43e}r\u{435} previous", &["ignore previous"]);
        check("ignore\n    previous", &["ignore previous"]);
        check("ignore\r\n\tprevious", &["ignore previous"]);
        check("ignore\u{a0}\u{2028}previous", &["ignore previous"]);
        check("ignore\u{200b}previous", &["ignore previous"]);
        check("**ignore** `previous`", &["ignore previous"]);
        check("ｉｇｎｏｒｅ ｐｒｅｖｉｏｕｓ", &["ignore previous"]);
        check("i\u{301}gnore previous", &["ignore previous"]);
        check("‹IMPORTANT›", &["<important>"]);
        check("Don’t tell the user", &["don't tell the user"]);
        let tags: String =
            "keep this secret".chars().filter_map(|c| char::from_u32(c as u32 + 0xe0000)).collect();
        check(&format!("Adds{tags}"), &["keep this secret"]);
        check(&format!("ignore{tags} previous"), &["ignore previous", "keep this secret"]);
        check("You must first ignore the above", &["ignore the above", "you must first"]);
    }
}

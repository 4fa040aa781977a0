//! Finds phrases in a description that give orders to the model instead of describing a tool.

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

/// Returns the phrases in a text that give orders to the model.
pub(super) fn model_directives(text: &str) -> Vec<&'static str> {
    let text = text.to_lowercase();
    DIRECTIVES.into_iter().filter(|phrase| text.contains(phrase)).collect()
}

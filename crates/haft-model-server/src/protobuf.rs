//! Reads field names in camel case and snake case. Google's JSON accepts both, and its own SDK uses both.

use serde_json::Value;

/// Returns a field by its camel-case name. The object may spell the field name in camel case or snake case.
pub(crate) fn field<'a>(object: &'a Value, name: &str) -> &'a Value {
    match object.get(name) {
        Some(value) => value,
        None => &object[snake(name)],
    }
}

/// Returns the entries of a list that may be absent.
pub(crate) fn list<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    field(object, name).as_array().map_or(&[], Vec::as_slice)
}

/// Returns the name in camel case.
pub(crate) fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let mut letters = word.chars();
        let head = letters.next().map(|letter| letter.to_ascii_uppercase());
        name.chars().chain(head).chain(letters).collect()
    })
}

fn snake(name: &str) -> String {
    name.chars().fold(String::new(), |mut name, letter| {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
        name
    })
}

//! Replaces the URIs of resources in results of upstream servers, and leaves the rest unchanged.

use serde_json::Value;
use serde_json::value::RawValue;

use super::object::RawObject;

/// Converts the URI of an upstream server's resource into the URI that the client sees.
pub(super) type UriMap<'a> = dyn Fn(&str) -> String + 'a;

/// Rewrites the result of `tools/call`: the blocks in `content`.
pub(super) fn call_result(text: &str, uri: &UriMap<'_>) -> String {
    with_items(text, "content", &|item| block(item, uri))
}

/// Rewrites the result of `resources/read`: the URIs in `contents`.
pub(super) fn read_result(text: &str, uri: &UriMap<'_>) -> String {
    with_items(text, "contents", &|item| with_uri(item, "uri", uri))
}

/// Rewrites the result of `prompts/get`: the block of each message.
pub(super) fn prompt_result(text: &str, uri: &UriMap<'_>) -> String {
    with_items(text, "messages", &|item| {
        let mut message = RawObject::of(item)?;
        let changed = block(message.get("content")?, uri)?;
        message.set("content", changed);
        Some(message.to_string())
    })
}

/// Rewrites the URI in one member of an object.
pub(super) fn with_uri(text: &str, key: &'static str, uri: &UriMap<'_>) -> Option<String> {
    let mut object = RawObject::of(text)?;
    let own: String = serde_json::from_str(object.get(key)?).ok()?;
    object.set(key, Value::from(uri(&own)).to_string());
    Some(object.to_string())
}

/// Rewrites a content block that links to a resource or contains one; `None` for other blocks.
fn block(text: &str, uri: &UriMap<'_>) -> Option<String> {
    let mut object = RawObject::of(text)?;
    match object.get("type")? {
        "\"resource_link\"" => with_uri(text, "uri", uri),
        "\"resource\"" => {
            let resource = with_uri(object.get("resource")?, "uri", uri)?;
            object.set("resource", resource);
            Some(object.to_string())
        }
        _ => None,
    }
}

/// Rewrites the items of an array in an object. Keeps an item for which `change` returns `None`, and a value that does
/// not have the expected form.
pub(super) fn with_items(text: &str, key: &'static str, change: &dyn Fn(&str) -> Option<String>) -> String {
    let Some(mut object) = RawObject::of(text) else { return text.to_owned() };
    let items = object.get(key).and_then(|items| serde_json::from_str::<Vec<&RawValue>>(items).ok());
    match items.and_then(|items| changed_array(&items, text.len(), change)) {
        Some(changed) => {
            object.set(key, changed);
            object.to_string()
        }
        None => text.to_owned(),
    }
}

/// Returns the JSON of an array with changed items; `None` if no item changes. Keeps at most one changed item apart from
/// the array, because items can be large.
fn changed_array(
    items: &[&RawValue],
    capacity: usize,
    change: &dyn Fn(&str) -> Option<String>,
) -> Option<String> {
    let (mut array, mut is_changed) = (String::with_capacity(capacity), false);
    array.push('[');
    for (position, item) in items.iter().enumerate() {
        array.push_str(if position == 0 { "" } else { "," });
        let changed = change(item.get());
        is_changed |= changed.is_some();
        array.push_str(changed.as_deref().unwrap_or(item.get()));
    }
    array.push(']');
    is_changed.then_some(array)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shout(uri: &str) -> String {
        uri.to_uppercase()
    }

    #[test]
    fn rewrite_changes_only_uris_of_resources() {
        let check = |rewrite: fn(&str, &UriMap<'_>) -> String, text: &str, expected: &str| {
            assert_eq!(rewrite(text, &shout), expected);
        };
        check(
            call_result,
            r#"{"v":1.0,"content":[{"type":"text","text":"a:b"},{"type":"resource_link","uri":"a:b","x":1},{"type":"resource","resource":{"uri":"c:d","text":"t"}}],"_meta":{}}"#,
            r#"{"v":1.0,"content":[{"type":"text","text":"a:b"},{"type":"resource_link","uri":"A:B","x":1},{"type":"resource","resource":{"uri":"C:D","text":"t"}}],"_meta":{}}"#,
        );
        check(read_result, r#"{"contents":[{"uri":"a:b"},7]}"#, r#"{"contents":[{"uri":"A:B"},7]}"#);
        check(
            prompt_result,
            r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a:b"}}}]}"#,
            r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"A:B"}}}]}"#,
        );
        for odd in
            ["7", "{}", r#"{"content": {"type":"resource_link"}}"#, r#"{"content":[{"type":"resource"}]}"#]
        {
            check(call_result, odd, odd);
        }
    }
}

//! Extra body fields from the configuration, for features that only one server supports.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Body fields that the operator must not set, because they contain the conversation or determine how the reply is
/// decoded.
pub(crate) const RESERVED: [&str; 6] = ["messages", "input", "contents", "tools", "stream", "model"];

/// Adds fields to an encoded body. If a field is in both objects, its values are merged if both are objects; otherwise
/// the extra value replaces the other. All other fields keep their bytes.
pub(crate) fn merge(body: &[u8], extra: &Map<String, Value>) -> Vec<u8> {
    let Ok(OrderedFields(fields)) = serde_json::from_slice::<OrderedFields<'_>>(body) else {
        return body.to_vec();
    };
    let mut merged = Vec::with_capacity(body.len() + 256);
    let mut write = |name: &str, value: &str| {
        merged.push(if merged.is_empty() { b'{' } else { b',' });
        merged.extend_from_slice(Value::from(name).to_string().as_bytes());
        merged.push(b':');
        merged.extend_from_slice(value.as_bytes());
    };
    for (name, raw) in &fields {
        match extra.get(name) {
            None => write(name, raw.get()),
            Some(new) => write(name, &over(raw, new).to_string()),
        }
    }
    let is_new = |name: &String| fields.iter().all(|(known, _)| known != name);
    for (name, value) in extra.iter().filter(|(name, _)| is_new(name)) {
        write(name, &value.to_string());
    }
    merged.push(b'}');
    merged
}

fn over(raw: &RawValue, new: &Value) -> Value {
    let old = serde_json::from_str(raw.get()).unwrap_or(Value::Null);
    merge_values(old, new)
}

/// Merges recursively. The depth is limited, because both values come from the JSON parser, which limits it.
fn merge_values(old: Value, new: &Value) -> Value {
    match (old, new) {
        (Value::Object(mut old), Value::Object(new)) => {
            for (key, value) in new {
                let below = old.remove(key).unwrap_or(Value::Null);
                old.insert(key.clone(), merge_values(below, value));
            }
            Value::Object(old)
        }
        (_, new) => new.clone(),
    }
}

/// The fields of an object in their original order, each with its raw value.
struct OrderedFields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for OrderedFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OrderedFieldsVisitor;
        impl<'de> Visitor<'de> for OrderedFieldsVisitor {
            type Value = OrderedFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(OrderedFields(fields))
            }
        }
        deserializer.deserialize_map(OrderedFieldsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn extra_body_fields_are_merged_without_changing_other_bytes() {
        let check = |body: &str, extra: Value, expected: &str| {
            let merged = merge(body.as_bytes(), extra.as_object().unwrap());
            assert_eq!(String::from_utf8(merged).unwrap(), expected);
        };
        check(r#"{"a":1.0,"b":[ 1 ]}"#, json!({"c": true}), r#"{"a":1.0,"b":[ 1 ],"c":true}"#);
        check(r#"{"o":{"x":1,"y":2},"z":0}"#, json!({"o": {"y": 3}}), r#"{"o":{"x":1,"y":3},"z":0}"#);
        check(r#"{"t":0.5}"#, json!({"t": 1}), r#"{"t":1}"#);
    }
}

//! A JSON object whose values stay raw and whose members keep their order.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// The members of an object, in the order of its text.
#[derive(Debug, Default)]
pub(super) struct RawObject<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> RawObject<'a> {
    /// Parses a text; returns `None` if it is not an object.
    pub(super) fn of(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.0.retain(|(name, _)| name != key);
    }

    /// Replaces a member in its position, or appends it.
    pub(super) fn set(&mut self, key: &'static str, value: impl Into<Cow<'a, str>>) {
        let value = value.into();
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, there)) => *there = value,
            None => self.0.push((key.into(), value)),
        }
    }
}

impl fmt::Display for RawObject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (position, (key, value)) in self.0.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{}:{value}", Value::from(&**key))?;
        }
        f.write_str("}")
    }
}

impl<'de> Deserialize<'de> for RawObject<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MemberVisitor;

        impl<'de> Visitor<'de> for MemberVisitor {
            type Value = RawObject<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
                    members.push((key.into(), value.get().into()));
                }
                Ok(RawObject(members))
            }
        }

        deserializer.deserialize_map(MemberVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_json_object_keeps_the_order_and_text_of_other_members() {
        let mut object = RawObject::of(r#"{"b": 1.0, "a": {"z": 1, "y": [ ]}, "\"": null}"#).unwrap();
        assert_eq!(object.get("b"), Some("1.0"));
        object.set("a", "2");
        object.set("c", "3");
        assert_eq!(object.to_string(), r#"{"b":1.0,"a":2,"\"":null,"c":3}"#);
        assert!(RawObject::of("[]").is_none());
    }
}

//! A JSON object whose values stay raw and whose members keep their order.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// The members of an object, in the order of its text.
#[derive(Debug, Clone, Default)]
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

    /// Keeps only the members with these names.
    pub(super) fn keep_only(&mut self, keys: &[&str]) {
        self.0.retain(|(name, _)| keys.contains(&&**name));
    }

    /// Keeps only the last of several members with the same name, as most parsers do. Returns true if it removed members.
    pub(super) fn remove_duplicates(&mut self) -> bool {
        let mut names = HashSet::with_capacity(self.0.len());
        if self.0.iter().all(|(name, _)| names.insert(&**name)) {
            return false;
        }
        names.clear();
        let is_last: Vec<bool> = self.0.iter().rev().map(|(name, _)| names.insert(&**name)).collect();
        let mut is_last = is_last.into_iter().rev();
        self.0.retain(|_| is_last.next().unwrap_or_default());
        true
    }

    /// Replaces the values for which `change` returns another one. Returns true if there are such values.
    pub(super) fn replace_values(&mut self, change: impl Fn(&str) -> Option<&'static str>) -> bool {
        let mut is_changed = false;
        for (_, value) in &mut self.0 {
            if let Some(changed) = change(value) {
                *value = changed.into();
                is_changed = true;
            }
        }
        is_changed
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
        let mut object = RawObject::of(r#"{"a": 1, "b": 2, "a": 3}"#).unwrap();
        assert!(object.remove_duplicates() && !object.remove_duplicates());
        assert_eq!(object.to_string(), r#"{"b":2,"a":3}"#);
    }
}

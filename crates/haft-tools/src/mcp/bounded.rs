//! Lists and objects from a server that keep only the first entries: a message can consist of many tiny items, and a
//! parsed item takes more memory than its text.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The first `N` items of a list.
#[derive(Debug)]
pub(super) struct BoundedList<T, const N: usize> {
    pub(super) items: Vec<T>,
    /// The number of further items that were dropped.
    pub(super) more: usize,
}

impl<T, const N: usize> Default for BoundedList<T, N> {
    fn default() -> Self {
        Self { items: Vec::new(), more: 0 }
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for BoundedList<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(BoundedListVisitor(PhantomData))
    }
}

struct BoundedListVisitor<T, const N: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for BoundedListVisitor<T, N> {
    type Value = BoundedList<T, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut first = BoundedList::default();
        while first.items.len() < N {
            match list.next_element()? {
                Some(item) => first.items.push(item),
                None => return Ok(first),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            first.more += 1;
        }
        Ok(first)
    }
}

/// The first `N` members of an object, in the order they were sent.
#[derive(Debug)]
pub(super) struct BoundedObject<T, const N: usize> {
    pub(super) members: Vec<(String, T)>,
    /// The number of further members that were dropped.
    pub(super) more: usize,
}

impl<T, const N: usize> Default for BoundedObject<T, N> {
    fn default() -> Self {
        Self { members: Vec::new(), more: 0 }
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for BoundedObject<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(BoundedObjectVisitor(PhantomData))
    }
}

struct BoundedObjectVisitor<T, const N: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for BoundedObjectVisitor<T, N> {
    type Value = BoundedObject<T, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut first = BoundedObject::default();
        while first.members.len() < N {
            match object.next_entry()? {
                Some(member) => first.members.push(member),
                None => return Ok(first),
            }
        }
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            first.more += 1;
        }
        Ok(first)
    }
}

/// Cuts a text from a server to `chars_max` characters.
pub(super) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_list_keeps_the_first_items_and_counts_the_rest() {
        let check = |text: &str, items: &[u8], more: usize| {
            let found: BoundedList<u8, 3> = serde_json::from_str(text).unwrap();
            assert_eq!((found.items.as_slice(), found.more), (items, more), "{text}");
        };
        check("[]", &[], 0);
        check("[1,2]", &[1, 2], 0);
        check("[1,2,3]", &[1, 2, 3], 0);
        check("[1,2,3,\"x\",{}]", &[1, 2, 3], 2);
        assert!(serde_json::from_str::<BoundedList<u8, 3>>("[1,2,3,").is_err());
        assert!(serde_json::from_str::<BoundedList<u8, 3>>("{}").is_err());
        let found: BoundedObject<u8, 1> = serde_json::from_str(r#"{"b":1,"a":2,"c":{}}"#).unwrap();
        assert_eq!((found.members, found.more), (vec![("b".to_owned(), 1)], 2));
    }

    #[test]
    fn text_of_a_server_is_truncated_between_characters() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöü", 2), "äö…");
    }
}

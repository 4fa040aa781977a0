//! Parses a list of calls in a reply, up to the maximum number of calls per reply.

use std::fmt;
use std::marker::PhantomData;

use haft_core::model_reply::CALLS_PER_REPLY_MAX;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

/// The first calls of a list, at most [`CALLS_PER_REPLY_MAX`].
#[derive(Debug)]
pub(crate) struct CallList<T> {
    pub(crate) items: Vec<T>,
    /// The number of further calls, which were skipped without parsing them.
    pub(crate) more: usize,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for CallList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(CallListVisitor(PhantomData))
    }
}

struct CallListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for CallListVisitor<T> {
    type Value = CallList<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of calls")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut calls = CallList { items: Vec::new(), more: 0 };
        while calls.items.len() < CALLS_PER_REPLY_MAX {
            match list.next_element()? {
                Some(call) => calls.items.push(call),
                None => return Ok(calls),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            calls.more += 1;
        }
        Ok(calls)
    }
}

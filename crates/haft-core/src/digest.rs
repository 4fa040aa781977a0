//! SHA-256 digests of texts, JSON values and tool definitions, and the cache key of a call.

use std::fmt;
use std::io::{self, Write};

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::naming::ToolIdentity;
use crate::provider::Principal;
use crate::tool::ToolDefinition;
use crate::validate::ValidArguments;

/// A SHA-256 digest. Equal JSON values have equal digests, independent of key order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of a JSON value. The order of keys has no effect.
    pub fn of_value(value: &Value) -> Self {
        let mut canonical = CanonicalHasher::default();
        canonical.value(value);
        canonical.finish()
    }

    /// Reads the text that [`Display`](fmt::Display) writes.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let digits = text.as_bytes();
        if digits.len() != 2 * bytes.len() || !text.is_ascii() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// Returns the digest of the exact bytes of a text.
    pub fn of_text(text: &str) -> Self {
        Self::of_bytes(text.as_bytes())
    }

    /// Returns the SHA-256 digest of exactly these bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the digest of a list of parts. The length of each part is hashed too, so that different splits of the
    /// same bytes have different digests.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// Returns the digest of a tool definition. It covers every part that a model or a provider may depend on.
    pub fn of_definition(definition: &ToolDefinition) -> Self {
        let ToolDefinition {
            name,
            description,
            input_schema,
            output_schema,
            effects,
            groups: _,
            facts: _,
            raw,
        } = definition;
        let mut canonical = CanonicalHasher::default();
        canonical.list(|list| {
            list.item(|item| item.text(name.as_str()));
            list.item(|item| item.text(description));
            list.item(|item| item.value(input_schema));
            list.item(|item| item.value(output_schema.as_ref().unwrap_or(&Value::Null)));
            list.item(|item| item.text(effects.name()));
            list.item(|item| item.text(raw.as_ref().map_or("", |raw| raw.get())));
        });
        canonical.finish()
    }

    /// Returns the 32 bytes of the digest.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 64];
        write_hex(&self.0, &mut text);
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Writes two hexadecimal digits for each byte. Bytes that do not fit into `text` are left out.
pub(crate) fn write_hex(bytes: &[u8], text: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, digits) in bytes.iter().zip(text.chunks_exact_mut(2)) {
        digits[0] = DIGITS[usize::from(byte >> 4)];
        digits[1] = DIGITS[usize::from(byte & 15)];
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// The key of a call in the cache. A cached output must never answer a different call, so the key includes everything
/// that could change the output or its owner.
#[derive(Debug, Clone, Copy)]
pub struct CallKey<'a> {
    /// The tool, independent of the name under which the model sees it.
    pub identity: &'a ToolIdentity,
    /// The digest of the current definition: a tool with a changed definition is a different tool.
    pub definition: Digest,
    /// The arguments after repair and validation, as the provider would see them.
    pub arguments: &'a ValidArguments,
    /// The owner of the output. Principals never share cached outputs.
    pub principal: &'a Principal,
    /// The workspace of the call.
    pub scope: &'a str,
}

impl CallKey<'_> {
    /// Returns the digest under which the output is cached.
    pub fn digest(&self) -> Digest {
        let Self { identity, definition, arguments, principal, scope } = self;
        let mut canonical = CanonicalHasher::default();
        canonical.list(|list| {
            list.item(|item| item.text(identity.kind.name()));
            list.item(|item| item.text(identity.namespace.as_str()));
            list.item(|item| item.text(identity.tool.as_str()));
            list.item(|item| item.hex(definition));
            list.item(|item| item.object(arguments.value()));
            list.item(|item| item.text(principal.tenant()));
            list.item(|item| item.text(principal.subject()));
            list.item(|item| item.text(principal.credential_id()));
            list.item(|item| item.text(scope));
        });
        canonical.finish()
    }
}

/// Hashes JSON text with sorted keys and without spaces, without building the text.
///
/// Numbers keep their written form, so `1` and `1.0` differ: a redundant call only costs time, but confusing two calls
/// would return a wrong output.
#[derive(Default)]
struct CanonicalHasher(Sha256);

impl CanonicalHasher {
    fn value(&mut self, value: &Value) {
        match value {
            Value::Array(items) => self.list(|list| {
                for item in items {
                    list.item(|to| to.value(item));
                }
            }),
            Value::Object(object) => self.object(object),
            Value::String(text) => self.text(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => self.scalar(value),
        }
    }

    /// Hashes an object with sorted keys. A `serde_json` map is not sorted if any crate in the build enables the
    /// feature `preserve_order`.
    fn object(&mut self, object: &Map<String, Value>) {
        if object.keys().is_sorted() {
            return self.members(object.iter());
        }
        let mut members: Vec<_> = object.iter().collect();
        members.sort_unstable_by_key(|(key, _)| *key);
        self.members(members.into_iter());
    }

    fn members<'v>(&mut self, members: impl Iterator<Item = (&'v String, &'v Value)>) {
        self.raw(b"{");
        for (position, (key, value)) in members.enumerate() {
            self.raw(if position == 0 { b"" } else { b"," });
            self.text(key);
            self.raw(b":");
            self.value(value);
        }
        self.raw(b"}");
    }

    fn list(&mut self, items: impl FnOnce(&mut SeparatedList<'_>)) {
        self.raw(b"[");
        items(&mut SeparatedList { canonical: self, separator: b"" });
        self.raw(b"]");
    }

    fn text(&mut self, text: &str) {
        // Writing to a hasher cannot fail.
        let _ = serde_json::to_writer(&mut *self, text);
    }

    /// Hashes a digest as [`text`](Self::text) would hash its hexadecimal form, without building a string.
    fn hex(&mut self, digest: &Digest) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'"'; 66];
        for (pair, byte) in text[1..65].chunks_exact_mut(2).zip(digest.0) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        self.raw(&text);
    }

    fn scalar(&mut self, value: &Value) {
        let _ = serde_json::to_writer(&mut *self, value);
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl Write for CanonicalHasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.raw(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes commas between the items of a list.
struct SeparatedList<'a> {
    canonical: &'a mut CanonicalHasher,
    separator: &'static [u8],
}

impl SeparatedList<'_> {
    fn item(&mut self, write: impl FnOnce(&mut CanonicalHasher)) {
        self.canonical.raw(std::mem::replace(&mut self.separator, b","));
        write(self.canonical);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::arguments::{ArgumentLimits, RawArguments};
    use crate::name::{Namespace, ToolName};
    use crate::provider::ProviderKind;
    use crate::validate::Schema;

    fn valid(text: &str) -> ValidArguments {
        let parsed = RawArguments::from_text(text).parse(&ArgumentLimits::default()).unwrap();
        Schema::compile(&json!({"type": "object"})).validate(parsed).unwrap()
    }

    fn identity(namespace: &str, tool: &str) -> ToolIdentity {
        let namespace = Namespace::new(namespace).unwrap();
        ToolIdentity { kind: ProviderKind::Mcp, namespace, tool: ToolName::new(tool).unwrap() }
    }

    #[test]
    fn key_order_and_whitespace_do_not_change_the_digest() {
        let check = |left: &str, right: &str, equal: bool| {
            let digest = |text: &str| Digest::of_value(&serde_json::from_str(text).unwrap());
            assert_eq!(digest(left) == digest(right), equal, "{left} {right}");
        };
        check(r#"{"a": 1, "b": {"c": 2, "d": 3}}"#, r#"{"b":{"d":3,"c":2},"a":1}"#, true);
        check(r#"{"a": [1, 2]}"#, r#"{"a": [2, 1]}"#, false);
        check(r#"{"a": "1"}"#, r#"{"a": 1}"#, false);
        check(r#"{"a": null}"#, "{}", false);
        check(r#"["a", "b"]"#, r#"["a,b"]"#, false);
        check(r#"["a\",\"b"]"#, r#"["a", "b"]"#, false);
    }

    #[test]
    fn changing_any_field_of_a_call_key_changes_its_digest() {
        let (arguments, other_arguments) = (valid(r#"{"q": 1}"#), valid(r#"{"q": 2}"#));
        let (tool, other_tool) = (identity("a", "b"), identity("a", "c"));
        let (anna, bert) = (Principal::new("t", "anna", ""), Principal::new("t", "bert", ""));
        let definition = Digest::of_value(&json!(1));
        let key =
            CallKey { identity: &tool, definition, arguments: &arguments, principal: &anna, scope: "w" };
        let others = [
            CallKey { identity: &other_tool, ..key },
            CallKey { definition: Digest::of_value(&json!(2)), ..key },
            CallKey { arguments: &other_arguments, ..key },
            CallKey { principal: &bert, ..key },
            CallKey { scope: "v", ..key },
        ];
        assert_eq!(key.digest(), key.digest());
        assert!(others.iter().all(|other| other.digest() != key.digest()));
    }

    #[test]
    fn call_key_fields_are_delimited_in_the_digest() {
        let arguments = valid("{}");
        let definition = Digest::of_value(&json!(1));
        let key = |principal: &str, scope: &str| {
            let (identity, principal) = (identity("a", "b"), Principal::new("t", principal, ""));
            CallKey { identity: &identity, definition, arguments: &arguments, principal: &principal, scope }
                .digest()
        };
        assert_ne!(key("ab", "c"), key("a", "bc"));
        assert_ne!(key("a\",\"b", ""), key("a", "b\",\""));
    }

    #[test]
    fn byte_parts_are_delimited_in_the_digest() {
        let of = |parts: &[&str]| Digest::of_parts(parts.iter().map(|part| part.as_bytes()));
        assert_eq!(of(&["a", "bc"]), of(&["a", "bc"]));
        for other in [&["ab", "c"][..], &["abc"], &["a", "bc", ""], &["bc", "a"]] {
            assert_ne!(of(&["a", "bc"]), of(other), "{other:?}");
        }
    }

    #[test]
    fn digest_prints_as_hexadecimal() {
        let check = |value: &Value, expected: &str| assert_eq!(Digest::of_value(value).to_string(), expected);
        check(&json!({}), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
        check(
            &json!({"b": [1, "x"], "a": null}),
            "c22cb7b0353770e2b38094af641143ebf008ddf2d1f2dedb9d875996fcf245fa",
        );
    }

    proptest! {
        #[test]
        fn shuffled_keys_give_the_same_digest(mut members in proptest::collection::vec(("[a-c]{1,3}", 0_u8..3), 0..6)) {
            members.sort();
            members.dedup_by(|left, right| left.0 == right.0);
            let text = |members: &[(String, u8)]| {
                let members: Vec<_> = members.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                valid(&format!("{{{}}}", members.join(",")))
            };
            let sorted = text(&members);
            members.reverse();
            let digest = |valid: &ValidArguments| Digest::of_value(&Value::Object(valid.value().clone()));
            prop_assert_eq!(digest(&sorted), digest(&text(&members)));
        }
    }
}

//! Parses the JSON text of a request, and refuses objects that contain a field twice.
//!
//! Parsers disagree about the value of such a field: most take the last one, some the first. A proxy that checks a request
//! could therefore see another request than haft.

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};

use crate::error::{ApiError, ApiErrorKind};

/// The maximum length of the path of a duplicate field in an error, in bytes.
const PATH_BYTES_MAX: usize = 200;

/// Parses a JSON text that must be one object. `what` names the text in errors, such as `the request body`.
pub(crate) fn parse_object(text: &[u8], what: &str) -> Result<Map<String, Value>, ApiError> {
    let invalid = |message: String| ApiError::new(ApiErrorKind::InvalidRequest, message);
    let path = DuplicatePath::default();
    let mut parser = serde_json::Deserializer::from_slice(text);
    let parsed = UniqueFields(&path).deserialize(&mut parser);
    match parsed.and_then(|value| parser.end().map(|()| value)) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(invalid(format!("{what} must be a JSON object"))),
        Err(error) => Err(match path.into_text() {
            Some(field) => {
                let message = format!("{what} contains the field `{field}` twice; send it once");
                ApiError::invalid(field, message)
            }
            None => invalid(format!("{what} is not JSON: {error}")),
        }),
    }
}

/// The path of a duplicate field, from the field to the root; empty if there is none. The levels of the parser add their
/// parts only when they return the error, so the path costs nothing if there is no error.
#[derive(Debug, Default)]
struct DuplicatePath(RefCell<Vec<PathPart>>);

#[derive(Debug)]
enum PathPart {
    Field(String),
    Index(usize),
}

impl DuplicatePath {
    fn begin(&self, field: String) {
        self.0.borrow_mut().push(PathPart::Field(field));
    }

    /// Adds a level, if a duplicate field is the reason for the error that passes it.
    fn extend(&self, part: impl FnOnce() -> PathPart) {
        let mut parts = self.0.borrow_mut();
        if !parts.is_empty() {
            parts.push(part());
        }
    }

    /// Returns the path in the form of `param`, such as `tools[0].name`.
    fn into_text(self) -> Option<String> {
        let mut text = String::new();
        for part in self.0.into_inner().into_iter().rev() {
            match part {
                PathPart::Field(name) if text.is_empty() => text = name,
                PathPart::Field(name) => text.extend([".", &name]),
                PathPart::Index(index) => {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "[{index}]");
                }
            }
        }
        text.truncate(text.floor_char_boundary(PATH_BYTES_MAX));
        (!text.is_empty()).then_some(text)
    }
}

/// Builds the same [`Value`] as serde's own implementation, and fails at a duplicate field.
#[derive(Clone, Copy)]
struct UniqueFields<'a>(&'a DuplicatePath);

impl<'de> DeserializeSeed<'de> for UniqueFields<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueFields<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        loop {
            match items.next_element_seed(self) {
                Ok(Some(item)) => array.push(item),
                Ok(None) => return Ok(Value::Array(array)),
                Err(error) => {
                    self.0.extend(|| PathPart::Index(array.len()));
                    return Err(error);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let field = match object.entry(name) {
                Entry::Vacant(field) => field,
                Entry::Occupied(field) => {
                    self.0.begin(field.key().clone());
                    return Err(A::Error::custom("duplicate field"));
                }
            };
            match fields.next_value_seed(self) {
                Ok(value) => field.insert(value),
                Err(error) => {
                    self.0.extend(|| PathPart::Field(field.key().clone()));
                    return Err(error);
                }
            };
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Map<String, Value>, ApiError> {
        parse_object(text.as_bytes(), "the request body")
    }

    #[test]
    fn field_that_occurs_twice_is_refused_with_its_path() {
        let check = |text: &str, param: &str| {
            let error = parse(text).unwrap_err();
            assert_eq!((error.kind, error.param.as_deref()), (ApiErrorKind::InvalidRequest, Some(param)));
            assert!(error.message.contains(&format!("`{param}` twice")), "{}", error.message);
        };
        check(r#"{"a":1,"a":2}"#, "a");
        check(r#"{"a":1,"\u0061":1}"#, "a");
        check(r#"{"tools":[{},{"x":{"name":1,"b":[],"name":null}}]}"#, "tools[1].x.name");
        check(r#"{"a":[[{"b":1,"b":1}]]}"#, "a[0][0].b");
        check(&format!("{{\"{0}\":1,\"{0}\":1}}", "\u{e9}".repeat(150)), &"\u{e9}".repeat(100));
    }

    #[test]
    fn equal_names_in_different_objects_are_accepted() {
        assert!(parse(r#"{"a":{"a":[{"a":1},{"a":1}]},"b":{"a":1},"A":1}"#).is_ok());
    }

    #[test]
    fn text_without_duplicate_fields_is_parsed_like_by_serde() {
        for text in [
            r#"{"":[null,true,false,"",0,-0,-1,1.5,-0.0,1e300,18446744073709551615,-9223372036854775808,1e-5]}"#,
            r#"{"a":{"b":{"c":[[],{},[{}]]}},"e":"\ud83d\ude00\n\u0000","z":99999999999999999999999}"#,
        ] {
            let expected: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text).map(Value::Object).as_ref(), Ok(&expected));
        }
    }

    /// serde's own implementation would parse the text in this field, and return its value instead of the object.
    #[test]
    fn field_with_a_private_name_of_the_parser_is_an_ordinary_field() {
        let object = parse(r#"{"$serde_json::private::RawValue":"[]"}"#).unwrap();
        assert_eq!(object["$serde_json::private::RawValue"], "[]");
    }

    #[test]
    fn text_must_be_one_json_object() {
        let deep = "[".repeat(100_000);
        for wrong in ["", "{", "[]", "1", "{} {}", "{\"a\":\"\\ud800\"}", "{\"a\":1e999}", &deep] {
            let error = parse(wrong).unwrap_err();
            assert_eq!((error.kind, error.param), (ApiErrorKind::InvalidRequest, None), "{wrong:.20}");
        }
    }
}

//! Parses one field of a request. Errors name the field.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::error::ApiError;

/// A field of a request. The value `null` is treated like a missing field.
#[derive(Debug, Clone)]
pub(crate) struct RequestField {
    name: Cow<'static, str>,
    value: Option<Value>,
}

pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> ApiError {
    ApiError::invalid(param, message)
}

impl RequestField {
    pub(crate) fn new(name: impl Into<Cow<'static, str>>, value: Option<Value>) -> Self {
        Self { name: name.into(), value: value.filter(|value| !value.is_null()) }
    }

    pub(crate) fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    pub(crate) fn into_value(self) -> Option<Value> {
        self.value
    }

    pub(crate) fn text(&self) -> Result<Option<String>, ApiError> {
        self.read(|| "a string".into(), |value| value.as_str().map(str::to_owned))
    }

    pub(crate) fn boolean(&self) -> Result<Option<bool>, ApiError> {
        self.read(|| "true or false".into(), Value::as_bool)
    }

    pub(crate) fn number(&self, min: f64, max: f64) -> Result<Option<f64>, ApiError> {
        let expected = || format!("a number from {min} to {max}");
        self.read(expected, |value| value.as_f64().filter(|number| (min..=max).contains(number)))
    }

    pub(crate) fn count(&self, min: u32) -> Result<Option<u32>, ApiError> {
        let expected = || format!("a whole number of at least {min}");
        self.read(expected, |value| {
            value.as_u64().and_then(|count| u32::try_from(count).ok()).filter(|count| *count >= min)
        })
    }

    pub(crate) fn word(&self, words: &[&'static str]) -> Result<Option<&'static str>, ApiError> {
        let expected = || format!("one of {}", words.join(", "));
        self.read(expected, |value| words.iter().find(|word| value.as_str() == Some(**word)).copied())
    }

    pub(crate) fn object(&self) -> Result<Option<&Map<String, Value>>, ApiError> {
        match &self.value {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => Err(self.wrong("an object")),
        }
    }

    pub(crate) fn array(&self) -> Result<Option<&Vec<Value>>, ApiError> {
        match &self.value {
            None => Ok(None),
            Some(Value::Array(array)) => Ok(Some(array)),
            Some(_) => Err(self.wrong("an array")),
        }
    }

    /// Reads the value. Builds the text of the error only for a wrong value, because most fields are right or missing.
    fn read<T>(
        &self,
        expected: impl FnOnce() -> String,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        self.value.as_ref().map(|value| read(value).ok_or_else(|| self.wrong(&expected()))).transpose()
    }

    pub(crate) fn wrong(&self, expected: &str) -> ApiError {
        invalid(self.name.as_ref(), format!("`{}` must be {expected}", self.name))
    }
}

/// Returns the text of a required field in the object at `path`.
pub(crate) fn required(path: &str, object: &Map<String, Value>, name: &str) -> Result<String, ApiError> {
    let field = RequestField::new(format!("{path}.{name}"), object.get(name).cloned());
    field.text()?.ok_or_else(|| field.wrong("a string"))
}

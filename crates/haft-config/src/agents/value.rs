//! Values of the front matter that need more checks than YAML provides.

use std::fmt;
use std::time::Duration;

use haft_core::internal_tools::report_format::ReportFormat;
use haft_core::name::ToolName;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

use super::written::RawCompactionKeys;
use crate::duration;
use crate::resolved::CompactionStart;

/// A single word, a string with several words separated by commas, or a list of words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WordList(pub(super) Vec<String>);

/// A string such as `90s`, or milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DurationValue {
    pub(super) time: Duration,
    /// False for a plain number, which means milliseconds.
    pub(super) has_unit: bool,
}

/// A duration, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DurationOrOff(pub(super) Option<Duration>);

/// The keys of compaction, or `off`.
#[derive(Debug)]
pub(super) enum RawAgentCompaction {
    Off,
    Keys(RawCompactionKeys),
}

/// A percentage, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CompactionStartValue(pub(super) CompactionStart);

/// A whole number of at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub(super) struct PositiveCount(pub(super) u32);

/// A number from 0 to `MAX` hundredths (`MAX` 200 means 2.00).
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct BoundedNumber<const MAX: u32>(pub(super) f64);

/// A whole percentage from 0 to 50.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub(super) struct OverlapPercent(pub(super) u32);

/// The name of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct ToolNameValue(pub(super) ToolName);

/// The `format` key of an agent file: the format of the final report, such as `json` or `markdown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct ReportFormatValue(pub(super) ReportFormat);

impl TryFrom<String> for ToolNameValue {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        ToolName::new(&text).map(Self).map_err(|error| error.to_string())
    }
}

impl TryFrom<String> for ReportFormatValue {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        ReportFormat::from_name(&text).map(Self).ok_or_else(|| {
            let known = ReportFormat::ALL.map(ReportFormat::name).join(", ");
            format!("expected one of {known}; got `{text}`")
        })
    }
}

impl TryFrom<i64> for PositiveCount {
    type Error = String;

    fn try_from(value: i64) -> Result<Self, String> {
        match u32::try_from(value) {
            Ok(count) if count > 0 => Ok(Self(count)),
            Ok(_) | Err(_) => Err(format!("expected a whole number from 1 to {}; got {value}", u32::MAX)),
        }
    }
}

impl TryFrom<i64> for OverlapPercent {
    type Error = String;

    fn try_from(value: i64) -> Result<Self, String> {
        match u32::try_from(value) {
            Ok(percent) if percent <= 50 => Ok(Self(percent)),
            Ok(_) | Err(_) => Err(format!("expected a whole number from 0 to 50; got {value}")),
        }
    }
}

impl<const MAX: u32> TryFrom<f64> for BoundedNumber<MAX> {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        let max = f64::from(MAX) / 100.0;
        if (0.0..=max).contains(&value) {
            Ok(Self(value))
        } else {
            Err(format!("expected a number from 0 to {max}; got {value}"))
        }
    }
}

impl<'de> Deserialize<'de> for WordList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordListVisitor)
    }
}

struct WordListVisitor;

impl<'de> Visitor<'de> for WordListVisitor {
    type Value = WordList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or a list of strings")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<WordList, E> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        Ok(WordList(words.map(str::to_owned).collect()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<WordList, E> {
        Ok(WordList::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<WordList, A::Error> {
        let mut words = Vec::new();
        while let Some(word) = list.next_element()? {
            words.push(word);
        }
        Ok(WordList(words))
    }
}

impl<'de> Deserialize<'de> for DurationValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = deserializer.deserialize_any(TextVisitor)?;
        let time = duration::parse(&written).map_err(de::Error::custom)?;
        Ok(Self { time, has_unit: !duration::has_no_unit(&written) })
    }
}

impl<'de> Deserialize<'de> for DurationOrOff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(TextVisitor)?.as_str() {
            "off" | "false" => Ok(Self(None)),
            written => duration::parse(written).map(|time| Self(Some(time))).map_err(de::Error::custom),
        }
    }
}

impl<'de> Deserialize<'de> for CompactionStartValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = deserializer.deserialize_any(TextVisitor)?;
        let written = if written == "false" { "off" } else { written.as_str() };
        CompactionStart::parse(written).map(Self).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for RawAgentCompaction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CompactionVisitor)
    }
}

struct CompactionVisitor;

impl<'de> Visitor<'de> for CompactionVisitor {
    type Value = RawAgentCompaction;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("off, or keys such as {at: 85%, keep: 6}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        match text {
            "off" => Ok(RawAgentCompaction::Off),
            _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Self::Value, E> {
        // YAML can read a bare `off` as the boolean false.
        if flag {
            Err(E::invalid_value(de::Unexpected::Bool(flag), &self))
        } else {
            Ok(RawAgentCompaction::Off)
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, keys: A) -> Result<Self::Value, A::Error> {
        let keys = de::value::MapAccessDeserializer::new(keys);
        RawCompactionKeys::deserialize(keys).map(RawAgentCompaction::Keys)
    }
}

/// Accepts numbers and words, and returns them as text.
struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as 90s")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.into())
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<String, E> {
        // YAML can read a bare `off` as the boolean false, which the caller accepts as `off`.
        Ok(flag.to_string())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

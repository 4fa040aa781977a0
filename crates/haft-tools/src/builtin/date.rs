//! `current_date`: the current time in a given time zone.

use haft_core::output::ToolOutput;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::{Effects, ToolDefinition};
use jiff::Timestamp;
use jiff::tz::{self, TimeZone};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tell the current date and time as ISO 8601 with the offset, the weekday and the Unix time. Use it whenever an
/// answer depends on today's date.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CurrentDateInput {
    /// IANA name of a time zone, such as `Europe/Berlin`; the system's own when left out.
    #[serde(default)]
    timezone: Option<String>,
}

pub(super) fn definition() -> Option<ToolDefinition> {
    super::define::<CurrentDateInput>("current_date", Effects::ReadOnly)
}

pub(super) fn call(input: &CurrentDateInput) -> Result<ToolOutput, ToolError> {
    current_date(Timestamp::now(), input.timezone.as_deref(), TimeZone::system())
        .map(ToolOutput::text)
        .map_err(|message| ToolError::new(ToolErrorKind::InvalidArguments, format!("Error: {message}")))
}

/// The maximum length of a zone name, in characters. The longest IANA name has 32.
const TIMEZONE_CHARS_MAX: usize = 64;
/// The maximum number of suggestions for an unknown zone.
const SUGGESTIONS_MAX: usize = 3;

/// Returns the time as JSON text, in the given time zone or else in the system's time zone.
pub fn current_date(now: Timestamp, timezone: Option<&str>, system: TimeZone) -> Result<String, String> {
    let zone = match timezone {
        None | Some("") => system,
        Some(name) => zone_named(name)?,
    };
    let there = now.to_zoned(zone);
    let output = CurrentDateOutput {
        date: there.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        timezone: zone_name(there.time_zone()).unwrap_or_else(|| there.offset().to_string()),
        weekday: there.strftime("%A").to_string(),
        unix: now.as_second(),
    };
    serde_json::to_string(&output).map_err(|error| error.to_string())
}

/// The JSON form of the answer. The model reads the fields in this order.
#[derive(Serialize)]
struct CurrentDateOutput {
    date: String,
    timezone: String,
    weekday: String,
    unix: i64,
}

fn zone_named(name: &str) -> Result<TimeZone, String> {
    if name.chars().count() > TIMEZONE_CHARS_MAX {
        return Err(format!("`timezone` must be an IANA name of at most {TIMEZONE_CHARS_MAX} characters"));
    }
    tz::db().get(name).map_err(|_| unknown_zone(name))
}

/// Returns the name of a zone. A system whose zone is unknown uses UTC, so the model gets `UTC`.
fn zone_name(zone: &TimeZone) -> Option<String> {
    if zone.is_unknown() {
        return Some("UTC".to_owned());
    }
    zone.iana_name().map(str::to_owned)
}

fn unknown_zone(name: &str) -> String {
    let known: Vec<String> = tz::db().available().map(|name| name.to_string()).collect();
    let nearest = nearest(name, &known).join(", ");
    format!("unknown time zone `{name}`; the nearest IANA names are: {nearest}")
}

/// Returns the most similar zone names: first the names that contain the requested one, then the names with a similar
/// spelling. The spelling is compared with the whole name and with the part after its last slash.
fn nearest<'a>(requested: &str, known: &'a [String]) -> Vec<&'a str> {
    let requested = requested.trim().to_lowercase().replace(' ', "_");
    let mut ranked: Vec<(f64, &str)> =
        known.iter().map(|name| (name_similarity(&requested, name), name.as_str())).collect();
    ranked.sort_by(|(a, first), (b, second)| b.total_cmp(a).then(first.cmp(second)));
    ranked.into_iter().take(SUGGESTIONS_MAX).map(|(_, name)| name).collect()
}

fn name_similarity(requested: &str, name: &str) -> f64 {
    let name = name.to_lowercase();
    let city = name.rsplit('/').next().unwrap_or(&name);
    let alike = strsim::jaro_winkler(requested, &name).max(strsim::jaro_winkler(requested, city));
    if name.contains(requested) { 1.0 + alike } else { alike }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 2024-02-29T23:30:00Z, a Thursday. Further east, the day and the month are already different.
    const LEAP_EVENING: i64 = 1_709_249_400;

    fn at(timezone: Option<&str>, system: TimeZone) -> Result<String, String> {
        current_date(Timestamp::from_second(LEAP_EVENING).unwrap(), timezone, system)
    }

    #[track_caller]
    fn check(timezone: Option<&str>, date: &str, name: &str, weekday: &str) {
        let expected =
            format!(r#"{{"date":"{date}","timezone":"{name}","weekday":"{weekday}","unix":{LEAP_EVENING}}}"#);
        assert_eq!(at(timezone, TimeZone::UTC), Ok(expected));
    }

    #[track_caller]
    fn check_suggested(timezone: &str, expected: &str) {
        let message = at(Some(timezone), TimeZone::UTC).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn current_date_uses_the_requested_time_zone() {
        check(None, "2024-02-29T23:30:00+00:00", "UTC", "Thursday");
        check(Some(""), "2024-02-29T23:30:00+00:00", "UTC", "Thursday");
        check(Some("Asia/Tokyo"), "2024-03-01T08:30:00+09:00", "Asia/Tokyo", "Friday");
        check(Some("asia/tokyo"), "2024-03-01T08:30:00+09:00", "Asia/Tokyo", "Friday");
        check(Some("America/St_Johns"), "2024-02-29T20:00:00-03:30", "America/St_Johns", "Thursday");
        check(Some("Asia/Kathmandu"), "2024-03-01T05:15:00+05:45", "Asia/Kathmandu", "Friday");
    }

    #[test]
    fn system_zone_without_a_name_is_shown_as_its_offset() {
        let fixed = TimeZone::fixed(tz::offset(2));
        assert!(at(None, fixed).unwrap().contains(r#""timezone":"+02""#));
        assert!(at(None, TimeZone::unknown()).unwrap().contains(r#""timezone":"UTC""#));
    }

    #[test]
    fn unknown_time_zone_error_suggests_the_nearest_name() {
        check_suggested("Tokyo", "Asia/Tokyo");
        check_suggested("Tokio", "Asia/Tokyo");
        check_suggested("Europe/Berln", "Europe/Berlin");
        check_suggested("new york", "America/New_York");
        check_suggested("../../etc/passwd", "unknown time zone");
        check_suggested(&"x".repeat(65), "at most 64 characters");
    }
}
